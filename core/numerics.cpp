#include "frit/core/numerics.h"

#include <mutex>

namespace frit {
namespace {

std::mutex mutex;
Numerics current;

}  // namespace

Numerics numerics() {
  const std::lock_guard lock(mutex);
  return current;
}

void set_numerics(const Numerics& numerics) {
  const std::lock_guard lock(mutex);
  current = numerics;
}

}  // namespace frit
