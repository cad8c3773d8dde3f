#include "frit/core/numerics.h"

#include <cstdlib>
#include <mutex>
#include <string_view>

namespace frit {
namespace {

std::mutex mutex;
Numerics current;

}  // namespace

Search default_search() {
  const char* const value = std::getenv("FRIT_SEARCH");
  return value != nullptr && value == std::string_view("exhaustive") ? Search::exhaustive : Search::heuristic;
}

Numerics numerics() {
  const std::lock_guard lock(mutex);
  return current;
}

void set_numerics(const Numerics& numerics) {
  const std::lock_guard lock(mutex);
  current = numerics;
}

double expected_error(DType dtype, DType precision, Device device) {
  if (dtype == DType::f64) return 1e-10;
  if (is_half(dtype) || is_half(precision)) return 2e-2;
  return device.kind == DeviceKind::cuda && numerics().tf32 ? 2e-3 : 2e-5;
}

}  // namespace frit
