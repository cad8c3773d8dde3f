#pragma once

#include <initializer_list>
#include <iosfwd>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

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

namespace detail {

/// Of the types of numbers, for all of which it is compiled in text.cpp: all files include this one, which so has no need of <ostream>.
template <class T>
void print_number(std::ostream& out, const void* value);

/// A part of a message: text, or a value and what prints it.
struct MessagePart {
  std::string_view text = {};
  const void* value = nullptr;
  void (*print)(std::ostream& out, const void* value) = nullptr;

  MessagePart(std::string_view part) : text(part) {}    // NOLINT: all of these are meant to convert
  MessagePart(const std::string& part) : text(part) {}  // NOLINT
  MessagePart(const char* part) : text(part) {}         // NOLINT
  template <class T>
  MessagePart(const T& part) : value(&part) {  // NOLINT
    if constexpr (std::is_arithmetic_v<T>) {
      print = print_number<T>;
    } else {
      print = [](std::ostream& out, const void* object) { out << *static_cast<const T*>(object); };
    }
  }
};

std::string joined(std::initializer_list<MessagePart> parts);

}  // namespace detail

/// The parts printed with operator<< one after another. Where it is called time does not count: it is compiled to be small.
template <class... Parts>
[[gnu::cold]] std::string concat(const Parts&... parts) {
  return detail::joined({detail::MessagePart(parts)...});
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
