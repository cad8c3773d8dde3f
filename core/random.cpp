#include "frit/core/random.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "frit/core/thread_pool.h"

namespace frit {
namespace {

constexpr std::int64_t random_grain = 4096;

/// 53 random bits as a number in [0, 1).
double to_unit(std::uint32_t high, std::uint32_t low) { return static_cast<double>(((std::uint64_t{high} << 32) | low) >> 11) * 0x1p-53; }

/// Double, or float and from there the half types.
template <class T>
T round_to(double value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return T(static_cast<float>(value));
}

template <class T>
double to_double(T value) {
  if constexpr (std::is_same_v<T, double>)
    return value;
  else
    return static_cast<double>(static_cast<float>(value));
}

/// The neighbour of a finite value on its type's grid, upwards or downwards.
template <class T>
T neighbour(T value, bool upwards) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::nextafter(value, upwards ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity());
  } else {
    const bool negative = (value.bits & 0x8000u) != 0;
    T result;
    if ((value.bits & 0x7fffu) == 0)
      result.bits = upwards ? 0x0001u : 0x8001u;
    else
      result.bits = static_cast<std::uint16_t>(negative == upwards ? value.bits - 1 : value.bits + 1);
    return result;
  }
}

/// Element i of the tensor, in row-major order, becomes value(words of counter i).
template <class T, class Value>
void fill_each(const Tensor& tensor, std::uint64_t seed, std::uint64_t stream, const Value& value) {
  T* const out = tensor.data<T>();
  parallel_for(tensor.elements(), random_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = value(philox(seed, stream, static_cast<std::uint64_t>(i)));
  });
}

/// Calls fill.operator()<T>(contiguous tensor) for the tensor's floating type, and copies back if the tensor is a strided view.
template <class Fill>
void fill_floating(const Tensor& tensor, const char* what, const Fill& fill) {
  require(is_floating(tensor.dtype()), what, ": needs a floating tensor, got ", tensor.dtype());
  if (!tensor.is_contiguous()) {
    const Tensor dense = Tensor::empty(tensor.shape(), tensor.dtype());
    fill_floating(dense, what, fill);
    return copy(tensor, dense);
  }
  switch (tensor.dtype()) {
    case DType::f16: return fill.template operator()<Half>(tensor);
    case DType::bf16: return fill.template operator()<BFloat16>(tensor);
    default: dispatch_floating(tensor.dtype(), [&]<class T>() { fill.template operator()<T>(tensor); });
  }
}

/// A source of unbiased integers below a bound, from successive counters of one stream.
class IntegerSource {
 public:
  IntegerSource(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  /// Lemire, "Fast random integer generation in an interval", 2019: multiply, and reject the few low products that would bias.
  std::uint64_t below(std::uint64_t bound) {
    __extension__ using Product = unsigned __int128;
    while (true) {
      const auto words = philox(seed_, stream_, counter_++);
      const Product product = static_cast<Product>((std::uint64_t{words[0]} << 32) | words[1]) * bound;
      const auto low = static_cast<std::uint64_t>(product);
      if (low >= bound || low >= (0 - bound) % bound) return static_cast<std::uint64_t>(product >> 64);
    }
  }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t counter_ = 0;
};

}  // namespace

std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

void fill_uniform(const Tensor& tensor, double low, double high, std::uint64_t seed, std::uint64_t stream) {
  require(std::isfinite(low) && std::isfinite(high - low) && low <= high, "fill_uniform: needs finite low <= high, got [", low, ", ", high,
          ")");
  fill_floating(tensor, "fill_uniform", [&]<class T>(const Tensor& dense) {
    // The first and the last value of the type inside [low, high): rounding must not leave the interval.
    T first = round_to<T>(low);
    if (to_double(first) < low) first = neighbour(first, true);
    T last = round_to<T>(high);
    if (to_double(last) >= high) last = neighbour(last, false);
    if (to_double(last) < to_double(first)) last = first;
    fill_each<T>(dense, seed, stream, [&](const std::array<std::uint32_t, 4>& words) {
      const double value = low + to_unit(words[0], words[1]) * (high - low);
      const T rounded = round_to<T>(value);
      if (to_double(rounded) > to_double(last)) return last;
      return to_double(rounded) < to_double(first) ? first : rounded;
    });
  });
}

void fill_normal(const Tensor& tensor, double mean, double deviation, std::uint64_t seed, std::uint64_t stream) {
  fill_floating(tensor, "fill_normal", [&]<class T>(const Tensor& dense) {
    fill_each<T>(dense, seed, stream, [&](const std::array<std::uint32_t, 4>& words) {
      const double radius = std::sqrt(-2 * std::log(to_unit(words[0], words[1]) + 0x1p-53));  // of (0, 1]: Box and Muller, 1958
      const double angle = 2 * std::numbers::pi * to_unit(words[2], words[3]);
      return round_to<T>(mean + deviation * radius * std::cos(angle));
    });
  });
}

std::vector<std::int64_t> permutation(std::int64_t count, std::uint64_t seed, std::uint64_t stream) {
  require(count >= 0, "permutation: needs a count of 0 or more, got ", count);
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  IntegerSource integers(seed, stream);
  for (std::size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[integers.below(left)]);
  return order;
}

}  // namespace frit
