#pragma once

#include <cstddef>

// What libfrit-mpi.so has: MPI's calls that frit makes, in C, so that only this file's neighbour knows the MPI that it is built with, and
// only a program that mpirun started loads it. Each gives 0, `timed_out` if the others did not make the same call within `seconds`, or
// MPI's error.

namespace frit::mpi {

inline constexpr int timed_out = -1;
inline constexpr std::size_t unit_bytes = 4096;

struct Functions {
  /// `library` gets the name of the MPI, at most `capacity` bytes.
  int (*start)(int* rank, int* size, char* library, std::size_t capacity);
  /// Has MPI end when the process does.
  void (*finish_at_exit)();
  /// Of more than 2 GiB, `bytes` is a multiple of `unit_bytes`.
  int (*all_gather)(const void* own, void* all, std::size_t bytes, double seconds);
  int (*all_to_all)(const void* sent, void* received, std::size_t bytes, double seconds);
  int (*broadcast)(void* data, std::size_t bytes, int root, double seconds);
  void (*abort)();
  void (*describe_error)(int error, char* text, std::size_t capacity);
};

/// The name of the module's one symbol: a function that returns these, and its type.
inline constexpr const char* entry_name = "frit_mpi_functions";
using Entry = const Functions* (*)();

}  // namespace frit::mpi
