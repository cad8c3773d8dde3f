#pragma once

#include <cmath>

#include "frit/core/half.h"
#include "frit/ops/optimizer/optimizer_ops.h"

namespace frit::ops {

// One element's update, in the order of operations of torch.optim's single-tensor forms. The scalars are computed in double and then
// rounded to T.

template <class T>
struct SgdUpdate {
  T momentum, gradient_share, weight_decay, rate;
  bool first, nesterov;

  FRIT_HOST_DEVICE SgdUpdate(const SgdOptions& options, double learning_rate, std::int64_t step)
      : momentum(static_cast<T>(options.momentum)),
        gradient_share(static_cast<T>(1 - options.dampening)),
        weight_decay(static_cast<T>(options.weight_decay)),
        rate(static_cast<T>(learning_rate)),
        first(step == 0),
        nesterov(options.nesterov) {}

  FRIT_HOST_DEVICE T decayed(T gradient, T parameter) const { return weight_decay != 0 ? gradient + weight_decay * parameter : gradient; }

  FRIT_HOST_DEVICE void operator()(T& parameter, T gradient) const { parameter += -rate * decayed(gradient, parameter); }

  /// With momentum; the buffer begins as the first gradient.
  FRIT_HOST_DEVICE void operator()(T& parameter, T& buffer, T gradient) const {
    const T decayed_gradient = decayed(gradient, parameter);
    const T velocity = first ? decayed_gradient : buffer * momentum + gradient_share * decayed_gradient;
    buffer = velocity;
    parameter += -rate * (nesterov ? decayed_gradient + momentum * velocity : velocity);
  }
};

template <class T>
struct AdamUpdate {
  T beta2, first_share, second_share, eps, weight_decay, shrink, step_size, second_correction;
  bool decoupled;

  /// `step` counts the updates before this one.
  FRIT_HOST_DEVICE AdamUpdate(const AdamOptions& options, double rate, std::int64_t step)
      : beta2(static_cast<T>(options.beta2)),
        first_share(static_cast<T>(1 - options.beta1)),
        second_share(static_cast<T>(1 - options.beta2)),
        eps(static_cast<T>(options.eps)),
        weight_decay(static_cast<T>(options.weight_decay)),
        shrink(static_cast<T>(1 - rate * options.weight_decay)),
        step_size(static_cast<T>(rate / (1 - std::pow(options.beta1, static_cast<double>(step) + 1)))),
        second_correction(static_cast<T>(std::sqrt(1 - std::pow(options.beta2, static_cast<double>(step) + 1)))),
        decoupled(options.decoupled) {}

  /// start + weight (end - start), as torch.lerp computes it.
  FRIT_HOST_DEVICE static T lerp(T start, T end, T weight) {
    return weight < static_cast<T>(0.5) ? start + weight * (end - start) : end - (end - start) * (1 - weight);
  }

  FRIT_HOST_DEVICE void operator()(T& parameter, T& first_moment, T& second_moment, T gradient) const {
    const T shrunk = decoupled && weight_decay != 0 ? parameter * shrink : parameter;
    const T decayed = !decoupled && weight_decay != 0 ? gradient + weight_decay * parameter : gradient;
    const T mean = lerp(first_moment, decayed, first_share);
    const T square = second_moment * beta2 + second_share * decayed * decayed;
    first_moment = mean;
    second_moment = square;
    parameter = shrunk - step_size * mean / (std::sqrt(square) / second_correction + eps);
  }
};

}  // namespace frit::ops
