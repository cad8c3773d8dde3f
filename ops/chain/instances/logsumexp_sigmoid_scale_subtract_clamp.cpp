#include "frit/ops/chain/instances/logsumexp_sigmoid_scale_subtract_clamp.h"

#include <array>
#include <limits>

#include "frit/ops/cpu/elementwise.h"
#include "frit/ops/cpu/vector_math.h"
#include "frit/ops/cpu/work_split.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/norm/statistics.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::ops {
namespace {

using ChainAttributes = LogsumexpSigmoidScaleSubtractClampAttributes;

/// One value a pixel of a block.
template <class T>
using BlockValues = std::array<T, most_block_pixels>;

template <class T>
T sigmoid_of_shifted(T y) {
  return 1 / (1 + vector_exp(-(y + ScaledSigmoid<T>::shift)));
}

/// sums = sum over c of exp(x[c] - shift), shift being the largest x[c] where that is finite, else 0. The exponentials go to `kept` if it
/// is given, laid out like x; it may be x.
template <class T>
struct ExponentialSums {
  BlockValues<T> shift, sums;

  ExponentialSums(const T* x, T* kept, const Planes& planes, std::size_t count) {
    std::copy_n(x, count, shift.begin());
    for (std::int64_t c = 1; c < planes.channels; ++c) {
      const T* const row = x + c * planes.pixels;
      for (std::size_t i = 0; i < count; ++i) shift[i] = row[i] > shift[i] ? row[i] : shift[i];
    }
    for (std::size_t i = 0; i < count; ++i) shift[i] = std::abs(shift[i]) < std::numeric_limits<T>::infinity() ? shift[i] : T(0);
    // In parts, since a long sum of rounded numbers loses digits.
    constexpr std::int64_t part_channels = 32;
    std::fill_n(sums.begin(), count, T(0));
    BlockValues<T> part;
    for (std::int64_t first = 0; first < planes.channels; first += part_channels) {
      std::fill_n(part.begin(), count, T(0));
      for (std::int64_t c = first; c < std::min(first + part_channels, planes.channels); ++c) {
        const T* const row = x + c * planes.pixels;
        if (kept == nullptr) {
          for (std::size_t i = 0; i < count; ++i) part[i] += vector_exp(row[i] - shift[i]);
        } else {
          add_and_keep(row, kept + c * planes.pixels, count, part);
        }
      }
      for (std::size_t i = 0; i < count; ++i) sums[i] += part[i];
    }
  }

  T logarithm(std::size_t i) const { return vector_log(sums[i]) + shift[i]; }

 private:
  void add_and_keep(const T* row, T* kept, std::size_t count, BlockValues<T>& part) const {
    FRIT_INDEPENDENT_ITERATIONS
    for (std::size_t i = 0; i < count; ++i) {
      const T exponential = vector_exp(row[i] - shift[i]);
      kept[i] = exponential;
      part[i] += exponential;
    }
  }
};

EvenBlocks pixel_blocks(const Planes& planes) { return {planes.pixels, most_block_pixels, 16}; }

/// Calls body(block, sample, first pixel, pixels) for the blocks of all samples, in parallel.
template <class Body>
void for_each_block(const Planes& planes, const Body& body) {
  const EvenBlocks blocks = pixel_blocks(planes);
  parallel_for(planes.samples * blocks.count, 1, [&](std::int64_t block, std::int64_t) {
    body(block, block / blocks.count, blocks.begin(block % blocks.count), static_cast<std::size_t>(blocks.length_of(block % blocks.count)));
  });
}

/// Where the pixels of the planes lie in the output.
class OutputPlaces {
 public:
  OutputPlaces(const Shape& input, const ChainAttributes& attributes)
      : attributes_(attributes), positions_(image_of(input)), pixels_(product(positions_)) {}

