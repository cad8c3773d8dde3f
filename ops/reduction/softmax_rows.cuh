#pragma once

#include "frit/core/cuda/divisor.cuh"
#include "frit/ops/cuda/stages.cuh"
#include "frit/ops/cuda/states.cuh"
#include "frit/ops/reduction/softmax.h"

// Softmax of lines that the registers of a team of threads hold. NVRTC compiles this header too.

namespace frit::ops {

template <class T>
struct Greatest {
  T value;
  __device__ static Greatest merge(Greatest a, Greatest b) { return {b.value > a.value ? b.value : a.value}; }
};

/// An infinite maximum makes the whole line NaN, as in PyTorch.
template <class Form, class T>
__device__ T normalizer_of(T maximum, T sum) {
  return Form::normalizer(std::isinf(maximum) ? std::numeric_limits<T>::quiet_NaN() : sum);
}

/// Makes elements of a line, -inf for those that do not exist, their results: each exponential is computed once. team.merge(part) merges
/// the parts of all threads that hold the line.
template <class Form, class T, int batches, class Team>
__device__ void softmax_in_place(T (&terms)[batches][batch_size], const Team& team) {
  Greatest<T> greatest{-std::numeric_limits<T>::infinity()};
#pragma unroll
  for (const auto& batch : terms) {
#pragma unroll
    for (const T x : batch) greatest.value = x > greatest.value ? x : greatest.value;
  }
  const T maximum = team.merge(greatest).value;
  auto sum = Sum<T>::identity();
#pragma unroll
  for (auto& batch : terms) {
    T exponentials[batch_size];
#pragma unroll
    for (int i = 0; i < batch_size; ++i) {
      const T shifted = batch[i] - maximum;
      exponentials[i] = exponential(shifted);
      batch[i] = Form::kept(shifted, exponentials[i]);
    }
    sum = Sum<T>::merge(sum, Sum<T>::of(tree_sum(exponentials)));
  }
  const T normalizer = normalizer_of<Form>(maximum, team.merge(sum).value());
#pragma unroll
  for (auto& batch : terms) {
#pragma unroll
    for (T& x : batch) x = Form::finish(x, normalizer);
  }
}

/// The pixels of an image in channels-last layout, each a line of channels in memory; a power of 2 of threads for one.
struct ChannelRows {
  static constexpr int threads = 256;  ///< of a block

  std::int64_t pixels;    ///< below 2^31
  int channels, workers;  ///< channels: a multiple of batch_size
  cuda::Divisor image;    ///< pixels of a sample

  /// What a team's threads merge their parts with.
  template <class Part>
  __device__ Part merge(Part part) const {
    __shared__ Part shared[threads];
    return merge_team(part, {1, workers}, shared);
  }
  /// Of the calling thread's batch j of a pixel.
  __device__ stages::Place place(std::int64_t pixel, int j) const {
    const int channel = (static_cast<int>(threadIdx.x) % workers + j * workers) * batch_size;
    return {pixel * channels + channel, channel, static_cast<int>(image.quotient(static_cast<std::uint32_t>(pixel)))};
  }
  /// Calls body(pixel) for each pixel of the calling thread, and with one that does not exist where others of its block have one more.
  template <class Body>
  __device__ void for_each(const Body& body) const {
    const int teams = threads / workers, team = static_cast<int>(threadIdx.x) / workers;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * teams;
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * teams; first < pixels; first += step) body(first + team);
  }
  __device__ bool has(std::int64_t pixel, int j) const { return pixel < pixels && place(0, j).channel < channels; }
};

