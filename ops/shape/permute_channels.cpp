#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

/// Of channels in groups, groups of groups, ...
struct PermuteChannelsAttributes {
  Dims sizes;  ///< that the channel axis is split into
  Dims axes;   ///< axis i of the output's is axis axes[i] of these
  void fields(FieldVisitor& v) {
    v.field("sizes", sizes);
    v.field("axes", axes);
  }

  Dims output_sizes() const {
    Dims result;
    for (const std::int64_t axis : axes) result.push_back(sizes[static_cast<int>(axis)]);
    return result;
  }
  /// Of a tensor with the channel axis split.
  Dims all_axes(int rank) const {
    Dims result{0};
    for (const std::int64_t axis : axes) result.push_back(axis + 1);
    for (int axis = sizes.rank() + 1; axis < rank; ++axis) result.push_back(axis);
    return result;
  }
};

Shape with_channels_split(const Shape& shape, const Dims& sizes) {
  Shape result{shape[0]};
  for (const std::int64_t size : sizes) result.push_back(size);
  for (int axis = 2; axis < shape.rank(); ++axis) result.push_back(shape[axis]);
  return result;
}

std::vector<TensorType> infer_permute_channels(const InferContext& call) {
  const auto& [sizes, axes] = call.as<PermuteChannelsAttributes>();
  const Shape& shape = call.shape(0);
  call.require(shape.rank() >= 2, "input must be (N, C, ...), got ", shape);
  call.require(sizes.rank() > 0 && shape.rank() - 1 + sizes.rank() <= Dims::max_rank, "channels of ", shape, " cannot be split into ",
               sizes.rank(), " axes");
  std::int64_t channels = 1;
  bool positive = true;
  for (const std::int64_t size : sizes) positive = positive && size > 0 && !__builtin_mul_overflow(channels, size, &channels);
  call.require(positive && channels == shape[1], "sizes ", sizes, " do not make ", shape[1], " channels (input ", shape, ")");
  unsigned named = 0;
  for (const std::int64_t axis : axes) named |= axis >= 0 && axis < sizes.rank() ? 1u << axis : 0;
  call.require(axes.rank() == sizes.rank() && named == (1u << sizes.rank()) - 1, "expected axes 0 to ", sizes.rank() - 1,
               " in some order, got ", axes);
  return {call.inputs[0]};
}

Values permute_channels_gradient(const GradientContext& call) {
  const auto& attributes = call.as<PermuteChannelsAttributes>();
  PermuteChannelsAttributes inverse{attributes.output_sizes(), attributes.axes};
  for (int i = 0; i < attributes.axes.rank(); ++i) inverse.axes[static_cast<int>(attributes.axes[i])] = i;
  return emit("permute_channels", {call.gradients[0]}, inverse);
}

Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& given) {
  const auto& attributes = given.as<PermuteChannelsAttributes>();
  const Value split = reshape(inputs[0], with_channels_split(inputs[0].shape(), attributes.sizes));
  return {reshape(permute(split, attributes.all_axes(split.rank())), inputs[0].shape())};
}

/// Of images, which stay channels-last.
std::optional<Attributes> fuse(std::span<const Attributes> matched, std::span<const TensorType> inputs) {
  const Shape& shape = inputs[0].shape;
  const Dims& axes = matched[1].as<PermuteAttributes>().axes;
  Shape split = matched[0].as<ReshapeAttributes>().shape;
  const int count = split.rank() - shape.rank() + 1;
  if (shape.rank() < 4 || count < 2 || axes.rank() != split.rank()) return std::nullopt;
  PermuteChannelsAttributes result;
  std::int64_t known = 1;
  for (int axis = 1; axis <= count; ++axis) known *= split[axis] < 0 ? 1 : split[axis];
  for (int axis = 1; axis <= count; ++axis) {
    result.sizes.push_back(split[axis] < 0 && known > 0 ? shape[1] / known : split[axis]);
    const std::int64_t from = axes[axis] < 0 ? axes[axis] + axes.rank() : axes[axis];
    if (from < 1 || from > count) return std::nullopt;
    result.axes.push_back(from - 1);
  }
  return result;
}

/// A view in either layout, with the channel axis split.
Tensor split_channels(const Tensor& image, const Dims& sizes) {
  if (image.is_contiguous()) return image.reshape(with_channels_split(image.shape(), sizes));
  const int rank = image.rank();
  Dims order{0}, back{0};
  Shape split{image.dim(0)};
  for (int axis = 2; axis < rank; ++axis) order.push_back(axis), split.push_back(image.dim(axis));
  order.push_back(1);
  for (const std::int64_t size : sizes) back.push_back(split.rank()), split.push_back(size);
  for (int axis = 1; axis < rank - 1; ++axis) back.push_back(axis);
  return image.permute(order).reshape(split).permute(back);
}

void run_permute_channels(const KernelContext& call) {
  const auto& attributes = call.as<PermuteChannelsAttributes>();
  const Tensor source = split_channels(call.inputs[0], attributes.sizes);
  copy(split_channels(call.outputs[0], attributes.output_sizes()), source.permute(attributes.all_axes(source.rank())));
}

std::vector<Sample> permute_channels_samples() {
  const auto sample = [](const Shape& shape, const Dims& sizes, const Dims& axes) {
    return Sample{.inputs = {shape}, .attributes = PermuteChannelsAttributes{sizes, axes}};
  };
  return {sample({2, 6, 3, 2}, {2, 3}, {1, 0}),     sample({2, 58, 5, 4}, {2, 29}, {1, 0}),      sample({1, 116, 2, 3}, {29, 4}, {1, 0}),
          sample({1, 21, 4, 3, 2}, {3, 7}, {1, 0}), sample({2, 24, 1, 3}, {2, 3, 4}, {2, 0, 1}), sample({1, 120, 3, 1}, {3, 40}, {1, 0}),
          sample({5, 12}, {3, 4}, {1, 0}),          sample({0, 6, 2, 2}, {2, 3}, {1, 0})};
}

}  // namespace
}  // namespace frit::ops

FRIT_OPERATORS(permute_channels) {
  registry.add<frit::ops::PermuteChannelsAttributes>({
      .name = "permute_channels",
      .summary = "axis 1 split into sizes, whose order becomes axes, and joined: a channel shuffle",
      .inputs = {"input"},
      .infer = infer_permute_channels,
      .gradient = permute_channels_gradient,
      .decompose = decompose,
      .fuse = fuse,
      .cpu = {.run = run_permute_channels, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .cuda = {.run = run_permute_channels, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .samples = permute_channels_samples,
  });
}
