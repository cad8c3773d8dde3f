#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {

std::int64_t product(const Dims& dims) {
  std::int64_t result = 1;
  for (const std::int64_t size : dims) result *= size;
  return result;
}

namespace {

void check_blocks(const InferContext& call, const Shape& shape, const BlockAttributes& a) {
  const int axes = shape.rank() - 2;
  call.require(axes >= 1 && axes <= 3, "expected an input (N, C, ...) of rank 3 to 5, got ", shape);
  call.require(a.block.rank() == axes && a.offset.rank() == axes && a.size.rank() == axes, "expected ", axes,
               " sizes of a block, offsets and sizes, got ", a.block, ", ", a.offset, " and ", a.size);
  for (int axis = 0; axis < axes; ++axis) {
    call.require(a.block[axis] > 0, "block must be positive, got ", a.block);
    call.require(a.offset[axis] >= 0 && a.size[axis] >= 0, "offset and size must not be negative, got ", a.offset, " and ", a.size);
  }
}

void check_fit(const InferContext& call, const Dims& positions, const Dims& image, const BlockAttributes& a) {
  for (int axis = 0; axis < positions.rank(); ++axis) {
    std::int64_t covered = 0;
    const bool fits = !__builtin_mul_overflow(positions[axis], a.block[axis], &covered) && a.offset[axis] <= covered &&
                      image[axis] <= covered - a.offset[axis];
    call.require(fits, positions[axis], " blocks of ", a.block[axis], " do not cover ", image[axis], " elements from ", a.offset[axis],
                 " on");
  }
}

TensorType space_to_depth_type(const InferContext& call) {
  const auto& a = call.as<BlockAttributes>();
  TensorType result = call.inputs[0];
  check_blocks(call, result.shape, a);
  check_fit(call, a.size, image_of(result.shape), a);
  for (const std::int64_t size : a.block) {
    call.require(!__builtin_mul_overflow(result.shape[1], size, &result.shape[1]), "there would be 2^63 channels or more");
  }
  std::copy(a.size.begin(), a.size.end(), result.shape.begin() + 2);
  return result;
}

/// Calls body(elements of the image, their places in the blocks) for each place of a block that has elements: two views of one shape.
template <class Body>
void for_each_place(const Tensor& image, const Tensor& blocks, const BlockAttributes& a, const Body& body) {
  if (image.elements() == 0) return;
  const std::int64_t channels = image.dim(1);
  Dims places = a.block;  // as many as the image has elements for: a block may be far larger than the image
  for (int axis = 0; axis < places.rank(); ++axis) places[axis] = std::min(places[axis], image.dim(axis + 2));
  for_each_index(places, [&](const Dims& first, std::int64_t) {
    Tensor elements = image, positions = blocks;
    std::int64_t place = 0;
    for (int axis = 0; axis < first.rank(); ++axis) {
      const std::int64_t block = a.block[axis], covered = first[axis] + a.offset[axis];
      place = place * block + covered % block;
      elements = elements.slice(axis + 2, first[axis], image.dim(axis + 2), block);
      positions = positions.slice(axis + 2, covered / block, covered / block + elements.dim(axis + 2));
    }
    body(elements, a.channels_first ? positions.slice(1, place, positions.dim(1), product(a.block))
                                    : positions.slice(1, place * channels, (place + 1) * channels));
  });
}

void run_depth_to_space(const KernelContext& call) {
  for_each_place(call.outputs[0], call.inputs[0], call.as<BlockAttributes>(),
                 [](const Tensor& elements, const Tensor& places) { copy(elements, places); });
}

void run_space_to_depth(const KernelContext& call) {
  call.outputs[0].fill(0);
  for_each_place(call.inputs[0], call.outputs[0], call.as<BlockAttributes>(),
                 [](const Tensor& elements, const Tensor& places) { copy(places, elements); });
}

BlockAttributes with_size_of(BlockAttributes attributes, const Value& value) {
  attributes.size = image_of(value.shape());
  return attributes;
}

Values depth_to_space_gradient(const GradientContext& c) {
  return {space_to_depth(c.gradients[0], with_size_of(c.as<BlockAttributes>(), c.inputs[0]))};
}

Values space_to_depth_gradient(const GradientContext& c) {
  return {depth_to_space(c.gradients[0], with_size_of(c.as<BlockAttributes>(), c.inputs[0]))};
}

/// Axes (N, K, positions and block in turn) of a tensor (N, block..., K, positions...), or (N, K, block..., positions...).
Dims interleaved_axes(int axes, bool channels_first) {
  Dims order{0, channels_first ? 1 : axes + 1};
  for (int axis = 0; axis < axes; ++axis) {
    order.push_back(axes + 2 + axis);
    order.push_back((channels_first ? 2 : 1) + axis);
  }
  return order;
}

/// (N, block..., K, positions...) or (N, K, block..., positions...).
Shape split_shape(std::int64_t batch, const BlockAttributes& a, std::int64_t channels, std::span<const std::int64_t> positions) {
  Shape result{batch};
  for (const std::int64_t size : a.block) result.push_back(size);
  result.insert(a.channels_first ? 1 : result.rank(), channels);
  for (const std::int64_t size : positions) result.push_back(size);
  return result;
}

Values decompose_depth_to_space(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<BlockAttributes>();
  const Shape& shape = inputs[0].shape();
  const Shape split = split_shape(shape[0], a, shape[1] / product(a.block), image_of(shape));
  Shape joined{shape[0], shape[1] / product(a.block)};
  for (int axis = 0; axis < a.block.rank(); ++axis) joined.push_back(shape[axis + 2] * a.block[axis]);
  Value result = reshape(permute(reshape(inputs[0], split), interleaved_axes(a.block.rank(), a.channels_first)), joined);
  for (int axis = 0; axis < a.block.rank(); ++axis) {
    if (a.size[axis] != joined[axis + 2]) result = slice(result, axis + 2, a.offset[axis], a.offset[axis] + a.size[axis]);
  }
  return {result};
}

Values decompose_space_to_depth(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<BlockAttributes>();
  const Shape& shape = inputs[0].shape();
  const int axes = a.block.rank();
  Dims before{0, 0}, after{0, 0};
  Shape split{shape[0], shape[1]}, joined{shape[0], shape[1] * product(a.block)};
  for (int axis = 0; axis < axes; ++axis) {
    before.push_back(a.offset[axis]);
    after.push_back(a.size[axis] * a.block[axis] - a.offset[axis] - shape[axis + 2]);
    split.push_back(a.size[axis]);
    split.push_back(a.block[axis]);
    joined.push_back(a.size[axis]);
  }
  const Dims order = interleaved_axes(axes, a.channels_first), none = Dims::filled(before.rank(), 0);
  Dims inverse = order;
  for (int i = 0; i < order.rank(); ++i) inverse[static_cast<int>(order[i])] = i;
  const Value whole = before == none && after == none ? inputs[0] : pad(inputs[0], before, after);
  return {reshape(permute(reshape(whole, split), inverse), joined)};
}

/// Of images, where the blocks are all of the image.
std::optional<Attributes> fuse_depth_to_space(std::span<const Attributes> matched, std::span<const TensorType> inputs) {
  const Shape &shape = inputs[0].shape, &split = matched[0].as<ReshapeAttributes>().shape;
  const int axes = shape.rank() - 2;
  if (axes < 2 || axes > 3 || split.rank() != 2 * axes + 2 || shape.rank() != matched[2].as<ReshapeAttributes>().shape.rank()) {
    return std::nullopt;
  }
  BlockAttributes result{.channels_first = matched[1].as<PermuteAttributes>().axes[1] == 1};
  for (int axis = 0; axis < axes; ++axis) {
    const std::int64_t size = split[axis + (result.channels_first ? 2 : 1)];
    if (size < 1 || shape[1] % size != 0) return std::nullopt;
    result.block.push_back(size);
    result.offset.push_back(0);
    result.size.push_back(shape[axis + 2] * size);
  }
  if (shape[1] % product(result.block) != 0) return std::nullopt;
  return result;
}

std::optional<Attributes> fuse_space_to_depth(std::span<const Attributes> matched, std::span<const TensorType> inputs) {
  const Shape &shape = inputs[0].shape, &split = matched[0].as<ReshapeAttributes>().shape;
  const Dims& order = matched[1].as<PermuteAttributes>().axes;
  const int axes = shape.rank() - 2;
  if (axes < 2 || axes > 3 || split.rank() != 2 * axes + 2 || order.rank() != split.rank()) return std::nullopt;
  BlockAttributes result{.channels_first = order[1] == 1};
  for (int axis = 0; axis < axes; ++axis) {
    const std::int64_t size = split[2 * axis + 3];
    if (size < 1 || shape[axis + 2] % size != 0) return std::nullopt;
    result.block.push_back(size);
    result.offset.push_back(0);
    result.size.push_back(shape[axis + 2] / size);
  }
  return result;
}

/// The order that has the places of a block before the channels, as kernels prefer it: what gives the input may give it so.
std::optional<ChannelOrder> places_first(const Attributes& attributes) {
  BlockAttributes a = attributes.as<BlockAttributes>();
  if (!a.channels_first) return std::nullopt;
  a.channels_first = false;
  const std::int64_t places = product(a.block);
  return ChannelOrder{a, [places](Value channels) {
                        Shape split = channels.shape();
                        split[0] /= places;
                        split.insert(1, places);
                        return reshape(transpose(reshape(channels, split), 0, 1), channels.shape());
                      }};
}

std::vector<Sample> depth_to_space_samples() {
  return {{{Shape{2, 8, 3, 2}}, BlockAttributes{{2, 2}, {0, 0}, {6, 4}}},
          {{Shape{1, 16, 2, 3, 2}}, BlockAttributes{{2, 2, 2}, {1, 1, 1}, {3, 5, 3}}},
          {{Shape{2, 6, 3, 4}}, BlockAttributes{{3, 1}, {2, 3}, {5, 1}}},
          {{Shape{1, 3, 5}}, BlockAttributes{{3}, {4}, {7}}},
          {{Shape{1, 32, 2, 2, 3}}, BlockAttributes{{1, 2, 4}, {0, 0, 3}, {2, 4, 9}}},
          {{Shape{2, 16, 3, 5}}, BlockAttributes{{2, 2}, {0, 0}, {6, 10}, true}},
          {{Shape{2, 54, 3, 2}}, BlockAttributes{{3, 2}, {1, 1}, {7, 3}, true}},
          {{Shape{1, 24, 3, 2, 2}}, BlockAttributes{{1, 2, 3}, {0, 0, 0}, {3, 4, 6}, true}},
          {{Shape{0, 4, 2, 2}}, BlockAttributes{{2, 2}, {0, 0}, {4, 4}}}};
}

/// The way back.
std::vector<Sample> space_to_depth_samples() {
  std::vector<Sample> result = depth_to_space_samples();
  for (Sample& sample : result) {
    Shape& shape = sample.inputs[0].shape;
    BlockAttributes a = sample.attributes.as<BlockAttributes>();
    shape[1] /= product(a.block);
    for (int axis = 0; axis < a.size.rank(); ++axis) std::swap(shape[axis + 2], a.size[axis]);
    sample.attributes = a;
  }
  return result;
}

}  // namespace