/// A kernel for softmax over the channels of such an image, of which a thread has so many batches.
template <class Form, int batches>
struct ChannelSoftmax {
  ChannelRows rows;

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    using C = typename Source::Computed;
    typename Source::template Channels<batch_size> of_channels[batches];
    typename Sink::template Channels<batch_size> sink_channels[batches];
#pragma unroll
    for (int j = 0; j < batches; ++j) {
      if (!rows.has(0, j)) continue;
      of_channels[j] = source.template channels<batch_size>(rows.place(0, j));
      sink_channels[j] = sink.template channels<batch_size>(rows.place(0, j));
    }
    rows.for_each([&](std::int64_t pixel) {
      typename Source::template Words<batch_size> words[batches];
      typename Sink::template Words<batch_size> sink_words[batches];
#pragma unroll
      for (int j = 0; j < batches; ++j) {
        if (!rows.has(pixel, j)) continue;
        words[j] = source.template fetch<batch_size>(rows.place(pixel, j));
        sink_words[j] = sink.template fetch<batch_size>(rows.place(pixel, j));
      }
      C terms[batches][batch_size];
#pragma unroll
      for (int j = 0; j < batches; ++j) {
        const auto values = source.template values<batch_size>(words[j], of_channels[j], stages::Nothing{});
#pragma unroll
        for (int i = 0; i < batch_size; ++i) terms[j][i] = rows.has(pixel, j) ? values[i] : -std::numeric_limits<C>::infinity();
      }
      softmax_in_place<Form>(terms, rows);
#pragma unroll
      for (int j = 0; j < batches; ++j) {
        if (!rows.has(pixel, j)) continue;
        cuda::Vector<C, batch_size> results;
#pragma unroll
        for (int i = 0; i < batch_size; ++i) results[i] = terms[j][i];
        sink.template store<batch_size>(rows.place(pixel, j), results, sink_words[j], sink_channels[j]);
      }
    });
  }
};

/// The same for its gradient; the source gives the result's, y is the result.
template <class Form, int batches, class T>
struct ChannelSoftmaxGradient {
  ChannelRows rows;
  const T* y;

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    using C = Computed<T>;
    const stages::Stored<T> results{y, true};
    typename Source::template Channels<batch_size> of_channels[batches];
    typename Sink::template Channels<batch_size> sink_channels[batches];
#pragma unroll
    for (int j = 0; j < batches; ++j) {
      if (!rows.has(0, j)) continue;
      of_channels[j] = source.template channels<batch_size>(rows.place(0, j));
      sink_channels[j] = sink.template channels<batch_size>(rows.place(0, j));
    }
    rows.for_each([&](std::int64_t pixel) {
      typename Source::template Words<batch_size> words[batches];
      typename stages::Stored<T>::template Words<batch_size> result_words[batches];
      typename Sink::template Words<batch_size> sink_words[batches];
#pragma unroll
      for (int j = 0; j < batches; ++j) {
        if (!rows.has(pixel, j)) continue;
        words[j] = source.template fetch<batch_size>(rows.place(pixel, j));
        result_words[j] = results.template fetch<batch_size>(rows.place(pixel, j));
        sink_words[j] = sink.template fetch<batch_size>(rows.place(pixel, j));
      }
      cuda::Vector<C, batch_size> gradients[batches];
      auto sum = Sum<C>::identity();
#pragma unroll
      for (int j = 0; j < batches; ++j) {
        if (!rows.has(pixel, j)) continue;
        gradients[j] = source.template values<batch_size>(words[j], of_channels[j], stages::Nothing{});
        C terms[batch_size];
#pragma unroll
        for (int i = 0; i < batch_size; ++i) terms[i] = Form::template term<C>(gradients[j][i], convert<C>(result_words[j][i]));
        sum = Sum<C>::merge(sum, Sum<C>::of(tree_sum(terms)));
      }
      const C total = rows.merge(sum).value();
#pragma unroll
      for (int j = 0; j < batches; ++j) {
        if (!rows.has(pixel, j)) continue;
        cuda::Vector<C, batch_size> gradient;
#pragma unroll
        for (int i = 0; i < batch_size; ++i) gradient[i] = Form::gradient(gradients[j][i], convert<C>(result_words[j][i]), total);
        sink.template store<batch_size>(rows.place(pixel, j), gradient, sink_words[j], sink_channels[j]);
      }
    });
  }
};

}  // namespace frit::ops
