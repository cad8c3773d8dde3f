#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp.h"

#include <limits>
#include <numeric>

#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp_tiles.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/scratch_parts.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

using ChainAttributes = LogsumexpSigmoidScaleSubtractClampAttributes;

/// Where the pixels of the planes lie in the output.
class OutputPlaces {
 public:
  OutputPlaces(const Shape& input, const ChainAttributes& attributes)
      : attributes_(attributes), positions_(image_of(input)), pixels_(product(positions_)) {}

  /// Calls body(i, place) for pixels first + i of a sample, i < count; the place is -1 if the pixel is cut off.
  template <class Body>
  void for_each(std::int64_t sample, std::int64_t first, std::int64_t count, const Body& body) const {
    for (std::int64_t i = 0; i < count; ++i) body(static_cast<std::size_t>(i), find(sample, first + i));
  }

  template <class T>
  void write(const PixelValues<T>& values, T* output, std::int64_t sample, std::int64_t first, std::int64_t count) const {
    if (!attributes_.blocked()) {
      std::copy_n(values.begin(), count, output + sample * pixels_ + first);
      return;
    }
    for_each(sample, first, count, [&](std::size_t i, std::int64_t place) {
      if (place >= 0) output[place] = values[i];
    });
  }
  /// 0 for what is cut off.
  template <class T>
  void read(PixelValues<T>& values, const T* output, std::int64_t sample, std::int64_t first, std::int64_t count) const {
    if (!attributes_.blocked()) {
      std::copy_n(output + sample * pixels_ + first, count, values.begin());
      return;
    }
    for_each(sample, first, count, [&](std::size_t i, std::int64_t place) { values[i] = place < 0 ? 0 : output[place]; });
  }

 private:
  std::int64_t find(std::int64_t sample, std::int64_t pixel) const {
    const BlockAttributes& a = attributes_.blocks;
    std::int64_t place = 0, step = 1;
    for (int axis = positions_.rank() - 1; axis >= 0; --axis) {
      const std::int64_t element = pixel % positions_[axis] * a.block[axis] + sample % a.block[axis] - a.offset[axis];
      if (element < 0 || element >= a.size[axis]) return -1;
      place += element * step;
      step *= a.size[axis];
      pixel /= positions_[axis];
      sample /= a.block[axis];
    }
    return place + sample * step;
  }

  const ChainAttributes& attributes_;
  Dims positions_;
  std::int64_t pixels_;
};

void run_forward(const KernelContext& call) {
  if (!call.outputs[0].defined()) return;
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const auto& attributes = call.as<ChainAttributes>();
    const PixelTiling tiling(planes_of(call.inputs[0].shape(), attributes));
    const OutputPlaces places(call.inputs[0].shape(), attributes);
    const PlanesInMemory<T> input(call.inputs[0], tiling, attributes.block());
    const T bias = *call.inputs[1].data<T>();
    T* const output = call.outputs[0].data<T>();
    const Clamp<T> clamp(attributes.clamp());
    for_each_tile<T>(tiling, call.scratch, [&](std::int64_t, T* tile, std::int64_t sample, std::int64_t first, std::int64_t count) {
      input.load(tile, sample, first, count);
      const ExponentialSums<T> exponentials(
          tile, tiling, count, false, [&](std::int64_t pixel, std::int64_t pixels) __attribute__((always_inline)) {
            input.prefetch(sample, first + count + pixel, pixels);
          });
      PixelValues<T> results;
      for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
        results[i] = clamp(ScaledSigmoid<T>::value(exponentials.logarithm[i], exponentials.sigmoid[i]) - bias);
      }
      places.write(results, output, sample, first, count);
    });
  });
}

template <class T>
struct Backward {
  const ChainAttributes& attributes;
  PixelTiling tiling;
  OutputPlaces places;
  PlanesInMemory<T> input, input_gradient;
  const T* gradient;
  T bias;
  Clamp<T> clamp;
  double* sums;  // a tile each, of the gradient that reaches the bias

