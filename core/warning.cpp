#include "frit/core/warning.h"

#include <mutex>

namespace frit {
namespace {

struct Handler {
  std::mutex mutex;
  WarningHandler call;
};

Handler& handler() {
  static Handler instance;
  return instance;
}

}  // namespace

void warn(const std::string& message) {
  const std::lock_guard lock(handler().mutex);
  if (handler().call) handler().call(message);
}

void set_warning_handler(WarningHandler call) {
  const std::lock_guard lock(handler().mutex);
  handler().call = std::move(call);
}

}  // namespace frit
