#pragma once

#include <functional>
#include <string>

namespace frit {

/// Tells the program of something that its user should know, though the work goes on. The library itself prints nothing: a warning is lost
/// unless the program has set a handler. Thread-safe.
void warn(const std::string& message);

using WarningHandler = std::function<void(const std::string& message)>;
void set_warning_handler(WarningHandler handler);

}  // namespace frit