  void run(std::int64_t number, T* tile, std::int64_t sample, std::int64_t first, std::int64_t length) const {
    const auto count = static_cast<std::size_t>(length);
    input.load(tile, sample, first, length);
    const Clamp<T> bounds = clamp;
    const ExponentialSums<T> exponentials(
        tile, tiling, length, input_gradient.data != nullptr, [&](std::int64_t pixel, std::int64_t pixels) __attribute__((always_inline)) {
          input.prefetch(sample, first + length + pixel, pixels);
        });
    PixelValues<T> passed, value, factor;  // the gradient before the clamp; what is clamped; the gradient of the logsumexp over the sum
    places.read(passed, gradient, sample, first, length);
    for (std::size_t i = 0; i < count; ++i) value[i] = ScaledSigmoid<T>::value(exponentials.logarithm[i], exponentials.sigmoid[i]) - bias;
    for (std::size_t i = 0; i < count; ++i) passed[i] = bounds.gradient(passed[i], value[i]);
    for (std::size_t i = 0; i < count; ++i) {
      factor[i] = ScaledSigmoid<T>::gradient(passed[i], exponentials.logarithm[i], exponentials.sigmoid[i]) / exponentials.sums[i];
    }
    if (attributes.blocked()) {
      places.for_each(sample, first, length, [&](std::size_t i, std::int64_t place) {
        if (place < 0) passed[i] = factor[i] = 0;
      });
    }
    sums[number] = sum_in_lanes(length, [&](std::int64_t i) { return static_cast<double>(passed[static_cast<std::size_t>(i)]); });
    if (input_gradient.data == nullptr) return;
    for (std::int64_t i = 0; i < length; i += simd::lanes<T>) {
      const simd::Vector<T> by = simd::load(&factor[static_cast<std::size_t>(i)]);
      for (std::int64_t c = 0; c < tiling.planes.channels; ++c) {
        T* const row = tile + c * tiling.pixels.size + i;
        simd::store(row, by == 0 ? simd::Vector<T>{} : simd::load(row) * by);  // what is cut off may be infinite
      }
    }
    input_gradient.store(tile, sample, first, length);
  }
};

/// inputs (gradient, input, bias), outputs (input_gradient, bias_gradient)
void run_backward(const KernelContext& call) {
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    const auto& attributes = call.as<ChainAttributes>();
    const PixelTiling tiling(planes_of(call.inputs[1].shape(), attributes));
    double* const sums = reinterpret_cast<double*>(call.scratch.data());
    const Backward<T> backward{.attributes = attributes,
                               .tiling = tiling,
                               .places = OutputPlaces(call.inputs[1].shape(), attributes),
                               .input = {call.inputs[1], tiling, attributes.block()},
                               .input_gradient = {call.outputs[0], tiling, attributes.block()},
                               .gradient = call.inputs[0].data<T>(),
                               .bias = *call.inputs[2].data<T>(),
                               .clamp = Clamp<T>(attributes.clamp()),
                               .sums = sums};
    for_each_tile<T>(tiling, call.scratch.subspan(aligned(tiling.count(), sizeof(double))), [&](auto... where) { backward.run(where...); });
    if (!call.outputs[1].defined()) return;
    *call.outputs[1].data<T>() = static_cast<T>(-std::accumulate(sums, sums + tiling.count(), 0.0));
  });
}

std::size_t scratch_bytes(const InferContext& call, std::size_t input) {
  const PixelTiling tiling(planes_of(call.shape(input), call.as<ChainAttributes>()));
  return aligned(tiling.count(), sizeof(double)) + tiling.split(call.inputs[input].dtype).scratch();
}

/// Of the forward operator, given the numbers of its inputs. Refuses what does not fit.
TensorType output_type(const InferContext& call, std::size_t input, std::size_t bias) {
  const Shape& shape = call.shape(input);
  call.require(shape.rank() >= 3, "expected an input (N, C, ...) of rank 3 or more, got ", shape);
  call.require(shape[1] > 0, "input ", shape, " has no channels");
  call.require(call.inputs[bias].elements() == 1 && call.shape(bias).rank() <= shape.rank(), "bias must be one ", call.inputs[input].dtype,
               ", got ", call.inputs[bias]);
  require_parameter(call, bias, call.inputs[input].dtype, call.shape(bias));
  const auto& attributes = call.as<ChainAttributes>();
  TensorType result = call.inputs[input];
  if (attributes.blocked()) result = depth_to_space_type(call, result, attributes.blocks);
  result.shape[1] = 1;
  return result;
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  require_type(call, 0, output_type(call, 1, 2));
  return {call.inputs[1], call.inputs[2]};
}

Values gradient_rule(const GradientContext& c) {
  if (!c.gradients[0]) return Values(c.inputs.size());
  return emit("logsumexp_sigmoid_scale_subtract_clamp_backward", {c.gradients[0], c.inputs[0], c.inputs[1]}, c.attributes);
}

Values decompose(Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
  const auto& a = attributes.as<ChainAttributes>();
  Value y = logsumexp(a.blocked() ? depth_to_space(inputs[0], a.blocks) : inputs[0], {1}, true);
  y = y * sigmoid(y + ScaledSigmoid<double>::shift) / ScaledSigmoid<double>::divisor;
  return {clamp(y - cast(inputs[1], y.dtype()), a.min, a.max)};
}

