#include "frit/core/strided_loop.h"
#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

using Im2col = Im2colAttributes;
using Im2colBackward = Im2colBackwardAttributes;

/// Sizes up to this keep sums and products of two within 64 bits.
constexpr std::int64_t most = std::int64_t{1} << 30;

void check(const InferContext& call, const Shape& shape, std::int64_t in_channels, const Im2col& a) {
  const int axes = shape.rank() - 2;
  call.require(axes >= 1 && axes <= 3, "expected an input (N, C, ...) of rank 3 to 5, got ", shape);
  call.require(a.taps.rank() == axes && a.shift.rank() == axes && a.output_size.rank() == axes, "expected ", axes,
               " taps, shifts and output sizes, got ", a.taps, ", ", a.shift, " and ", a.output_size);
  const auto within = [](const Dims& dims, std::int64_t least) {
    return std::all_of(dims.begin(), dims.end(), [&](std::int64_t value) { return value >= least && value <= most; });
  };
  call.require(within(a.taps, 1) && within(a.shift, 0) && within(a.output_size, 0),
               "taps must be positive, shift and output_size not negative, got ", a.taps, ", ", a.shift, " and ", a.output_size);
  call.require(a.channels >= in_channels + (a.ones ? 1 : 0) && a.channels <= most, "channels must be at least the input's ", in_channels,
               a.ones ? " and one" : "", ", got ", a.channels);
  call.require(a.kept == 0 || a.kept > in_channels, "kept must be more than the input's ", in_channels, ", or 0, got ", a.kept);
}

Shape columns_shape(std::int64_t samples, const Im2col& a) {
  Shape shape{samples, a.channels};
  for (const std::int64_t count : a.taps) {
    require(!__builtin_mul_overflow(shape[1], count, &shape[1]), "im2col: there would be 2^63 channels or more");
  }
  if (a.kept > 0) shape[1] = std::min(shape[1], a.kept);
  for (const std::int64_t size : a.output_size) shape.push_back(size);
  return shape;
}

std::vector<TensorType> infer(const InferContext& call) {
  const auto& a = call.as<Im2col>();
  const Shape& shape = call.shape(0);
  check(call, shape, shape.rank() < 2 ? 0 : shape[1], a);
  return {{stored_dtype(call, a.dtype), columns_shape(shape[0], a)}};
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  const auto& a = call.as<Im2colBackward>();
  const Shape& shape = call.shape(0);
  check(call, shape, a.in_channels, a.im2col);
  call.require(shape == columns_shape(shape[0], a.im2col), "gradient must be ", columns_shape(shape[0], a.im2col), ", got ", shape);
  call.require(a.image.rank() == a.im2col.taps.rank() && a.in_channels >= 0, "expected ", a.im2col.taps.rank(), " sizes of the image, got ",
               a.image);
  Shape result{shape[0], a.in_channels};
  for (const std::int64_t size : a.image) {
    call.require(size >= 0 && size <= most, "image must not be negative, got ", a.image);
    result.push_back(size);
  }
  return {{call.inputs[0].dtype, result}};
}

Values gradient(const GradientContext& c) {
  const Shape& shape = c.inputs[0].shape();
  Im2col attributes = c.as<Im2col>();
  attributes.dtype.reset();
  return {cast(emit_one("im2col_backward", {c.gradients[0]}, Im2colBackward{attributes, shape[1], image_of(shape)}), c.inputs[0].dtype())};
}

Values gradient_of_backward(const GradientContext& c) {
  Im2col attributes = c.as<Im2colBackward>().im2col;
  attributes.ones = false;
  return {im2col(c.gradients[0], attributes)};
}

/// Calls body(elements of the image, their places in `columns`) for each tap: two views of one shape.
template <class Body>
void for_each_tap(const Tensor& image, const Tensor& columns, const Im2col& a, const Body& body) {
  for_each_index(a.taps, [&](const Dims& tap, std::int64_t number) {
    const std::int64_t first = std::min(number * a.channels, columns.dim(1)), last = std::min(first + image.dim(1), columns.dim(1));
    Tensor elements = image.slice(1, 0, last - first), places = columns.slice(1, first, last);
    for (int axis = 0; axis < tap.rank(); ++axis) {
      const std::int64_t ahead = a.shift[axis] - tap[axis];  // of the position
      const std::int64_t begin = std::clamp<std::int64_t>(-ahead, 0, a.output_size[axis]);  // some taps lie in front of all positions
      const std::int64_t end = std::max(begin, std::min(a.output_size[axis], image.dim(axis + 2) - ahead));
      places = places.slice(axis + 2, begin, end);
      elements = begin == end ? elements.slice(axis + 2, 0, 0) : elements.slice(axis + 2, begin + ahead, end + ahead);
    }
    if (elements.elements() > 0 && places.elements() > 0) body(elements, places);
  });
}

void run(const KernelContext& call) {
  const auto& a = call.as<Im2col>();
  const Tensor &input = call.inputs[0], &output = call.outputs[0];
  output.fill(0);
  if (a.ones) output.slice(1, input.dim(1), input.dim(1) + 1).fill(1);
  for_each_tap(input, output, a, [](const Tensor& elements, const Tensor& places) { copy(places, elements); });
}

