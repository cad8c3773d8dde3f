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

/// indices (...), i64 or i32 -> rows (..., embedding_dim) of "weight" (num_embeddings, embedding_dim), which is standard normal at first.
struct Embedding {
  std::int64_t num_embeddings;
  std::int64_t embedding_dim;
};
Value embedding(const Scope& scope, Value indices, const Embedding& layer);

/// frit::prelu with "weight" (num_parameters): 1, or the number of channels.
Value prelu(const Scope& scope, Value input, std::int64_t num_parameters = 1, double initial = 0.25);

/// Stochastic depth (Huang et al., ECCV 2016): zeroes each sample of a residual branch with this probability and scales the others by
/// 1 / (1 - probability). The identity at inference.
Value drop_path(const Scope& scope, Value input, double probability);

}  // namespace frit::nn
