#include "frit/models/nn.h"

#include "frit/core/random.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/indexing/indexing.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/random/dropout.h"

namespace frit::nn {
namespace {

using Operator = Value (*)(Value, Value, Value, const ConvolutionOptions&);

Initializer given_or(const Initializer& given, Initializer missing) { return given ? given : std::move(missing); }

/// One number for each image axis.
Dims for_axes(const Scope& scope, const char* name, const Dims& given, int axes, std::int64_t missing) {
  if (given.rank() <= 1) return Dims::filled(axes, given.empty() ? missing : given[0]);
  require(given.rank() == axes, scope.name(), ": ", name, " has ", given.rank(), " numbers, expected 1 or ", axes);
  return given;
}

/// Pads the input by what the convolution itself cannot: more after than before, or other than zeros. `padding` becomes the rest.
Value padded(const Scope& scope, Value input, const Convolution& layer, Dims& padding) {
  const bool zeros = layer.padding_mode == PaddingMode::zeros;
  if (zeros && !layer.same_padding) return input;
  const int axes = input.rank() - 2;
  const Dims kernel = for_axes(scope, "kernel_size", layer.kernel_size, axes, 1);
  const Dims dilation = for_axes(scope, "dilation", layer.dilation, axes, 1);
  const bool moves_by_one = for_axes(scope, "stride", layer.stride, axes, 1) == Dims::filled(axes, 1);
  require(!layer.same_padding || (moves_by_one && layer.padding.empty()), scope.name(),
          ": same_padding needs stride 1 and no padding, got stride ", layer.stride, " and padding ",
          layer.padding.empty() ? Dims{0} : layer.padding);
  padding = for_axes(scope, "padding", layer.padding, axes, 0);
  Dims before = Dims::filled(input.rank(), 0), after = before;
  for (int axis = 0; axis < axes; ++axis) {
    std::int64_t first = padding[axis], last = padding[axis];
    if (layer.same_padding) {
      const std::int64_t total = std::min<std::int64_t>(dilation[axis], INT32_MAX) * (kernel[axis] - 1);
      first = total / 2;
      last = total - first;
    }
    padding[axis] = zeros ? first : 0;
    before[axis + 2] = first - padding[axis];
    after[axis + 2] = last - padding[axis];
  }
  return before == Dims::filled(input.rank(), 0) && after == before ? input : pad(input, before, after, layer.padding_mode);
}

/// `weight_rows` and `weight_columns` are the first two sizes of the weight. PyTorch counts the fan-in from the second, transposed or not.
Value convolution(Operator op, const Scope& scope, Value input, const Convolution& layer, std::int64_t weight_rows,
                  std::int64_t weight_columns) {
  Shape shape{weight_rows, weight_columns}, of_each_row{weight_columns};
  for (int axis = 2; axis < input.rank(); ++axis) {
    require(layer.kernel_size.rank() == 1 || layer.kernel_size.rank() == input.rank() - 2, scope.name(), ": kernel size ",
            layer.kernel_size, " does not fit an input of shape ", input.shape());
    shape.push_back(layer.kernel_size[layer.kernel_size.rank() == 1 ? 0 : axis - 2]);
    of_each_row.push_back(shape.back());
  }
  const std::int64_t fan_in = element_count(of_each_row);
  const Initializer uniform = init::fan_in_uniform(fan_in);
  const Value weight = scope.parameter("weight", shape, given_or(layer.initialize_weight, uniform));
  const Value bias = layer.bias ? scope.parameter("bias", layer.out_channels, given_or(layer.initialize_bias, uniform)) : Value();
  Dims padding = layer.padding;
  const Value image = padded(scope, input, layer, padding);
  return op(image, weight, bias, {layer.stride, padding, layer.output_padding, layer.dilation, layer.groups});
}

Value forward(Operator op, const Scope& scope, Value input, const Convolution& layer) {
  require(input.rank() >= 3 && layer.groups > 0 && input.dim(1) % layer.groups == 0, scope.name(), ": groups ", layer.groups,
          " do not divide the channels of an input of shape ", input.shape());
  return convolution(op, scope, input, layer, layer.out_channels, input.dim(1) / layer.groups);
}

Value transposed(Operator op, const Scope& scope, Value input, const Convolution& layer) {
  require(input.rank() >= 3 && layer.groups > 0 && layer.out_channels % layer.groups == 0, scope.name(), ": groups ", layer.groups,
          " do not divide ", layer.out_channels, " output channels");
  require(!layer.same_padding && layer.padding_mode == PaddingMode::zeros, scope.name(),
          ": a transposed convolution has no same_padding and no padding_mode but zeros");
  return convolution(op, scope, input, layer, input.dim(1), layer.out_channels / layer.groups);
}

/// A norm's parameters, or none.
struct Affine {
  template <class Norm>
  Affine(const Scope& scope, const Shape& shape, const Norm& layer) {
    if (!layer.affine) return;
    weight = scope.parameter("weight", shape, given_or(layer.initialize_weight, init::ones()));
    bias = scope.parameter("bias", shape, given_or(layer.initialize_bias, init::zeros()));
  }
  Value weight, bias;
};

}  // namespace

Value conv1d(const Scope& scope, Value input, const Convolution& layer) { return forward(frit::conv1d, scope, input, layer); }
Value conv2d(const Scope& scope, Value input, const Convolution& layer) { return forward(frit::conv2d, scope, input, layer); }
Value conv3d(const Scope& scope, Value input, const Convolution& layer) { return forward(frit::conv3d, scope, input, layer); }
Value conv_transpose1d(const Scope& scope, Value input, const Convolution& layer) {
  return transposed(frit::conv_transpose1d, scope, input, layer);
}
Value conv_transpose2d(const Scope& scope, Value input, const Convolution& layer) {
  return transposed(frit::conv_transpose2d, scope, input, layer);
}
Value conv_transpose3d(const Scope& scope, Value input, const Convolution& layer) {
  return transposed(frit::conv_transpose3d, scope, input, layer);
}

Value linear(const Scope& scope, Value input, const Linear& layer) {
  const std::int64_t in_features = input.dim(-1);
  const Initializer initialize = init::fan_in_uniform(in_features);
  const Value weight = scope.parameter("weight", {layer.out_features, in_features}, given_or(layer.initialize_weight, initialize));
  const Value bias = layer.bias ? scope.parameter("bias", {layer.out_features}, given_or(layer.initialize_bias, initialize)) : Value();
  return frit::linear(input, weight, bias);
}

Value embedding(const Scope& scope, Value indices, const Embedding& layer) {
  return frit::embedding(indices, scope.parameter("weight", {layer.num_embeddings, layer.embedding_dim}, init::normal()));
}

Value prelu(const Scope& scope, Value input, std::int64_t num_parameters, double initial) {
  return frit::prelu(input, scope.parameter("weight", {num_parameters}, init::constant(initial)));
}

Value group_norm(const Scope& scope, Value input, const GroupNorm& layer) {
  const Affine affine(scope, input.dim(1), layer);
  return frit::group_norm(input, layer.num_groups, affine.weight, affine.bias, layer.eps);
}

Value layer_norm(const Scope& scope, Value input, const LayerNorm& layer) {
  const std::int64_t rank = layer.normalized_rank;
  require(rank >= 1 && rank <= input.rank(), scope.name(), ": normalized_rank ", rank, " does not fit an input of shape ", input.shape());
  const Affine affine(scope, Dims(std::span(input.shape().end() - rank, input.shape().end())), layer);
  return frit::layer_norm(input, rank, affine.weight, affine.bias, layer.eps);
}

Value instance_norm(const Scope& scope, Value input, const InstanceNorm& layer) {
  const Affine affine(scope, input.dim(1), layer);
  return frit::instance_norm(input, affine.weight, affine.bias, layer.eps);
}

Value batch_norm(const Scope& scope, Value input, const BatchNorm& layer) {
  const Shape channels{input.dim(1)};
  Affine affine(scope, channels, layer);
  if (!layer.affine) {  // the operator wants both
    affine.weight = input.emitter().constant(Tensor::full(channels, 1, input.dtype()));
    affine.bias = input.emitter().constant(Tensor::zeros(channels, input.dtype()));
  }
  const Value mean = scope.buffer("running_mean", channels, init::zeros());
  const Value variance = scope.buffer("running_var", channels, init::ones());
  return frit::batch_norm(input, affine.weight, affine.bias, mean, variance, {.eps = layer.eps, .momentum = layer.momentum});
}

Value dropout(const Scope& scope, Value input, double probability) {
  return frit::dropout(input, scope.counter("counter"), probability, stream_of(scope.name()));
}

Value drop_path(const Scope& scope, Value input, double probability) {
  if (probability == 0) return input;
  Value sample = input;
  for (int axis = 1; axis < input.rank(); ++axis) sample = slice(sample, axis, 0, 1);
  const Value one = cast(logical_or(equal(sample, sample), not_equal(sample, sample)), input.dtype());  // for each of any number of samples
  return input * dropout(scope, one, probability);
}

}  // namespace frit::nn
