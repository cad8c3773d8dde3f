#include "frit/models/onnx/operators/helpers.h"

namespace frit::onnx {
namespace {

/// One number a channel, for images of `rank` axes.
Value along_channels(Value numbers, int rank) {
  return reshape(numbers, [&] {
    Shape shape = Dims::filled(rank, 1);
    shape[1] = -1;
    return shape;
  }());
}

Value zeros_like(Value x) { return expand(ops::scalar(x, 0), x.shape()); }

/// By the batch's own statistics, which the running ones follow: one step as a formula.
Values batch_norm_in_training(const Call& call, double eps, double momentum) {
  const Value x = call[0];
  Dims axes = {0};
  for (int axis = 2; axis < x.rank(); ++axis) axes.push_back(axis);
  const Value average = mean(x, axes);
  const Value centred = x - along_channels(average, x.rank());
  const Value variance = mean(square(centred), axes);
  const Value y = centred / along_channels(sqrt(variance + eps), x.rank());
  const auto running = [&](Value before, Value now) { return before * momentum + now * (1 - momentum); };
  return {y * along_channels(call[1], x.rank()) + along_channels(call[2], x.rank()), running(call[3], average), running(call[4], variance)};
}

Values batch_normalization(const Call& call) {
  const Value x = call[0];
  const double eps = call.real("epsilon", 1e-5), momentum = call.real("momentum", 0.9);
  call.require_support(call.integer("spatial", 1) != 0, "spatial = 0");
  // Variables are as in any network of frit's: followed in training, and used at inference.
  const Value average = call.buffer(3), variance = call.buffer(4);
  if (average && variance && call[1].dtype() == x.dtype()) {
    return {batch_norm(x, call[1], call[2], average, variance, {.eps = eps, .momentum = 1 - momentum})};
  }
  if (call.integer("training_mode", 0) != 0) return batch_norm_in_training(call, eps, momentum);
  const Value factor = call[1] / sqrt(call[4] + eps);
  return {(x - along_channels(call[3], x.rank())) * along_channels(factor, x.rank()) + along_channels(call[2], x.rank())};
}

/// Exporters write ones and zeros where a layer has neither scale nor bias.
Values instance_normalization(const Call& call) {
  const Value x = call[0];
  const double eps = call.real("epsilon", 1e-5);
  const Shape channels = x.rank() < 2 ? Shape() : Shape{x.dim(1)};
  const auto is = [&](std::size_t i, double number) { return call.is_always(i, number) && call.constant(i).shape() == channels; };
  return {is(1, 1) && is(2, 0) ? instance_norm(x, {}, {}, eps) : instance_norm(x, call[1], call[2], eps)};
}

/// A weight a group before opset 21, a channel since.
Values group_normalization(const Call& call) {
  const Value x = call[0];
  const std::int64_t groups = call.integer("num_groups", 1);
  const auto per_channel = [&](Value numbers) {
    if (call.opset() >= 21) return numbers;
    call.require_support(groups > 0 && numbers.rank() == 1 && x.rank() >= 2 && x.dim(1) % groups == 0, "num_groups = ", groups);
    return reshape(expand(reshape(numbers, {groups, 1}), {groups, x.dim(1) / groups}), {x.dim(1)});
  };
  return {group_norm(x, groups, per_channel(call[1]), per_channel(call[2]), call.real("epsilon", 1e-5))};
}

Values layer_normalization(const Call& call) {
  const Value x = call[0];
  const int axis = normalize_axis(call.integer("axis", -1), x.rank(), "axis");
  const double eps = call.real("epsilon", 1e-5);
  Dims axes;
  Shape shape;
  for (int i = axis; i < x.rank(); ++i) {
    axes.push_back(i);
    shape.push_back(x.dim(i));
  }
  const Value weight = expand(call[1], shape);
  const Value bias = call.has_input(2) ? expand(call[2], shape) : zeros_like(weight);
  const Value y = layer_norm(x, axes.rank(), weight, bias, eps);
  if (!call.wants_output(1) && !call.wants_output(2)) return {y};
  const Value average = mean(x, axes, /*keep_dims=*/true);
  return {y, average, 1 / sqrt(mean(square(x - average), axes, /*keep_dims=*/true) + eps)};
}

/// By the root of the mean square over the axes from `axis` on.
Values rms_normalization(const Call& call) {
  const Value x = call[0];
  Dims axes;
  for (int i = normalize_axis(call.integer("axis", -1), x.rank(), "axis"); i < x.rank(); ++i) axes.push_back(i);
  return {x / sqrt(mean(square(x), axes, /*keep_dims=*/true) + call.real("epsilon", 1e-5)) * call[1]};
}

Values mean_variance_normalization(const Call& call) {
  const Value x = call[0];
  const Dims axes = axes_of(call.has("axes") ? call.integers("axes") : Sizes{0, 2, 3}, x.rank());
  const Value centred = x - mean(x, axes, /*keep_dims=*/true);
  return {centred / (sqrt(mean(square(centred), axes, /*keep_dims=*/true)) + 1e-9)};
}

/// x / (bias + alpha / size * the sum of squares of channels nearby) ^ beta.
Values local_response_normalization(const Call& call) {
  const Value x = call[0];
  constexpr std::int64_t widest = 1024;
  const std::int64_t size = call.integer("size", 1);
  call.require_support(x.rank() >= 2 && size >= 1 && size <= widest, "size = ", size);
  Dims before = Dims::filled(x.rank(), 0), after = before;
  before[1] = (size - 1) / 2;
  after[1] = size - 1 - before[1];
  const Value squares = padded(square(x), before, after, 0);
  Value sums;
  for (std::int64_t i = 0; i < size; ++i) {
    const Value shifted = slice(squares, 1, i, i + x.dim(1));
    sums = sums ? sums + shifted : shifted;
  }
  const double alpha = call.real("alpha", 1e-4) / static_cast<double>(size);
  return {x / power(sums * alpha + call.real("bias", 1), call.real("beta", 0.75))};
}

Values lp_normalization(const Call& call) {
  const Value x = call[0];
  const std::int64_t p = call.integer("p", 2);
  call.require_support(p == 1 || p == 2, "p = ", p);
  const Dims axes = {normalize_axis(call.integer("axis", -1), x.rank(), "axis")};
  const Value norm = p == 1 ? sum(abs(x), axes, true) : l2_norm(x, axes, true);
  return {x / where(equal(norm, 0.0), 1.0, norm)};  // zeros stay zeros
}

}  // namespace

void add_norms(OperatorTable& table) {
  table["BatchNormalization"] = batch_normalization;
  table["InstanceNormalization"] = instance_normalization;
  table["GroupNormalization"] = group_normalization;
  table["LayerNormalization"] = layer_normalization;
  table["RMSNormalization"] = rms_normalization;
  table["MeanVarianceNormalization"] = mean_variance_normalization;
  table["LRN"] = local_response_normalization;
  table["LpNormalization"] = lp_normalization;
}

}  // namespace frit::onnx
