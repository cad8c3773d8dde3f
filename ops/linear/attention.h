#pragma once

#include "frit/ops/operator/value.h"

namespace frit {

struct AttentionOptions {
  Value mask = {};      ///< broadcasts to (..., L, S); u8: 0 where nothing is to be attended to; floating: added before the softmax
  bool causal = false;  ///< position i attends to positions 0 ... i alone
};

/// softmax(query key^T / sqrt(E) + mask) over the last axis. query (..., L, E), key (..., S, E) -> (..., L, S). NaN where nothing is
/// attended to.
Value attention_weights(Value query, Value key, const AttentionOptions& options = {});
/// These times value (..., S, V) -> (..., L, V) (Vaswani et al., "Attention is all you need", 2017).
Value scaled_dot_product_attention(Value query, Value key, Value value, const AttentionOptions& options = {});

}  // namespace frit
