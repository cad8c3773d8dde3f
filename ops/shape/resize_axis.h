#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <type_traits>

#include "frit/core/fields.h"
#include "frit/core/half.h"
#include "frit/ops/shape/resize.h"

namespace frit::ops {

// What the kernels of resize and resize_backward share: which elements a place along an image axis reads, and how much each counts.

/// Of both operators. Along an image axis the result's element i is what lies at the place step * i + offset between the input's elements.
struct ResizeAttributes {
  Dims from = {}, to = {};  ///< sizes of the image axes, before and after
  std::array<double, 3> step{1, 1, 1}, offset{};
  std::string mode = "nearest";  ///< or "linear", "cubic"
  bool round_up = false;         ///< of nearest: the place, rounded to float32, goes up to a whole one, not down
  double cubic = -0.75;          ///< Keys' a
  /// Of cubic: what is outside of the image does not count, and the other weights are made to add up to 1. Else the ends go on.
  bool exclude_outside = false;

  void fields(FieldVisitor& v) {
    v.field("from", from);
    v.field("to", to);
    v.field("step_0", step[0]);
    v.field("offset_0", offset[0]);
    v.field("step_1", step[1]);
    v.field("offset_1", offset[1]);
    v.field("step_2", step[2]);
    v.field("offset_2", offset[2]);
    v.field("mode", mode);
    v.field("round_up", round_up);
    v.field("cubic", cubic);
    v.field("exclude_outside", exclude_outside);
  }
  void add_axis(std::int64_t size, std::int64_t new_size, double step_between, double first) {
    step.at(static_cast<std::size_t>(from.rank())) = step_between;
    offset.at(static_cast<std::size_t>(from.rank())) = first;
    from.push_back(size);
    to.push_back(new_size);
  }
  bool stays(int axis) const {
    const auto i = static_cast<std::size_t>(axis);
    return from[axis] == to[axis] && step[i] == 1 && offset[i] == 0;
  }
  void keep(int axis, std::int64_t size) {
    from[axis] = to[axis] = size;
    step[static_cast<std::size_t>(axis)] = 1;
    offset[static_cast<std::size_t>(axis)] = 0;
  }
};

/// Emits the operator, but for images that stay as they are, or have one element, which is repeated.
Value resize_by(Value input, const ResizeAttributes& attributes);

inline const char* name_of(ResizeMode mode) {
  return mode == ResizeMode::nearest ? "nearest" : mode == ResizeMode::linear ? "linear" : "cubic";
}

/// Calls body.template operator()<mode>().
template <class Body>
void dispatch_mode(const std::string& mode, const Body& body) {
  if (mode == "nearest") return body.template operator()<ResizeMode::nearest>();
  if (mode == "linear") return body.template operator()<ResizeMode::linear>();
  FRIT_CHECK(mode == "cubic");
  body.template operator()<ResizeMode::cubic>();
}

struct ResizeAxis {
  int from = 1, to = 1;
  double step = 1, offset = 0, cubic = -0.75;
  bool round_up = false, exclude_outside = false;

  FRIT_HOST_DEVICE bool stays() const { return from == to && step == 1 && offset == 0; }
};

/// By depth, height and width; what an image lacks has size 1.
struct ResizeAxes {
  ResizeAxis depth, height, width;

  explicit ResizeAxes(const ResizeAttributes& a) {
    ResizeAxis* const axes[] = {&depth, &height, &width};
    for (int i = 0; i < a.from.rank(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      *axes[3 - a.from.rank() + i] = {
          static_cast<int>(a.from[i]), static_cast<int>(a.to[i]), a.step[at], a.offset[at], a.cubic, a.round_up, a.exclude_outside};
    }
  }
};

/// The elements of the input that an element of the result is made of, along one axis. Their weights are of type C.
template <ResizeMode mode, class C>
class ResizeTaps {
 public:
  FRIT_HOST_DEVICE ResizeTaps(const ResizeAxis& axis, int place) {
    const double last = axis.from - 1, source = std::fma(axis.step, static_cast<double>(place), axis.offset);
    if constexpr (mode == ResizeMode::nearest) {
      const bool stays = axis.step == 1 && axis.offset == 0;
      const double rounded = stays ? source : static_cast<float>(source);  // PyTorch's float32
      elements_[0] = static_cast<int>(within(axis.round_up ? std::ceil(rounded) : std::floor(rounded), 0, last));
      weights_[0] = 1;
    } else if constexpr (mode == ResizeMode::linear) {
      const double inside = within(source, 0, last), below = std::floor(inside);
      weights_[1] = static_cast<C>(inside - below);
      weights_[0] = 1 - weights_[1];
      elements_[0] = static_cast<int>(below);
      elements_[1] = std::min(elements_[0] + 1, axis.from - 1);
    } else {
      const double near = within(source, -3, last + 3), below = std::floor(near);
      const C t = static_cast<C>(near - below), a = static_cast<C>(axis.cubic);
      for (int k = 0; k < count(); ++k) weights_[k] = keys(k < 2 ? t + static_cast<C>(1 - k) : static_cast<C>(k - 1) - t, a);
      for (int k = 0; k < count(); ++k) elements_[k] = static_cast<int>(below) + k - 1;
      if (axis.exclude_outside) leave_outside(axis.from);
      for (int k = 0; k < count(); ++k) elements_[k] = std::clamp(elements_[k], 0, axis.from - 1);
    }
  }

