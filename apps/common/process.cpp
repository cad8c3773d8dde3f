#include "apps/common/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <new>
#include <streambuf>
#include <system_error>

#include "apps/common/interrupt.h"
#include "apps/common/stages.h"
#include "frit/core/communication/transport.h"
#include "frit/core/io/file.h"

namespace frit::apps {
namespace {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::argument: return exit_usage;
    case ErrorKind::format: return 3;
    case ErrorKind::file_system: return exit_file_system;
    case ErrorKind::device: return exit_device;
    case ErrorKind::out_of_memory: return 6;
    case ErrorKind::diverged: return 7;
    case ErrorKind::interrupted: return 128 + interrupt_signal();
    case ErrorKind::bug: break;
  }
  return 1;
}

/// Standard output. The library's own buffer forgets why something was not written.
class OutputBuffer final : public std::streambuf {
 public:
  OutputBuffer() { setp(buffer_.begin(), buffer_.end()); }
  /// Of the first write that failed, an errno; 0 for none.
  int error() const { return error_; }

 protected:
  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    return traits_type::eq_int_type(c, traits_type::eof()) ? traits_type::not_eof(c) : sputc(traits_type::to_char_type(c));
  }
  int sync() override {
    for (const char* next = pbase(); next != pptr() && error_ == 0;) {
      const ssize_t count = ::write(STDOUT_FILENO, next, static_cast<std::size_t>(pptr() - next));
      if (count > 0) next += count;
      if (count == 0 || (count < 0 && errno != EINTR)) error_ = count == 0 ? ENOSPC : errno;
    }
    setp(buffer_.begin(), buffer_.end());
    return error_ == 0 ? 0 : -1;
  }

 private:
  std::array<char, 1 << 14> buffer_;
  int error_ = 0;
};

/// Never destroyed: std::cout is flushed after everything else.
OutputBuffer& standard_output() {
  static auto& buffer = *new OutputBuffer;
  return buffer;
}

}  // namespace

void prepare_process() {
  note_process_start();
  std::cout.rdbuf(&standard_output());
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  // A file that is opened must not become a standard stream. The mode makes printing to one that was closed an error.
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) >= 0) continue;
    const int opened = open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    if (opened >= 0 && opened != descriptor) close(opened);
  }
}

void print_error(const std::string& message) {
  std::string line = "frit: error: ";
  for (const char c : message) line += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  std::cout.flush();
  std::cerr << line << std::endl;
}

int report_current_exception() {
  try {
    throw;
  } catch (const ProcessLost& lost) {
    if (!lost.told()) print_error(lost.what());
    return exit_code(lost.kind());
  } catch (const Error& error) {
    print_error(error.what());
    return exit_code(error.kind());
  } catch (const ErrorTold& told) {
    return exit_code(told.kind);
  } catch (const OutputClosed&) {
    return exit_file_system;
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return exit_code(ErrorKind::out_of_memory);
  } catch (const std::system_error& error) {
    const bool no_thread = error.code() == std::errc::resource_unavailable_try_again;
    print_error(no_thread ? "out of memory: the system gives no further thread" : error.what());
    return exit_code(no_thread ? ErrorKind::out_of_memory : ErrorKind::bug);
  } catch (const std::exception& error) {
    print_error(concat("frit bug: ", error.what()));
  } catch (...) {
    print_error("frit bug: an exception of an unknown type");
  }
  return exit_code(ErrorKind::bug);
}

int finish_output(int code) {
  std::cout.flush();
  const int error = standard_output().error();
  if (error == 0 || code != exit_success) return code;
  if (error != EPIPE && error != EBADF) print_error(concat("standard output: ", reason(error)));
  return exit_file_system;
}

}  // namespace frit::apps
