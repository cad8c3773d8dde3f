#include "frit/models/nn_attention.h"

#include "frit/models/nn.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/operator/emitter.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::nn {
namespace {

/// The projections of query, key and value, one below the other.
struct Projections {
  Value weight, bias;  // (3 E, E) and (3 E) or none

  /// Those of `parts` from the first on, in one product.
  Value apply(Value x, std::int64_t first, std::int64_t parts) const {
    const std::int64_t width = weight.dim(1), begin = first * width, end = (first + parts) * width;
    return frit::linear(x, slice(weight, 0, begin, end), bias ? slice(bias, 0, begin, end) : Value{});
  }
};

/// (N, L, E) as (N, heads, L, E / heads).
Value by_head(Value x, std::int64_t heads) {
  return permute(reshape(x, {size_of(x, 0), size_of(x, 1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
}

}  // namespace

Value multi_head_attention(const Scope& scope, Value query, Value key, Value value, const MultiHeadAttention& layer,
                           const AttentionOptions& options) {
  const std::int64_t width = query.dim(-1);
  for (const Value x : {query, key, value}) {
    require(x.rank() == 3 && x.dim(-1) == width, scope.name(), ": query, key and value must be (N, length, ", width, "), got ", x.shape());
  }
  require(layer.num_heads > 0 && width % layer.num_heads == 0, scope.name(), ": num_heads ", layer.num_heads, " does not divide ", width,
          " channels");
  const Projections projections{scope.parameter("in_proj_weight", {3 * width, width}, init::xavier_uniform()),
                                layer.bias ? scope.parameter("in_proj_bias", {3 * width}, init::zeros()) : Value{}};
  const auto heads = [&](Value x) { return by_head(x, layer.num_heads); };
  Values parts;
  if (query == key && key == value) {
    for (const Value part : split(projections.apply(query, 0, 3), width, 2)) parts.push_back(heads(part));
  } else {
    for (const Value x : {query, key, value}) parts.push_back(heads(projections.apply(x, static_cast<std::int64_t>(parts.size()), 1)));
  }
  Value weights = attention_weights(parts[0], parts[1], options);
  if (layer.dropout > 0) weights = dropout(scope, weights, layer.dropout);
  const Value joined = reshape(permute(matmul(weights, parts[2]), {0, 2, 1, 3}), {size_of(query, 0), size_of(query, 1), width});
  return linear(scope / "out_proj", joined, {.out_features = width, .bias = layer.bias, .initialize_bias = init::zeros()});
}

Value multi_head_attention(const Scope& scope, Value input, const MultiHeadAttention& layer, const AttentionOptions& options) {
  return multi_head_attention(scope, input, input, input, layer, options);
}

}  // namespace frit::nn
