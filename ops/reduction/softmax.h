#pragma once

#include "frit/core/fields.h"
#include "frit/ops/elementwise/scalar_math.h"

namespace frit::ops {

struct SoftmaxAttributes {
  std::int64_t axis = 1;
  void fields(FieldVisitor& v) { v.field("axis", axis); }
};

// The two forms, of a line's elements x: from x - maximum and what the sum of exp(x - maximum) gives; and their gradients, from the
// gradient g of the result y and a sum over the line. Of an element whose exponential is known, kept() is what finish() needs.

/// y = exp(x) / sum(exp(x)); gradient y (g - sum(g y)).
struct Softmax {
  template <class T>
  FRIT_HOST_DEVICE static T normalizer(T sum) {
    return 1 / sum;
  }
  template <class T>
  FRIT_HOST_DEVICE static T result(T shifted, T normalizer) {
    return finish(exponential(shifted), normalizer);
  }
  template <class T>
  FRIT_HOST_DEVICE static T kept(T, T exponential_of_shifted) {
    return exponential_of_shifted;
  }
  template <class T>
  FRIT_HOST_DEVICE static T finish(T kept, T normalizer) {
    return kept * normalizer;
  }
  template <class Term, class T>
  FRIT_HOST_DEVICE static Term term(T g, T y) {
    return static_cast<Term>(g) * static_cast<Term>(y);
  }
  template <class T>
  FRIT_HOST_DEVICE static T gradient(T g, T y, T sum) {
    return y * (g - sum);
  }
};

/// y = x - log(sum(exp(x))); gradient g - exp(y) sum(g).
struct LogSoftmax {
  template <class T>
  FRIT_HOST_DEVICE static T normalizer(T sum) {
    return std::log(sum);
  }
  template <class T>
  FRIT_HOST_DEVICE static T result(T shifted, T normalizer) {
    return finish(shifted, normalizer);
  }
  template <class T>
  FRIT_HOST_DEVICE static T kept(T shifted, T) {
    return shifted;
  }
  template <class T>
  FRIT_HOST_DEVICE static T finish(T kept, T normalizer) {
    return kept - normalizer;
  }
  template <class Term, class T>
  FRIT_HOST_DEVICE static Term term(T g, T) {
    return static_cast<Term>(g);
  }
  template <class T>
  FRIT_HOST_DEVICE static T gradient(T g, T y, T sum) {
    return g - exponential(y) * sum;
  }
};

}  // namespace frit::ops