  /// Calls body(i, place) for pixels first + i of a sample, i < count; the place is -1 if the pixel is cut off.
  template <class Body>
  void for_each(std::int64_t sample, std::int64_t first, std::size_t count, const Body& body) const {
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t pixel = first + static_cast<std::int64_t>(i);
      body(i, attributes_.blocked() ? find(sample, pixel) : sample * pixels_ + pixel);
    }
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
    const Planes planes = planes_of(call.inputs[0].shape(), attributes);
    const OutputPlaces places(call.inputs[0].shape(), attributes);
    const T* const input = call.inputs[0].data<T>();
    const T bias = *call.inputs[1].data<T>();
    T* const output = call.outputs[0].data<T>();
    const Clamp<T> clamp(attributes.clamp());
    for_each_block(planes, [&](std::int64_t, std::int64_t sample, std::int64_t first, std::size_t count) {
      const ExponentialSums<T> exponentials(input + sample * planes.channels * planes.pixels + first, nullptr, planes, count);
      BlockValues<T> results;
      for (std::size_t i = 0; i < count; ++i) {
        const T y = exponentials.logarithm(i);
        results[i] = clamp(ScaledSigmoid<T>::value(y, sigmoid_of_shifted(y)) - bias);
      }
      places.for_each(sample, first, count, [&](std::size_t i, std::int64_t place) {
        if (place >= 0) output[place] = results[i];
      });
    });
  });
}

/// inputs (gradient, input, bias), outputs (input_gradient, bias_gradient)
void run_backward(const KernelContext& call) {
  dispatch_floating(call.inputs[1].dtype(), [&]<class T>() {
    const auto& attributes = call.as<ChainAttributes>();
    const Planes planes = planes_of(call.inputs[1].shape(), attributes);
    const OutputPlaces places(call.inputs[1].shape(), attributes);
    const T* const gradient = call.inputs[0].data<T>();
    const T* const input = call.inputs[1].data<T>();
    const T bias = *call.inputs[2].data<T>();
    T* const input_gradient = data_or_null<T>(call.outputs[0]);
    const Clamp<T> clamp(attributes.clamp());
    double* const block_sums = reinterpret_cast<double*>(call.scratch.data());
    for_each_block(planes, [&](std::int64_t block, std::int64_t sample, std::int64_t first, std::size_t count) {
      const std::int64_t from = sample * planes.channels * planes.pixels + first;
      T* const kept = input_gradient ? input_gradient + from : nullptr;
      const ExponentialSums<T> exponentials(input + from, kept, planes, count);
      BlockValues<T> passed, factor;  // the gradient before the clamp; that of the logsumexp over the sum
      places.for_each(sample, first, count, [&](std::size_t i, std::int64_t place) { passed[i] = place < 0 ? 0 : gradient[place]; });
      for (std::size_t i = 0; i < count; ++i) {
        const T y = exponentials.logarithm(i);
        const T sigmoid = sigmoid_of_shifted(y);
        passed[i] = clamp.gradient(passed[i], ScaledSigmoid<T>::value(y, sigmoid) - bias);
        factor[i] = ScaledSigmoid<T>::gradient(passed[i], y, sigmoid) / exponentials.sums[i];
      }
      if (attributes.blocked()) {
        places.for_each(sample, first, count, [&](std::size_t i, std::int64_t place) {
          if (place < 0) passed[i] = factor[i] = 0;
        });
      }
      LaneSums<1> sum;
      sum.add(static_cast<std::int64_t>(count),
              [&](std::int64_t i) { return std::array<double, 1>{static_cast<double>(passed[static_cast<std::size_t>(i)])}; });
      block_sums[block] = sum.totals()[0];
      if (kept == nullptr) return;
      for (std::int64_t c = 0; c < planes.channels; ++c) {
        T* const row = kept + c * planes.pixels;
        for (std::size_t i = 0; i < count; ++i) row[i] = factor[i] == 0 ? 0 : row[i] * factor[i];  // what is cut off may be infinite
      }
    });
    if (!call.outputs[1].defined()) return;
    double total = 0;
    for (std::int64_t block = 0; block < planes.samples * pixel_blocks(planes).count; ++block) total += block_sums[block];
    *call.outputs[1].data<T>() = static_cast<T>(-total);
  });
}

std::size_t block_sum_bytes(const Planes& planes) {
  return static_cast<std::size_t>(planes.samples * pixel_blocks(planes).count) * sizeof(double);
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

std::optional<Attributes> absorb(const Operator& producer, const Attributes& of_producer, const Attributes& own) {
  ChainAttributes attributes = own.as<ChainAttributes>();
  if (producer.name != "depth_to_space" || attributes.blocked()) return std::nullopt;
  attributes.blocks = of_producer.as<BlockAttributes>();
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
      .any_precision = {1},
      .cpu = {run_forward},
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
              .scratch = [](const InferContext& call) { return block_sum_bytes(planes_of(call.shape(1), call.as<ChainAttributes>())); }},
      .in_place = {{0, 1}},
      .samples = [] { return samples(true); },
  });
}
