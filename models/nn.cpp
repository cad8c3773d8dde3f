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
  return op(input, weight, bias, {layer.stride, layer.padding, layer.dilation, layer.groups, layer.output_padding});
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
  const Value weight = scope.parameter("weight", {input.dim(1)}, init::ones());
  const Value bias = scope.parameter("bias", {input.dim(1)}, init::zeros());
  return frit::group_norm(input, layer.num_groups, weight, bias, layer.eps);
}

Value layer_norm(const Scope& scope, Value input, std::int64_t normalized_rank, double eps) {
  require(normalized_rank >= 1 && normalized_rank <= input.rank(), scope.name(), ": normalized_rank ", normalized_rank,
          " does not fit an input of shape ", input.shape());
  Shape shape;
  for (std::int64_t axis = input.rank() - normalized_rank; axis < input.rank(); ++axis) shape.push_back(input.dim(axis));
  return frit::layer_norm(input, normalized_rank, scope.parameter("weight", shape, init::ones()),
                          scope.parameter("bias", shape, init::zeros()), eps);
}

Value instance_norm(const Scope& scope, Value input, double eps) {
  const Value weight = scope.parameter("weight", {input.dim(1)}, init::ones());
  const Value bias = scope.parameter("bias", {input.dim(1)}, init::zeros());
  return frit::instance_norm(input, weight, bias, eps);
}

Value batch_norm(const Scope& scope, Value input, const BatchNormOptions& options) {
  const Shape channels{input.dim(1)};
  const Value weight = scope.parameter("weight", channels, init::ones());
  const Value bias = scope.parameter("bias", channels, init::zeros());
  const Value mean = scope.buffer("running_mean", channels, init::zeros());
  const Value variance = scope.buffer("running_var", channels, init::ones());
  return frit::batch_norm(input, weight, bias, mean, variance, options);
}

Value dropout(const Scope& scope, Value input, double probability) {
  return frit::dropout(input, scope.counter("counter"), probability, stream_of(scope.name()));
}

}  // namespace frit::nn
