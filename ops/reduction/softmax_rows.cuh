#pragma once

#include "frit/ops/reduction/channel_rows.cuh"
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

/// A kernel for softmax over the channels of such an image, of which a thread has so many batches.
template <class Form, int batches>
struct ChannelSoftmax {
  ChannelRows rows;

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    using C = typename Source::Computed;
    const ChannelsOfRows<Source, batches> channels(source, rows);
    const ChannelsOfRows<Sink, batches> sink_channels(sink, rows);
    rows.for_each([&](std::int64_t pixel) {
      const WordsOfRow<Source, batches> words(source, rows, pixel);
      const WordsOfRow<Sink, batches> sink_words(sink, rows, pixel);
      C terms[batches][batch_size];
#pragma unroll
      for (int j = 0; j < batches; ++j) {
        const auto values = source.template values<batch_size>(words.of[j], channels.of[j], stages::Nothing{});
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
        sink.template store<batch_size>(rows.place(pixel, j), results, sink_words.of[j], sink_channels.of[j]);
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
    const ChannelsOfRows<Source, batches> channels(source, rows);
    const ChannelsOfRows<Sink, batches> sink_channels(sink, rows);
    rows.for_each([&](std::int64_t pixel) {
      const WordsOfRow<Source, batches> words(source, rows, pixel);
      const WordsOfRow<stages::Stored<T>, batches> result_words(results, rows, pixel);
      const WordsOfRow<Sink, batches> sink_words(sink, rows, pixel);
      cuda::Vector<C, batch_size> gradients[batches];
      auto sum = Sum<C>::identity();
#pragma unroll
      for (int j = 0; j < batches; ++j) {
        if (!rows.has(pixel, j)) continue;
        gradients[j] = source.template values<batch_size>(words.of[j], channels.of[j], stages::Nothing{});
        C terms[batch_size];
#pragma unroll
        for (int i = 0; i < batch_size; ++i) terms[i] = Form::template term<C>(gradients[j][i], convert<C>(result_words.of[j][i]));
        sum = Sum<C>::merge(sum, Sum<C>::of(tree_sum(terms)));
      }
      const C total = rows.merge(sum).value();
#pragma unroll
      for (int j = 0; j < batches; ++j) {
        if (!rows.has(pixel, j)) continue;
        cuda::Vector<C, batch_size> gradient;
#pragma unroll
        for (int i = 0; i < batch_size; ++i) gradient[i] = Form::gradient(gradients[j][i], convert<C>(result_words.of[j][i]), total);
        sink.template store<batch_size>(rows.place(pixel, j), gradient, sink_words.of[j], sink_channels.of[j]);
      }
    });
  }
};

}  // namespace frit::ops
