#include "frit/core/communication/mpi/module.h"

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "frit/core/communication/mpi/roll_call.h"
#include "frit/core/communication/waiting.h"

namespace frit::mpi {
namespace {

bool started_here = false;
std::optional<RollCall> roll_call;

template <class... Parameters, class... Arguments>
int call(int (*function)(Parameters...), Arguments... arguments) {
  const std::lock_guard lock(calls());
  return function(arguments...);
}

void copy_text(const char* from, char* to, std::size_t capacity) {
  const std::size_t length = std::min(std::strlen(from), capacity - 1);
  std::memcpy(to, from, length);
  to[length] = '\0';
}

/// "Open MPI v4.1.4" of "Open MPI v4.1.4, package: ..."; "MPICH 4.0.2" of "MPICH Version:\t4.0.2\nMPICH Release date: ...".
std::string library_name() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  text[std::strcspn(text, ",\n")] = '\0';
  std::istringstream words(text);
  std::string name;
  for (std::string word; words >> word;) {
    if (word != "Version:") name += (name.empty() ? "" : " ") + word;
  }
  return name;
}

/// Looks at once, then after a while again and again: a process that waits leaves its core to the others.
int wait(MPI_Request request, double most_seconds) {
  int error = MPI_SUCCESS;
  const auto done = [&] {
    int complete = 0;
    error = call(MPI_Test, &request, &complete, MPI_STATUS_IGNORE);
    return error || complete;
  };
  for (Waiting waiting; !done();) {
    const double waited = waiting.seconds();
    if (waited > 100e-6) std::this_thread::yield();
    if (waited < 0.05) continue;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (!roll_call && waited > most_seconds) return timed_out;
    if (!roll_call) continue;
    if (const int end = roll_call->answer()) return end;
    if (waited < most_seconds) continue;
    if (const int end = roll_call->ask(done)) return end;
    break;
  }
  return error;
}

int connect(int rank, int size, double seconds) {
  if (roll_call) return MPI_SUCCESS;
  static MPI_Comm own;
  MPI_Request request;
  if (const int error = call(MPI_Comm_idup, MPI_COMM_WORLD, &own, &request)) return error;
  if (const int error = wait(request, seconds)) return error;
  roll_call.emplace(own, rank, size);
  return MPI_SUCCESS;
}

int start(int* rank, int* size, char* library, std::size_t capacity, double seconds) {
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
  copy_text(library_name().c_str(), library, capacity);
  return connect(*rank, *size, seconds);
}

/// MPI cannot be started a second time, but a program may need it once more.
void finish_at_exit() {
  static const int registered = started_here ? std::atexit([] { (void)MPI_Finalize(); }) : 0;
  (void)registered;
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
  const int error = call(MPI_Iallgather, own, unit.count(), unit.type(), all, unit.count(), unit.type(), MPI_COMM_WORLD, &request);
  return error ? error : wait(request, seconds);
}

int all_to_all(const void* sent, void* received, std::size_t bytes, double seconds) {
  const Unit unit(bytes);
  MPI_Request request;
  const int error = call(MPI_Ialltoall, sent, unit.count(), unit.type(), received, unit.count(), unit.type(), MPI_COMM_WORLD, &request);
  return error ? error : wait(request, seconds);
}

int broadcast(void* data, std::size_t bytes, int root, double seconds) {
  const Unit unit(bytes);
  MPI_Request request;
  const int error = call(MPI_Ibcast, data, unit.count(), unit.type(), root, MPI_COMM_WORLD, &request);
  return error ? error : wait(request, seconds);
}

void abort_all() {
  constexpr int code = 5;  // of the program frit for an error of a device
  (void)call(MPI_Abort, MPI_COMM_WORLD, code);
}

int tell_that_it_waits() { return roll_call->answer(); }
int call_roll(const std::function<bool()>& done) { return roll_call->ask(done); }
const bool* present() { return roll_call ? roll_call->present() : nullptr; }

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
  static constexpr Functions functions = {start,     finish_at_exit,     all_gather, all_to_all, broadcast,
                                          abort_all, tell_that_it_waits, call_roll,  present,    describe_error};
  return &functions;
}
