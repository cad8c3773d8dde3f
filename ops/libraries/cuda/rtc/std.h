#ifndef FRIT_RTC_STD_H
#define FRIT_RTC_STD_H

// What frit's device headers use of the C++ library, for NVRTC, which comes without one. Every standard header is this file there.

using size_t = decltype(sizeof(0));
#define INT32_MAX 0x7fffffff

namespace std {

using size_t = ::size_t;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;

template <class T, class U>
inline constexpr bool is_same_v = false;
template <class T>
inline constexpr bool is_same_v<T, T> = true;

template <class T>
inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
template <class T>
inline constexpr bool is_integral_v =
    is_same_v<T, bool> || is_same_v<T, uint8_t> || is_same_v<T, int32_t> || is_same_v<T, uint32_t> || is_same_v<T, int64_t>;

template <bool condition, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool condition, class A, class B>
using conditional_t = typename conditional<condition, A, B>::type;

template <class T, T... numbers>
struct integer_sequence {};
template <int count, int... numbers>
struct numbers_below : numbers_below<count - 1, count - 1, numbers...> {};
template <int... numbers>
struct numbers_below<0, numbers...> {
  using type = integer_sequence<int, numbers...>;
};
template <class T, int count>
using make_integer_sequence = typename numbers_below<count>::type;

template <class T>
T&& declval();

template <class T>
struct type_identity {
  using type = T;
};

template <class T>
struct make_unsigned;
template <>
struct make_unsigned<uint8_t> {
  using type = uint8_t;
};
template <>
struct make_unsigned<int32_t> {
  using type = uint32_t;
};
template <>
struct make_unsigned<int64_t> {
  using type = uint64_t;
};
template <class T>
using make_unsigned_t = typename make_unsigned<T>::type;

template <class T>
struct numeric_limits;
template <>
struct numeric_limits<float> {
  static constexpr float lowest() { return __builtin_bit_cast(float, 0xff7fffffu); }
  static constexpr float max() { return __builtin_bit_cast(float, 0x7f7fffffu); }
  static constexpr float infinity() { return __builtin_bit_cast(float, 0x7f800000u); }
  static constexpr float quiet_NaN() { return __builtin_bit_cast(float, 0x7fc00000u); }
};
template <>
struct numeric_limits<double> {
  static constexpr double lowest() { return __builtin_bit_cast(double, 0xffeffffffffffffful); }
  static constexpr double max() { return __builtin_bit_cast(double, 0x7feffffffffffffful); }
  static constexpr double infinity() { return __builtin_bit_cast(double, 0x7ff0000000000000ul); }
  static constexpr double quiet_NaN() { return __builtin_bit_cast(double, 0x7ff8000000000000ul); }
};
template <>
struct numeric_limits<uint8_t> {
  static constexpr uint8_t min() { return 0; }
  static constexpr uint8_t max() { return 255; }
};
template <>
struct numeric_limits<int64_t> {
  static constexpr int64_t max() { return 0x7fffffffffffffffl; }
};

template <class To, class From>
constexpr To bit_cast(const From& from) {
  return __builtin_bit_cast(To, from);
}
template <class T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
constexpr int bit_width(uint64_t value) {
  int width = 0;
  for (; value != 0; value >>= 1) ++width;
  return width;
}

template <class T>
class optional {
 public:
  constexpr T value_or(T other) const { return has_value_ ? value_ : other; }

 private:
  T value_ = {};
  bool has_value_ = false;
};

class string {
 public:
  string(const char*) {}
  friend bool operator==(const string&, const char*) { return false; }
};

template <class... T>
struct tuple {};
template <size_t index, class Tuple>
struct tuple_element;
template <class First, class... Rest>
struct tuple_element<0, tuple<First, Rest...>> {
  using type = First;
};
template <size_t index, class First, class... Rest>
struct tuple_element<index, tuple<First, Rest...>> : tuple_element<index - 1, tuple<Rest...>> {};
template <size_t index, class Tuple>
using tuple_element_t = typename tuple_element<index, Tuple>::type;

// The functions of <cmath>, which NVRTC knows for float and double.
using ::abs;
using ::ceil;
using ::copysign;
using ::cos;
using ::erf;
using ::erfc;
using ::exp;
using ::expm1;
using ::floor;
using ::isfinite;
using ::isinf;
using ::log;
using ::log1p;
using ::pow;
using ::rint;
using ::sin;
using ::sqrt;
using ::tanh;

}  // namespace std

#endif