TensorType depth_to_space_type(const InferContext& call, const TensorType& input, const BlockAttributes& attributes) {
  check_blocks(call, input.shape, attributes);
  check_fit(call, image_of(input.shape), attributes.size, attributes);
  TensorType result = input;
  for (const std::int64_t size : attributes.block) {
    call.require(result.shape[1] % size == 0, input.shape[1], " channels do not hold blocks of ", attributes.block);
    result.shape[1] /= size;
  }
  std::copy(attributes.size.begin(), attributes.size.end(), result.shape.begin() + 2);
  return result;
}

Value depth_to_space(Value input, const BlockAttributes& attributes) { return emit_one("depth_to_space", {input}, attributes); }

Value space_to_depth(Value input, const BlockAttributes& attributes) { return emit_one("space_to_depth", {input}, attributes); }

}  // namespace frit::ops

FRIT_OPERATORS(depth_to_space) {
  registry.add<BlockAttributes>({
      .name = "depth_to_space",
      .summary = "output[n, k, q block + r - offset] = input[n, r K + k, q], or k block + r: the channels of a pixel spread over a block",
      .inputs = {"input"},
      .infer = [](const InferContext& call) { return std::vector{depth_to_space_type(call, call.inputs[0], call.as<BlockAttributes>())}; },
      .gradient = depth_to_space_gradient,
      .decompose = decompose_depth_to_space,
      .fuse = fuse_depth_to_space,
      .channel_order = places_first,
      .staged_output = true,
      .cpu = {.run = run_depth_to_space, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .samples = depth_to_space_samples,
  });
  registry.add<BlockAttributes>({
      .name = "space_to_depth",
      .summary = "output[n, r K + k, q] = input[n, k, q block + r - offset], zero beyond the input's edge",
      .inputs = {"input"},
      .infer = [](const InferContext& call) { return std::vector{space_to_depth_type(call)}; },
      .gradient = space_to_depth_gradient,
      .decompose = decompose_space_to_depth,
      .fuse = fuse_space_to_depth,
      .staged_inputs = {{.input = 0}},
      .cpu = {.run = run_space_to_depth, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .samples = space_to_depth_samples,
  });
}
