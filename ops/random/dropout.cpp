#include "frit/ops/random/dropout.h"

#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/simd.h"
#include "frit/ops/elementwise/pointwise.h"
#include "frit/ops/random/dropout_mask.h"

namespace frit::ops {
namespace {

/// Elements that one task handles.
constexpr std::int64_t grain = 16384;

void require_probability(const InferContext& call, double probability) {
  call.require(probability >= 0 && probability <= 1, "probability must be from 0 to 1, got ", probability);
}

std::vector<TensorType> infer(const InferContext& call) {
  require_probability(call, call.as<DropoutAttributes>().probability);
  const TensorType counter{DType::i64, {}};
  call.require(call.inputs[1] == counter, "counter must be ", counter, ", got ", call.inputs[1]);
  return {call.inputs[0], {DType::u8, call.shape(0)}};
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  require_probability(call, call.as<DropoutBackwardAttributes>().probability);
  call.require(call.inputs[1].dtype == DType::u8, "mask must be u8, got ", call.inputs[1]);
  return {{call.inputs[0].dtype, broadcast_shapes(call.shape(0), call.shape(1))}};
}

Values gradient_through(Value gradient, Value mask, double probability) {
  if (!gradient) return {Value{}, Value{}};
  return {emit_one("dropout_backward", {gradient, mask}, DropoutBackwardAttributes{probability}), Value{}};
}

Values gradient(const GradientContext& c) { return gradient_through(c.gradients[0], c.outputs[1], c.as<DropoutAttributes>().probability); }

Values gradient_of_backward(const GradientContext& c) {
  return gradient_through(c.gradients[0], c.inputs[1], c.as<DropoutBackwardAttributes>().probability);
}

Values at_inference(Emitter&, std::span<const Value> inputs, const Attributes&) { return {inputs[0], Value{}}; }

/// Elements, or pixels of a channel, that are handled at a time.
constexpr std::int64_t block = 512;

/// A tensor's elements by image, channel and pixel, as the mask counts them. One that is undefined has none.
template <class T>
struct Elements {
  T* data;
  std::int64_t image, channel, pixel;  ///< the steps

