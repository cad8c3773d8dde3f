#include "frit/models/nn.h"

#include "frit/core/random.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/random/dropout.h"

namespace frit::nn {
namespace {

using Operator = Value (*)(Value, Value, Value, const ConvolutionOptions&);

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
  const Value weight = scope.parameter("weight", shape, init::fan_in_uniform(fan_in));
  const Value bias = layer.bias ? scope.parameter("bias", {layer.out_channels}, init::fan_in_uniform(fan_in)) : Value();
  return op(input, weight, bias, {layer.stride, layer.padding, layer.output_padding, layer.dilation, layer.groups});
}

Value forward(Operator op, const Scope& scope, Value input, const Convolution& layer) {
  require(input.rank() >= 3 && layer.groups > 0 && input.dim(1) % layer.groups == 0, scope.name(), ": groups ", layer.groups,
          " do not divide the channels of an input of shape ", input.shape());
  return convolution(op, scope, input, layer, layer.out_channels, input.dim(1) / layer.groups);
}

Value transposed(Operator op, const Scope& scope, Value input, const Convolution& layer) {
  require(input.rank() >= 3 && layer.groups > 0 && layer.out_channels % layer.groups == 0, scope.name(), ": groups ", layer.groups,
          " do not divide ", layer.out_channels, " output channels");
  return convolution(op, scope, input, layer, input.dim(1), layer.out_channels / layer.groups);
}

/// A norm's parameters, or none.
struct Affine {
  Affine(const Scope& scope, const Shape& shape, bool wanted) {
    if (!wanted) return;
    weight = scope.parameter("weight", shape, init::ones());
    bias = scope.parameter("bias", shape, init::zeros());
  }
  Value weight, bias;
};

}  // namespace

Value conv2d(const Scope& scope, Value input, const Convolution& layer) { return forward(frit::conv2d, scope, input, layer); }
Value conv3d(const Scope& scope, Value input, const Convolution& layer) { return forward(frit::conv3d, scope, input, layer); }
Value conv_transpose2d(const Scope& scope, Value input, const Convolution& layer) {
  return transposed(frit::conv_transpose2d, scope, input, layer);
}
Value conv_transpose3d(const Scope& scope, Value input, const Convolution& layer) {
  return transposed(frit::conv_transpose3d, scope, input, layer);
}

Value linear(const Scope& scope, Value input, const Linear& layer) {
  const std::int64_t in_features = input.dim(-1);
  const Value weight = scope.parameter("weight", {layer.out_features, in_features}, init::fan_in_uniform(in_features));
  const Value bias = layer.bias ? scope.parameter("bias", {layer.out_features}, init::fan_in_uniform(in_features)) : Value();
  return frit::linear(input, weight, bias);
}

Value group_norm(const Scope& scope, Value input, const GroupNorm& layer) {
  const Affine affine(scope, {input.dim(1)}, layer.affine);
  return frit::group_norm(input, layer.num_groups, affine.weight, affine.bias, layer.eps);
}

Value layer_norm(const Scope& scope, Value input, const LayerNorm& layer) {
  const std::int64_t rank = layer.normalized_rank;
  require(rank >= 1 && rank <= input.rank(), scope.name(), ": normalized_rank ", rank, " does not fit an input of shape ", input.shape());
  const Affine affine(scope, Dims(std::span(input.shape().end() - rank, input.shape().end())), layer.affine);
  return frit::layer_norm(input, rank, affine.weight, affine.bias, layer.eps);
}

Value instance_norm(const Scope& scope, Value input, const InstanceNorm& layer) {
  const Affine affine(scope, {input.dim(1)}, layer.affine);
  return frit::instance_norm(input, affine.weight, affine.bias, layer.eps);
}

Value batch_norm(const Scope& scope, Value input, const BatchNorm& layer) {
  const Shape channels{input.dim(1)};
  Affine affine(scope, channels, layer.affine);
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

}  // namespace frit::nn