  FRIT_HOST_DEVICE static constexpr int count() { return mode == ResizeMode::nearest ? 1 : mode == ResizeMode::linear ? 2 : 4; }
  FRIT_HOST_DEVICE int element(int k) const { return elements_[k]; }
  FRIT_HOST_DEVICE C weight(int k) const { return weights_[k]; }

 private:
  FRIT_HOST_DEVICE static double within(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
  /// Keys' kernel at a distance from 0 to 2.
  FRIT_HOST_DEVICE static C keys(C d, C a) {
    if (d == 1 || d == 2) return 0;  // whatever the rounding: what has no weight is not read
    return d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  }
  FRIT_HOST_DEVICE void leave_outside(int size) {
    C total = 0;
    for (int k = 0; k < count(); ++k) {
      if (elements_[k] < 0 || elements_[k] >= size) weights_[k] = 0;
      total += weights_[k];
    }
    for (int k = 0; k < count() && total != 0; ++k) weights_[k] /= total;
  }

  int elements_[mode == ResizeMode::nearest ? 1 : mode == ResizeMode::linear ? 2 : 4];
  C weights_[mode == ResizeMode::nearest ? 1 : mode == ResizeMode::linear ? 2 : 4];
};

/// The other way round: the elements of the result that an element of the input is part of, which are neighbours, and what it counts there.
template <ResizeMode mode, class C>
class ResizeReaders {
 public:
  static constexpr int kept = 16;  ///< weights that are not computed again

  FRIT_HOST_DEVICE ResizeReaders(const ResizeAxis& axis, int element) : axis_(axis), element_(element), begin_(0) {
    int end = axis.to;
    if (axis.stays()) {
      begin_ = element;
      end = element + 1;
    } else if (axis.step != 0) {
      bound(end);
    }
    while (begin_ < end && weight_at(begin_) == 0) ++begin_;
    while (begin_ < end && weight_at(end - 1) == 0) --end;
    count_ = end - begin_;
    for (int k = 0; k < count_ && k < kept; ++k) weights_[k] = weight_at(begin_ + k);
  }

  FRIT_HOST_DEVICE int count() const { return count_; }
  FRIT_HOST_DEVICE int element(int k) const { return begin_ + k; }
  FRIT_HOST_DEVICE C weight(int k) const { return k < kept ? kept_weight(k) : weight_at(begin_ + k); }
  FRIT_HOST_DEVICE C kept_weight(int k) const { return weights_[k]; }

 private:
  /// Beyond those whose place is so near that they may read the element; those beyond an end read the outermost.
  FRIT_HOST_DEVICE void bound(int& end) {
    const bool nearest = mode == ResizeMode::nearest;
    const double reach = mode == ResizeMode::cubic ? 2 : 1, rounding = nearest ? 1e-7 * (element_ + 1.0) : 0;
    const double before = nearest && !axis_.round_up ? rounding : reach, after = nearest && axis_.round_up ? rounding : reach;
    const double low = element_ == 0 ? -HUGE_VAL : element_ - before, high = element_ == axis_.from - 1 ? HUGE_VAL : element_ + after;
    const double one = (low - axis_.offset) / axis_.step, other = (high - axis_.offset) / axis_.step;
    const double count = axis_.to;
    begin_ = static_cast<int>(std::min(std::max(std::floor(std::min(one, other)), 0.0), count));
    end = static_cast<int>(std::min(std::max(std::ceil(std::max(one, other)) + 1, 0.0), count));
  }
  FRIT_HOST_DEVICE C weight_at(int reader) const {
    const ResizeTaps<mode, C> taps(axis_, reader);
    C weight = 0;
    for (int k = 0; k < taps.count(); ++k) {
      if (taps.element(k) == element_) weight += taps.weight(k);
    }
    return weight;
  }

  const ResizeAxis& axis_;
  int element_, begin_, count_;
  C weights_[kept];
};

/// Of a call of resize, or of resize_backward.
template <ResizeMode mode, bool backward, class C>
using ResizeReads = std::conditional_t<backward, ResizeReaders<mode, C>, ResizeTaps<mode, C>>;

}  // namespace frit::ops