  Elements(const Tensor& tensor, std::int64_t channels, std::int64_t pixels)
      : data(data_or_null<T>(tensor)), image(channels * pixels), channel(pixels), pixel(1) {
    if (tensor.defined() && tensor.layout() == Layout::channels_last) channel = 1, pixel = channels;
  }
  T& at(std::int64_t n, std::int64_t c, std::int64_t p) const { return data[n * image + c * channel + p * pixel]; }
};

/// The words of Philox as they are multiplied several at a time: each in the lower half of a wider one.
struct WideProduct {
  using Words = simd::Vector<std::uint64_t>;
  std::array<Words, 2> operator()(std::uint64_t factor, Words words) const {
    const Words product = simd::multiply_low(words, factor - Words{});
    return {product >> 32, product};
  }
};

/// Which of count elements are kept, from element `first` on, which is the first of four; and of some elements after them.
[[gnu::noinline]] void keep(const DropoutMask& dropout, std::int64_t first, std::int64_t count, std::uint8_t* kept) {
  using Words = WideProduct::Words;
  constexpr int lanes = simd::lanes<std::uint64_t>, vectors = 2;
  Words lane;
  for (int i = 0; i < lanes; ++i) lane[i] = static_cast<std::uint64_t>(i);
  for (std::int64_t done = 0; done < count; done += 4 * lanes * vectors) {
    std::array<Words, 4> words[vectors];
    for (int v = 0; v < vectors; ++v) {
      const Words quad = static_cast<std::uint64_t>((first + done) / 4 + v * lanes) + lane, stream = dropout.counter - Words{};
      words[v] = {quad, quad >> 32, stream, stream >> 32};
    }
    philox_rounds(words, dropout.seed, WideProduct{});
    for (int v = 0; v < vectors; ++v) {
      for (int word = 0; word < 4; ++word) {
        const Words keeps = (words[v][static_cast<std::size_t>(word)] & 0xffffffffu) >= dropout.threshold;
        for (int i = 0; i < lanes; ++i) kept[done + (v * lanes + i) * 4 + word] = static_cast<std::uint8_t>(keeps[i] & 1);
      }
    }
  }
}

/// Some pixels of an image, from pixel `p` on, where channels may be neighbours in memory: some of them at a time.
template <class T>
void run_pixels(const DropoutMask& dropout, const Drop<T>& function, const Elements<T>& x, const Elements<T>& y,
                const Elements<std::uint8_t>& mask, std::int64_t n, std::int64_t channels, std::int64_t p, std::int64_t count) {
  constexpr std::int64_t together = 32;
  const std::int64_t image_pixels = x.image / channels;
  const bool neighbours = x.channel == 1 && (y.data == nullptr || y.channel == 1);
  std::array<std::uint8_t, block * together> kept;  // (pixels, channels)
  for (std::int64_t c = 0; c < channels; c += together) {
    const std::int64_t width = std::min(together, channels - c);
    for (std::int64_t j = 0; j < width; ++j) {
      std::array<std::uint8_t, block + 8 * simd::lanes<std::uint64_t>> quads;
      const std::int64_t first = (n * channels + c + j) * image_pixels + p;
      keep(dropout, first - first % 4, count + first % 4, quads.data());
      const std::uint8_t* const of_channel = quads.data() + first % 4;
      std::uint8_t* const to = kept.data() + j;
      for (std::int64_t k = 0; k < count; ++k) to[k * together] = of_channel[k];
    }
    for (std::int64_t k = 0; k < count; ++k) {
      const std::uint8_t* const of_pixel = kept.data() + k * together;
      if (y.data != nullptr && neighbours) {
        detail::map_run(&y.at(n, c, p + k), width, function, detail::DenseOperand<T>{&x.at(n, c, p + k)},
                        detail::DenseOperand<std::uint8_t>{of_pixel});
      }
      for (std::int64_t j = 0; j < width; ++j) {
        if (y.data != nullptr && !neighbours) y.at(n, c + j, p + k) = function(x.at(n, c + j, p + k), of_pixel[j]);
        if (mask.data != nullptr) mask.at(n, c + j, p + k) = of_pixel[j];
      }
    }
  }
}

/// So many neighbouring elements.
template <class T>
void run_elements(const DropoutMask& dropout, const Drop<T>& function, const T* x, T* y, std::uint8_t* mask, std::int64_t first,
                  std::int64_t count) {
  std::array<std::uint8_t, block + 8 * simd::lanes<std::uint64_t>> quads;
  keep(dropout, first, count, quads.data());
  if (y != nullptr) {
    detail::map_run(y + first, count, function, detail::DenseOperand<T>{x + first}, detail::DenseOperand<std::uint8_t>{quads.data()});
  }
  if (mask != nullptr) std::copy_n(quads.data(), count, mask + first);
}

template <class T>
void run_typed(const KernelContext& call, const DropoutMask& dropout) {
  const Tensor& input = call.inputs[0];
  const Drop<T> function({call.as<DropoutAttributes>().probability});
  const auto lies_otherwise = [](const Tensor& tensor) { return tensor.defined() && !tensor.is_contiguous(); };
  const bool by_channels = lies_otherwise(input) || lies_otherwise(call.outputs[0]) || lies_otherwise(call.outputs[1]);
  const std::int64_t channels = by_channels ? input.dim(1) : 1, images = by_channels ? input.dim(0) : 1;
  const std::int64_t pixels = input.elements() / (images * channels), blocks = (pixels + block - 1) / block;
  const Elements<T> x(input, channels, pixels), y(call.outputs[0], channels, pixels);
  const Elements<std::uint8_t> mask(call.outputs[1], channels, pixels);
  parallel_for(images * blocks, std::max<std::int64_t>(1, grain / (block * channels)), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t p = i % blocks * block, count = std::min(block, pixels - p);
      by_channels ? run_pixels<T>(dropout, function, x, y, mask, i / blocks, channels, p, count)
                  : run_elements(dropout, function, x.data, y.data, mask.data, p, count);
    }
  });
}