void run_backward(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  output.fill(0);
  dispatch_floating(output.dtype(), [&]<class T>() {
    for_each_tap(output, call.inputs[0], call.as<Im2colBackward>().im2col, [](const Tensor& elements, const Tensor& places) {
      strided_loop<2>(elements.shape(), {elements.strides(), places.strides()},
                      [&](const auto& offsets, const auto& steps, std::int64_t count) {
                        T* const sum = elements.data<T>() + offsets[0];
                        const T* const gradient = places.data<T>() + offsets[1];
                        for (std::int64_t i = 0; i < count; ++i) sum[i * steps[0]] += gradient[i * steps[1]];
                      });
    });
  });
}

/// `ones` is one more channel of tap 0.
Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<Im2col>();
  const Shape& shape = inputs[0].shape();
  const Dims none = Dims::filled(shape.rank(), 0);
  Dims before = none, after = none;
  for (int axis = 0; axis < a.taps.rank(); ++axis) {
    before[axis + 2] = std::max<std::int64_t>(0, a.taps[axis] - 1 - a.shift[axis]);
    after[axis + 2] = std::max<std::int64_t>(0, a.output_size[axis] + a.shift[axis] - shape[axis + 2]);
  }
  const Value wide = pad(cast(inputs[0], a.dtype.value_or(inputs[0].dtype())), before, after);
  Values taps;
  for_each_index(a.taps, [&](const Dims& tap, std::int64_t number) {
    Value part = wide;
    for (int axis = 0; axis < tap.rank(); ++axis) {
      const std::int64_t begin = before[axis + 2] + a.shift[axis] - tap[axis];
      part = slice(part, axis + 2, begin, begin + a.output_size[axis]);
    }
    Dims more = none;
    more[1] = 1;
    if (a.ones && number == 0) part = pad(part, none, more, 1);
    more[1] = a.channels - part.dim(1);
    taps.push_back(pad(part, none, more));
  });
  const Value all = concatenate(taps, 1);
  return {a.kept > 0 && a.kept < all.dim(1) ? slice(all, 1, 0, a.kept) : all};
}

std::vector<Sample> samples() {
  return {{{Shape{2, 3, 4, 5}}, Im2col{{2, 2}, {0, 0}, {4, 5}, 4, false}},
          {{Shape{1, 2, 3, 2, 4}}, Im2col{{2, 1, 3}, {0, 1, 1}, {4, 2, 5}, 4, true}},
          {{Shape{2, 1, 3}}, Im2col{{1}, {2}, {3}, 1, false}},
          {{Shape{1, 4, 2, 2}}, Im2col{{3, 2}, {1, 0}, {3, 1}, 8, true}},
          {{Shape{1, 3, 2, 3, 2}}, Im2col{{2, 2, 2}, {0, 0, 0}, {2, 4, 3}, 4, true}},
          {{SampleInput::of(DType::f32, {2, 3, 4, 3})}, Im2col{{2, 2}, {0, 0}, {4, 3}, 4, true, DType::f16}, /*smooth=*/false},
          {{Shape{2, 3, 3, 4, 3}}, Im2col{{4, 2, 1}, {2, 0, 0}, {2, 4, 3}, 4, false, {}, 28}},
          {{Shape{2, 4, 5, 6}}, Im2col{{3, 3}, {1, 1}, {5, 6}, 4, false}},
          {{SampleInput::of(DType::f32, {2, 8, 4, 5})}, Im2col{{1, 2}, {0, 1}, {4, 5}, 8, false, DType::f16}, /*smooth=*/false},
          {{Shape{1, 1, 5, 4}}, Im2col{{3, 3}, {1, 1}, {5, 4}, 1, false, {}, 8}},
          {{Shape{3, 3, 2, 3, 4}}, Im2col{{2, 2, 2}, {1, 0, 1}, {3, 5, 4}, 4, false}},
          {{Shape{1, 3, 1, 300}}, Im2col{{1, 5}, {0, 4}, {1, 304}, 4, false}},  // blocks of a device share the row
          {{Shape{2, 1, 1, 4}}, Im2col{{4, 2}, {0, 1}, {2, 3}, 1, false}},
          {{Shape{0, 3, 4, 4}}, Im2col{{2, 2}, {0, 0}, {4, 4}, 4, true}}};
}

std::vector<Sample> backward_samples() {
  std::vector<Sample> result;
  for (const Sample& sample : samples()) {
    const Shape& image = sample.inputs[0].shape;
    const auto& a = sample.attributes.as<Im2col>();
    if (a.dtype) continue;
    result.push_back({{columns_shape(image[0], a)}, Im2colBackward{a, image[1], image_of(image)}});
  }
  return result;
}

}  // namespace

Value im2col(Value input, const Im2colAttributes& attributes) { return emit_one("im2col", {input}, attributes); }

}  // namespace frit::ops

FRIT_OPERATORS(im2col) {
  registry.add<Im2colAttributes>({
      .name = "im2col",
      .summary = "output[n, u channels + c, q] = input[n, c, q + shift - u], zero beyond the input's edge",
      .inputs = {"input"},
      .infer = infer,
      .gradient = gradient,
      .decompose = decompose,
      .absorb = absorb_cast<Im2col>,
      .cpu = {.run = run, .strided = true, .halves = true},
      .samples = samples,
  });
  registry.add<Im2colBackwardAttributes>({
      .name = "im2col_backward",
      .summary = "the gradient of im2col's input: the sum over its taps",
      .inputs = {"gradient"},
      .infer = infer_backward,
      .gradient = gradient_of_backward,
      .cpu = {.run = run_backward, .strided = true},
      .samples = backward_samples,
  });
}
