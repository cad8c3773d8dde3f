#pragma once

#include <string>

#include "frit/core/error.h"

namespace frit::apps {

/// The exit codes of frit that no error kind gives.
enum ExitCode { exit_success = 0, exit_check_failed = 1, exit_usage = 2, exit_file_system = 4, exit_device = 5 };

/// Before anything else: signals that would end the process become errors of the call, the standard streams exist, and std::cout remembers
/// why it could not be written.
void prepare_process();

/// One line on stderr, "frit: error: ...".
void print_error(const std::string& message);

/// Thrown when the reader of standard output has gone: the program ends with exit code 4, and says nothing.
struct OutputClosed {};

/// Thrown when an error was reported already, or another process does it: the program ends with its exit code, and says nothing.
struct ErrorTold {
  ErrorKind kind;
};

/// Reports the exception that is being handled; returns the exit code for it.
int report_current_exception();

/// Flushes std::cout; returns `code`, or 4 if a success could not be printed whole. Quiet when the reader has gone.
int finish_output(int code);

}  // namespace frit::apps