void run(const KernelContext& call) {
  const DropoutAttributes& attributes = call.as<DropoutAttributes>();
  std::int64_t& counter = *call.inputs[1].data<std::int64_t>();
  const DropoutMask mask(static_cast<std::uint64_t>(attributes.seed), static_cast<std::uint64_t>(counter), attributes.probability);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() { run_typed<T>(call, mask); });
  ++counter;
}

ElementFunction backward_function(const KernelContext& call) {
  return dispatch_floating(call.outputs[0].dtype(),
                           [&]<class T>() { return element_function<T, T, std::uint8_t>(Drop<T>(call.as<DropoutBackwardAttributes>())); });
}

Sample sample(const Shape& input, DropoutAttributes attributes) {
  return {.inputs = {input, SampleInput::integers({}, 7)}, .attributes = attributes};
}

Sample backward_sample(const Shape& gradient, double probability) {
  return {.inputs = {gradient, SampleInput::integers(gradient, 2, DType::u8)}, .attributes = DropoutBackwardAttributes{probability}};
}

}  // namespace
}  // namespace frit::ops

namespace frit {

Value dropout(Value input, Value counter, double probability, std::uint64_t seed) {
  return ops::emit_one("dropout", {input, counter},
                       ops::DropoutAttributes{.probability = probability, .seed = static_cast<std::int64_t>(seed)});
}

}  // namespace frit

FRIT_OPERATORS(dropout) {
  registry.add<DropoutAttributes>({
      .name = "dropout",
      .summary = "x / (1 - probability) where a random mask keeps it, otherwise 0",
      .inputs = {"input", "counter"},
      .outputs = {"output", "mask"},
      .infer = infer,
      .gradient = gradient,
      .at_inference = at_inference,
      .cpu = {.run = run, .any_layout_inputs = {0}, .any_layout_outputs = {0, 1}},
      .in_place = {{0, 0}},
      .mutates = {1},
      .counter = 1,
      .with_unit_axis = [](const Attributes& attributes) { return attributes; },
      .samples =
          [] {
            return std::vector<Sample>{sample({2, 3}, {.probability = 0.5, .seed = 1}),
                                       sample({37}, {.probability = 0.2, .seed = -5}),
                                       sample({2, 3, 5}, {.probability = 0.4, .seed = 2}),
                                       sample({1, 2, 3, 5}, {.probability = 0}),
                                       sample({7}, {.probability = 1}),
                                       sample({0, 3}, {}),
                                       sample({2, 3, 4, 5}, {.probability = 0.4, .seed = 7}),
                                       sample({1}, {.probability = 0.1, .seed = 3}),
                                       sample({2, 3, 13, 5}, {.probability = 0.3, .seed = 4})};
          },
  });
  registry.add<DropoutBackwardAttributes>({
      .name = "dropout_backward",
      .summary = "gradient / (1 - probability) where the mask is 1, otherwise 0",
      .inputs = {"gradient", "mask"},
      .infer = infer_backward,
      .gradient = gradient_of_backward,
      .elementwise = true,
      .cpu = element_kernel(backward_function, 2),
      .in_place = {{0, 0}},
      .samples =
          [] {
            return std::vector<Sample>{backward_sample({2, 3}, 0.5), backward_sample({17}, 0.25),  backward_sample({1}, 0),
                                       backward_sample({3}, 1),      backward_sample({0, 2}, 0.5), backward_sample({2, 3, 2, 5}, 0.5)};
          },
  });
}