/// The last node is the clamp.
std::optional<Attributes> fuse(std::span<const Attributes> matched, std::span<const TensorType>) {
  const auto& bounds = matched.back().as<ClampAttributes>();
  return ChainAttributes{bounds.min, bounds.max};
}

std::optional<Attributes> absorb(const OperatorCall& producer, const TensorType&, std::size_t input, const Attributes& own) {
  ChainAttributes attributes = own.as<ChainAttributes>();
  if (input > 0 || producer.op->name != "depth_to_space" || attributes.blocked()) return std::nullopt;
  attributes.blocks = producer.attributes.as<BlockAttributes>();
  return attributes;
}

std::vector<Sample> samples(bool backward) {
  std::vector<Sample> result;
  const auto add = [&](const Shape& input, const Shape& bias, const ChainAttributes& attributes, bool smooth = true) {
    Shape output = input;
    if (attributes.blocked()) std::copy(attributes.blocks.size.begin(), attributes.blocks.size.end(), output.begin() + 2);
    output[1] = 1;
    if (backward) {
      result.push_back({.inputs = {output, input, bias}, .attributes = attributes, .smooth = smooth});
    } else {
      result.push_back({.inputs = {input, bias}, .attributes = attributes, .smooth = smooth});
    }
  };
  add({2, 4, 2, 3, 3}, {1, 1, 1, 1}, {-1, 1});
  add({3, 5, 7}, {1}, {-5, 5});
  add({1, 1, 3, 5}, {1, 1, 1}, {std::nullopt, 0.25});
  add({2, 3, 1, 1, 1}, {1, 1, 1, 1}, {-0.25, std::nullopt});
  add({1, 17, 2, 5}, {}, {0.5, -0.5}, false);
  add({2, 2, 1, 1031}, {1, 1, 1, 1}, {0, 0.5}, false);
  add({0, 4, 2, 3, 3}, {1, 1, 1, 1}, {-1, 1});
  add({2, 32, 2, 2, 3}, {1, 1, 1, 1}, {-5, 5, {{2, 2, 2}, {1, 1, 1}, {3, 3, 5}}});
  add({2, 6, 3, 2}, {1}, {-5, 5, {{1, 2}, {0, 3}, {3, 1}}});
  add({1, 72, 2, 5}, {}, {-0.25, 4, {{2, 1}, {0, 0}, {4, 5}}}, false);
  add({3, 8, 1, 2, 2}, {1, 1, 1}, {0, 0.5, {{1, 2, 1}, {0, 1, 0}, {1, 2, 2}}}, false);
  add({2, 64, 3, 5}, {1, 1, 1}, {-5, 5, {{2, 2}, {1, 1}, {5, 8}}});
  add({1, 144, 2, 3}, {1}, {-5, 5, {{3, 3}, {0, 1}, {6, 7}}});
  add({1, 16, 3, 37}, {}, {-5, 5});
  return result;
}

}  // namespace
}  // namespace frit::ops

FRIT_OPERATORS(logsumexp_sigmoid_scale_subtract_clamp) {
  using namespace frit::ops;
  registry.add<ChainAttributes>({
      .name = "logsumexp_sigmoid_scale_subtract_clamp",
      .summary = "clamp(y * sigmoid(y + 3) / 6 - bias, min, max), y = logsumexp(input over axis 1, kept); block: of depth_to_space(input)",
      .inputs = {"input", "bias"},
      .infer = [](const InferContext& call) { return std::vector{output_type(call, 0, 1)}; },
      .gradient = gradient_rule,
      .decompose = decompose,
      .fuse = fuse,
      .absorb = absorb,
      .samples_in = samples_of_input_0,
      .any_precision = {1},
      .cpu = {.run = run_forward, .scratch = [](const InferContext& call) { return scratch_bytes(call, 0); }, .any_layout_inputs = {0}},
      .samples = [] { return samples(false); },
  });
  registry.add<ChainAttributes>({
      .name = "logsumexp_sigmoid_scale_subtract_clamp_backward",
      .summary = "the gradients of logsumexp_sigmoid_scale_subtract_clamp",
      .inputs = {"gradient", "input", "bias"},
      .outputs = {"input_gradient", "bias_gradient"},
      .infer = infer_backward,
      .no_gradient = "not differentiable twice",
      .cpu = {.run = run_backward,
              .scratch = [](const InferContext& call) { return scratch_bytes(call, 1); },
              .any_layout_inputs = {1},
              .any_layout_outputs = {0}},
      .in_place = {{0, 1}},
      .samples = [] { return samples(true); },
  });
}
