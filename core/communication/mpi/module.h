#pragma once

#include <cstddef>
#include <functional>

// What libfrit-mpi.so has: MPI's calls that frit makes, as functions without MPI's types, so that this folder's sources alone know the MPI
// that they are built with, and only a program that mpirun started loads it. Both are compiled by one compiler: what passes between them is
// C++. Each gives 0, `timed_out` if the others did not make the same call within `seconds`, of all processes in one, `told` in the others,
// or MPI's error. From any thread.

namespace frit::mpi {

inline constexpr int timed_out = -1, told = -2;
inline constexpr std::size_t unit_bytes = 4096;

struct Functions {
  /// `library` gets the name of the MPI, at most `capacity` bytes. Nobody can be asked who is missing: `timed_out` in all that wait.
  int (*start)(int* rank, int* size, char* library, std::size_t capacity, double seconds);
  /// Has MPI end when the process does.
  void (*finish_at_exit)();
  /// Of more than 2 GiB, `bytes` is a multiple of `unit_bytes`.
  int (*all_gather)(const void* own, void* all, std::size_t bytes, double seconds);
  int (*all_to_all)(const void* sent, void* received, std::size_t bytes, double seconds);
  int (*broadcast)(void* data, std::size_t bytes, int root, double seconds);
  void (*abort)();
  /// Tells those who ask that this process waits.
  int (*tell_that_it_waits)();
  /// Asks the others whether they wait too, and gives 0 as soon as `done`.
  int (*call_roll)(const std::function<bool()>& done);
  /// After `timed_out`: by rank, whether the process waited; null if MPI had not come that far.
  const bool* (*present)();
  void (*describe_error)(int error, char* text, std::size_t capacity);
};

/// The name of the module's one symbol: a function that returns these, and its type.
inline constexpr const char* entry_name = "frit_mpi_functions";
using Entry = const Functions* (*)();

}  // namespace frit::mpi
