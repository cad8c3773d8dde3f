#include "frit/core/communication/mpi/module.h"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace frit::mpi {
namespace {

bool started_here = false;

void copy_text(const char* from, char* to, std::size_t capacity) {
  const std::size_t length = std::min(std::strlen(from), capacity - 1);
  std::memcpy(to, from, length);
  to[length] = '\0';
}

int start(int* rank, int* size, char* library, std::size_t capacity) {
  int initialized = 0;
  if (const int error = MPI_Initialized(&initialized)) return error;
  if (!initialized) {
    int provided = 0;
    if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided)) return error;
    started_here = true;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, size);
  char version[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(version, &length);
  version[std::strcspn(version, ",\n")] = '\0';  // "Open MPI v4.1.4, package: ..."
  copy_text(version, library, capacity);
  return MPI_SUCCESS;
}

/// MPI cannot be started a second time, but a program may need it once more.
void finish_at_exit() {
  static const int registered = started_here ? std::atexit([] { (void)MPI_Finalize(); }) : 0;
  (void)registered;
}

/// Looks at once, then after a while again and again: a process that waits leaves its core to the others.
int wait(MPI_Request request, double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (;;) {
    int done = 0;
    if (const int error = MPI_Test(&request, &done, MPI_STATUS_IGNORE)) return error;
    if (done) return MPI_SUCCESS;
    const std::chrono::duration<double> waited = Clock::now() - begin;
    if (waited.count() > seconds) return timed_out;
    if (waited.count() > 100e-6) std::this_thread::yield();
    if (waited.count() > 0.05) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

/// Bytes in units of which an int can count them.
class Unit {
 public:
  explicit Unit(std::size_t bytes) {
    const std::size_t size = bytes <= INT_MAX ? 1 : unit_bytes;
    count_ = static_cast<int>(bytes / size);
    MPI_Type_contiguous(static_cast<int>(size), MPI_BYTE, &type_);
    MPI_Type_commit(&type_);
  }
  ~Unit() { MPI_Type_free(&type_); }
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int count_ = 0;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

int all_gather(const void* own, void* all, std::size_t bytes, double seconds) {
  const Unit unit(bytes);
  MPI_Request request;
  const int error = MPI_Iallgather(own, unit.count(), unit.type(), all, unit.count(), unit.type(), MPI_COMM_WORLD, &request);
  return error ? error : wait(request, seconds);
}

int all_to_all(const void* sent, void* received, std::size_t bytes, double seconds) {
  const Unit unit(bytes);
  MPI_Request request;
  const int error = MPI_Ialltoall(sent, unit.count(), unit.type(), received, unit.count(), unit.type(), MPI_COMM_WORLD, &request);
  return error ? error : wait(request, seconds);
}

int broadcast(void* data, std::size_t bytes, int root, double seconds) {
  const Unit unit(bytes);
  MPI_Request request;
  const int error = MPI_Ibcast(data, unit.count(), unit.type(), root, MPI_COMM_WORLD, &request);
  return error ? error : wait(request, seconds);
}

void abort_all() { MPI_Abort(MPI_COMM_WORLD, 1); }

void describe_error(int error, char* text, std::size_t capacity) {
  char described[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(error, described, &length) != MPI_SUCCESS) length = 0;
  described[length] = '\0';
  copy_text(described, text, capacity);
}

}  // namespace
}  // namespace frit::mpi

extern "C" [[gnu::visibility("default")]] const frit::mpi::Functions* frit_mpi_functions() {
  using namespace frit::mpi;
  static constexpr Functions functions = {start, finish_at_exit, all_gather, all_to_all, broadcast, abort_all, describe_error};
  return &functions;
}
