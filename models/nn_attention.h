#pragma once

#include "frit/models/scope.h"
#include "frit/ops/linear/attention.h"

namespace frit::nn {

struct MultiHeadAttention {
  std::int64_t num_heads;
  double dropout = 0;  ///< of the attention weights
  bool bias = true;
};
/// query (N, L, E), key and value (N, S, E) -> (N, L, E). Parameters "in_proj_weight" (3 E, E), "in_proj_bias", "out_proj.weight" and
/// "out_proj.bias", as those of PyTorch's nn.MultiheadAttention with batch_first. options.mask broadcasts to (N, num_heads, L, S).
Value multi_head_attention(const Scope& scope, Value query, Value key, Value value, const MultiHeadAttention& layer,
                           const AttentionOptions& options = {});
/// Of the input with itself.
Value multi_head_attention(const Scope& scope, Value input, const MultiHeadAttention& layer, const AttentionOptions& options = {});

}  // namespace frit::nn
