#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace frit {

/// What went wrong, as a caller may want to tell it apart. `bug` is ours; all others are the caller's or the machine's.
enum class ErrorKind { argument, format, file_system, device, out_of_memory, diverged, interrupted, bug };

/// The one exception that frit throws. The message names the operator or file, what was expected and what came.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// The parts printed with operator<< one after another. Where it is called time does not count: it is compiled to be small.
template <class... Parts>
[[gnu::cold]] std::string concat(const Parts&... parts) {
  std::ostringstream stream;
  stream.imbue(std::locale::classic());
  (stream << ... << parts);
  return stream.str();
}

template <class... Parts>
[[noreturn, gnu::cold]] void fail(ErrorKind kind, const Parts&... parts) {
  throw Error(kind, concat(parts...));
}

/// Throws ErrorKind::argument with the message unless `condition` holds.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) fail(ErrorKind::argument, parts...);
}

/// An invariant of frit's own: a failure is a bug here, never the caller's mistake.
#define FRIT_CHECK(condition)                                                                                           \
  do {                                                                                                                  \
    if (!(condition)) {                                                                                                 \
      ::frit::fail(::frit::ErrorKind::bug, "frit bug: ", #condition, " does not hold (", __FILE__, ":", __LINE__, ")"); \
    }                                                                                                                   \
  } while (false)

}  // namespace frit
