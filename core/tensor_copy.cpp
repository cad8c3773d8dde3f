#include <cmath>
#include <limits>

#include "frit/core/strided_loop.h"
#include "frit/core/tensor.h"

namespace frit {
namespace {

template <class T>
inline constexpr bool is_half_type = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

/// Halves go through float32. Floating values out of an integer's range saturate and NaN becomes 0, where C++ leaves it undefined.
template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (is_half_type<From>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (is_half_type<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    if (std::isnan(value)) return 0;
    if (value <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (value >= static_cast<From>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace

void copy(const Tensor& destination, const Tensor& source) {
  require(destination.defined() && source.defined(), "copy: a tensor is undefined");
  require(destination.shape() == source.shape(), "copy: destination is ", destination.shape(), ", source is ", source.shape());
  FRIT_CHECK(destination.device() == Device::cpu() && source.device() == Device::cpu());
  dispatch_all(destination.dtype(), [&]<class To>() {
    dispatch_all(source.dtype(), [&]<class From>() {
      To* const to = destination.data<To>();
      const From* const from = source.data<From>();
      strided_loop<2>(source.shape(), {destination.strides(), source.strides()},
                      [&](const auto& offsets, const auto& steps, std::int64_t count) {
                        To* const t = to + offsets[0];
                        const From* const f = from + offsets[1];
                        if (steps[0] == 1 && steps[1] == 1) {
                          for (std::int64_t i = 0; i < count; ++i) t[i] = convert<To>(f[i]);
                        } else {
                          for (std::int64_t i = 0; i < count; ++i) t[i * steps[0]] = convert<To>(f[i * steps[1]]);
                        }
                      });
    });
  });
}

void Tensor::fill(double value) const {
  if (elements_ == 0) return;
  Tensor scalar = Tensor::over(&value, {}, DType::f64, Device::cpu(), nullptr);
  copy(*this, scalar.expand(shape_));
}

}  // namespace frit
