#include <algorithm>
#include <cmath>
#include <numbers>

#include "frit/models/onnx/operators/helpers.h"

namespace frit::onnx {
namespace {

/// Elements that a tensor made of nothing may have, but for one that is all of one number.
constexpr std::int64_t most_elements = 1 << 20;

Values constant(const Call& call) {
  if (call.has("value")) return {call.emit(call.tensor("value"))};
  const Sizes integers = call.integers("value_ints");
  const std::vector<double> reals = call.reals("value_floats");
  if (call.has("value_int")) return {call.graph().constant(Tensor::from({call.integer("value_int", 0)}, {}))};
  if (call.has("value_float")) return {call.emit({call.real("value_float", 0)}, {}, call.real())};
  if (call.has("value_ints")) return {call.emit(integers)};
  if (call.has("value_floats")) return {call.emit(reals, {static_cast<std::int64_t>(reals.size())}, call.real())};
  call.unsupported("its value is not a tensor of numbers");
}

Values constant_of_shape(const Call& call) {
  const Tensor value = call.has("value") ? call.converted(call.tensor("value")) : Tensor::full({}, 0, call.real());
  return {expand(reshape(call.graph().constant(value), {}), to_shape(call, call.integers(0)))};
}

Values shape(const Call& call) {
  const Shape& all = call[0].shape();
  const auto bound = [&](const char* attribute, std::int64_t otherwise) {
    const std::int64_t given = call.integer(attribute, otherwise);
    return std::clamp<std::int64_t>(given < 0 ? given + all.rank() : given, 0, all.rank());
  };
  const std::int64_t begin = bound("start", 0), end = std::max(begin, bound("end", all.rank()));
  return {call.emit(Sizes(all.begin() + begin, all.begin() + end))};
}

Values size(const Call& call) { return {call.graph().constant(Tensor::from({call[0].type().elements()}, {}))}; }

Values range(const Call& call) {
  for (std::size_t i = 0; i < 3; ++i) call.require_support(call.constant(i).elements() == 1, "input ", i, " is not one number");
  const Tensor start = call.constant(0);
  if (start.dtype() == DType::i64) {
    const std::int64_t first = start.to_vector<std::int64_t>().at(0), limit = call.integers(1).at(0), delta = call.integers(2).at(0);
    call.require_support(delta != 0, "delta is 0");
    Sizes numbers;
    for (std::int64_t number = first; delta > 0 ? number < limit : number > limit;) {
      call.require_support(static_cast<std::int64_t>(numbers.size()) < most_elements, "more than ", most_elements, " elements");
      numbers.push_back(number);
      if (__builtin_add_overflow(number, delta, &number)) break;
    }
    return {call.emit(numbers)};
  }
  const double first = start.item(), limit = call.constant(1).item(), delta = call.constant(2).item();
  const double count = std::ceil((limit - first) / delta);
  call.require_support(std::isfinite(count) && count <= static_cast<double>(most_elements), "it is not of at most ", most_elements,
                       " elements");
  std::vector<double> numbers;
  for (std::int64_t i = 0; static_cast<double>(i) < count; ++i) numbers.push_back(first + static_cast<double>(i) * delta);
  return {call.emit(numbers, {static_cast<std::int64_t>(numbers.size())}, call.converted(start).dtype())};
}

/// Of each i below the size, which is the period or one more, the weight for cos(2 pi i / period).
template <double (*weight)(double cosine)>
Values cosine_window(const Call& call) {
  const Sizes size = call.integers(0);
  call.require_support(size.size() == 1 && size[0] >= 0 && size[0] <= most_elements, "its size");
  const std::int64_t period = size[0] - (call.integer("periodic", 1) != 0 ? 0 : 1);
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < size[0]; ++i) {
    numbers.push_back(weight(std::cos(2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(period))));
  }
  return {call.emit(numbers, {size[0]}, call.dtype_of(call.integer("output_datatype", 1)))};
}

double hann(double cosine) { return 0.5 - 0.5 * cosine; }
double hamming(double cosine) { return 25.0 / 46 - 21.0 / 46 * cosine; }
double blackman(double cosine) { return 0.42 - 0.5 * cosine + 0.08 * (2 * cosine * cosine - 1); }

/// 1 where column - row is `offset`.
Values eye_like(const Call& call) {
  const Value x = call[0];
  call.require_support(x.rank() == 2, "rank ", x.rank());
  const Value rows = positions(call, x.dim(0), 0, 2, DType::i64), columns = positions(call, x.dim(1), 1, 2, DType::i64);
  const DType dtype = call.has("dtype") ? call.dtype_of(call.integer("dtype", 0)) : x.dtype();
  return {cast(equal(columns - rows, ops::scalar(rows, static_cast<double>(call.integer("k", 0)))), dtype)};
}

/// The upper triangle from diagonal k on, or the lower one up to it.
Values triangle(const Call& call) {
  const Value x = call[0];
  call.require_support(x.rank() >= 2, "rank ", x.rank());
  const Value rows = positions(call, x.dim(-2), 0, 2, DType::i64), columns = positions(call, x.dim(-1), 1, 2, DType::i64);
  const Value diagonal = call.has_input(1) ? reshape(call[1], {}) : ops::scalar(rows, 0);
  const bool upper = call.integer("upper", 1) != 0;
  const Value kept = upper ? greater_equal(columns - rows, diagonal) : less_equal(columns - rows, diagonal);
  return {where(kept, x, ops::scalar(x, 0))};
}

/// By a seed of frit's own.
Values drawn_evenly(const Call& call, const TensorType& type) {
  const double low = call.real("low", 0), high = call.real("high", 1);
  call.require_support(is_floating(type.dtype) && low < high, type.dtype, " from ", low, " to ", high);
  call.draw({.type = type, .low = low, .high = high});
  return {};
}

Values random_uniform(const Call& call) {
  return drawn_evenly(call, {call.dtype_of(call.integer("dtype", 1)), to_shape(call, call.integers("shape"))});
}

/// The attribute's dtype, or the input's.
DType drawn_dtype(const Call& call, DType otherwise) { return call.has("dtype") ? call.dtype_of(call.integer("dtype", 0)) : otherwise; }

/// An initialiser that has nothing but a shape to give is no parameter.
Values random_uniform_like(const Call& call) {
  const Tensor known = call.is_constant(0) ? call.converted(call.constant(0)) : Tensor();
  const TensorType like = known.defined() ? TensorType{known.dtype(), known.shape()} : call[0].type();
  return drawn_evenly(call, {drawn_dtype(call, like.dtype), like.shape});
}

/// Ones with one probability everywhere.
Values bernoulli(const Call& call) {
  const Tensor chances = call.converted(call.constant(0));
  const double chance = chances.elements() == 0 ? 0 : chances.reshape({-1}).slice(0, 0, 1).item();
  call.require_support(call.is_always(0, chance) && chance >= 0 && chance <= 1, "its probabilities are not one number from 0 to 1");
  const DType dtype = drawn_dtype(call, chances.dtype());
  call.require_support(is_floating(dtype), "it gives ", dtype);
  return {call.chance({.type = {dtype, chances.shape()}, .low = 0, .high = 1, .below = chance})};
}

}  // namespace

void add_sources(OperatorTable& table) {
  table["Constant"] = constant;
  table["ConstantOfShape"] = constant_of_shape;
  table["Shape"] = shape;
  table["Size"] = size;
  table["RandomUniform"] = random_uniform;
  table["RandomUniformLike"] = random_uniform_like;
  table["Bernoulli"] = bernoulli;
  table["Range"] = range;
  table["HannWindow"] = cosine_window<hann>;
  table["HammingWindow"] = cosine_window<hamming>;
  table["BlackmanWindow"] = cosine_window<blackman>;
  table["EyeLike"] = eye_like;
  table["Trilu"] = triangle;
}

}  // namespace frit::onnx
