#include "frit/models/onnx/operators/helpers.h"

namespace frit::onnx {
namespace {

/// Casting to booleans is a comparison; from them they are numbers.
Values converted(const Call& call, Value x, std::int64_t element_type) {
  constexpr std::int64_t boolean = 9;
  if (element_type == boolean) return {not_equal(x, ops::scalar(x, 0))};
  return {cast(x, call.dtype_of(element_type))};
}

Values cast_like(const Call& call) { return {cast(call[0], call[1].dtype())}; }

}  // namespace

void add_casts(OperatorTable& table) {
  table["Cast"] = [](const Call& call) -> Values {
    const std::int64_t to = call.integer("to", 0);
    const bool chance = call.is_random(0) && is_floating(call.dtype_of(to));
    return converted(call, chance ? call.chance(0) : call[0], to);
  };
  table["CastLike"] = cast_like;
}

}  // namespace frit::onnx
