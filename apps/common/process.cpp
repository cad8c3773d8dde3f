#include "apps/common/process.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iostream>
#include <new>
#include <system_error>

#include "apps/common/interrupt.h"
#include "apps/serving/stages.h"
#include "frit/core/error.h"

namespace frit::apps {
namespace {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::argument: return exit_usage;
    case ErrorKind::format: return 3;
    case ErrorKind::file_system: return exit_file_system;
    case ErrorKind::device: return 5;
    case ErrorKind::out_of_memory: return 6;
    case ErrorKind::diverged: return 7;
    case ErrorKind::interrupted: return 128 + interrupt_signal();
    case ErrorKind::bug: break;
  }
  return 1;
}

}  // namespace

void prepare_process() {
  note_process_start();
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
  } catch (const Error& error) {
    print_error(error.what());
    return exit_code(error.kind());
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
  errno = 0;
  std::cout.flush();
  if (std::cout || code != exit_success) return code;
  if (errno != 0 && errno != EPIPE && errno != EBADF) print_error(concat("stdout: ", std::strerror(errno)));
  return exit_file_system;
}

}  // namespace frit::apps
