#pragma once

#include "frit/ops/reduction/channel_rows.cuh"
#include "frit/ops/reduction/softmax.h"

// Softmax of lines that the registers of a team of threads hold. NVRTC compiles this header too.

namespace frit::ops {

/// The greatest number: NaN is none.
template <class T>
struct Greatest {
  T value;
  __device__ static Greatest merge(Greatest a, Greatest b) { return {fmax(a.value, b.value)}; }
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
    for (const T x : batch) greatest.value = fmax(greatest.value, x);
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

/// A kernel for softmax over the channels of such an image.
template <class Form, int channels>
struct ChannelSoftmax {
  ChannelRows rows;

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    using C = typename Source::Computed;
    using Team = ChannelTeam<channels>;
    const Team team(rows);
    team.for_each([&](std::uint32_t pixel, bool exists) {
      const WordsOfRow<Source, Team> words(source, team, pixel);
      const WordsOfRow<Sink, Team> sink_words(sink, team, pixel);
      const ChannelsOfRow<Source, Team> of_channels(source, team);
      C terms[Team::batches][batch_size];
#pragma unroll
      for (int j = 0; j < Team::batches; ++j) {
        const auto values = source.template values<batch_size>(words.of[j], of_channels.of[j], stages::Nothing{});
#pragma unroll
        for (int i = 0; i < batch_size; ++i) terms[j][i] = team.has(j) ? values[i] : -std::numeric_limits<C>::infinity();
      }
      softmax_in_place<Form>(terms, team);
      const ChannelsOfRow<Sink, Team> sink_channels(sink, team);
#pragma unroll
      for (int j = 0; j < Team::batches; ++j) {
        if (!exists || !team.has(j)) continue;
        cuda::Vector<C, batch_size> results;
#pragma unroll
        for (int i = 0; i < batch_size; ++i) results[i] = terms[j][i];
        sink.template store<batch_size>(team.place(pixel, j), results, sink_words.of[j], sink_channels.of[j]);
      }
    });
  }
};

/// The same for its gradient; the source gives the result's, y is the result.
template <class Form, int channels, class T>
struct ChannelSoftmaxGradient {
  ChannelRows rows;
  const T* y;

  template <class Source, class Sink>
  __device__ void operator()(const Source& source, const Sink& sink) const {
    using C = Computed<T>;
    using Team = ChannelTeam<channels>;
    const Team team(rows);
    const stages::Stored<T> results{y, true};
    team.for_each([&](std::uint32_t pixel, bool exists) {
      const WordsOfRow<Source, Team> words(source, team, pixel);
      const WordsOfRow<stages::Stored<T>, Team> result_words(results, team, pixel);
      const WordsOfRow<Sink, Team> sink_words(sink, team, pixel);
      const ChannelsOfRow<Source, Team> of_channels(source, team);
      cuda::Vector<C, batch_size> gradients[Team::batches];
      auto sum = Sum<C>::identity();
#pragma unroll
      for (int j = 0; j < Team::batches; ++j) {
        gradients[j] = source.template values<batch_size>(words.of[j], of_channels.of[j], stages::Nothing{});
        if (!team.has(j)) continue;
        C terms[batch_size];
#pragma unroll
        for (int i = 0; i < batch_size; ++i) terms[i] = Form::template term<C>(gradients[j][i], convert<C>(result_words.of[j][i]));
        sum = Sum<C>::merge(sum, Sum<C>::of(tree_sum(terms)));
      }
      const C total = team.merge(sum).value();
      const ChannelsOfRow<Sink, Team> sink_channels(sink, team);
#pragma unroll
      for (int j = 0; j < Team::batches; ++j) {
        if (!exists || !team.has(j)) continue;
        cuda::Vector<C, batch_size> gradient;
#pragma unroll
        for (int i = 0; i < batch_size; ++i) gradient[i] = Form::gradient(gradients[j][i], convert<C>(result_words.of[j][i]), total);
        sink.template store<batch_size>(team.place(pixel, j), gradient, sink_words.of[j], sink_channels.of[j]);
      }
    });
  }
};

}  // namespace frit::ops
