#include "frit/core/communication/mpi/roll_call.h"

#include <algorithm>
#include <thread>

#include "frit/core/communication/mpi/module.h"
#include "frit/core/communication/transport.h"
#include "frit/core/communication/waiting.h"

namespace frit::mpi {

std::mutex& calls() {
  static std::mutex mutex;
  return mutex;
}

RollCall::RollCall(MPI_Comm own, int rank, int size)
    : own_(own), rank_(rank), size_(size), present_(std::make_unique<bool[]>(static_cast<std::size_t>(size))) {}

int RollCall::answer() {
  const std::lock_guard lock(calls());
  for (;;) {
    int there = 0;
    MPI_Status status;
    if (const int error = MPI_Iprobe(MPI_ANY_SOURCE, 0, own_, &there, &status)) return error;
    if (!there) return told_ ? told : MPI_SUCCESS;
    std::array<int, 2> note{};
    if (const int error = MPI_Recv(note.data(), 2, MPI_INT, status.MPI_SOURCE, 0, own_, MPI_STATUS_IGNORE)) return error;
    take(note, status.MPI_SOURCE);
  }
}

void RollCall::take(const std::array<int, 2>& note, int from) {
  const auto [kind, number] = note;
  if (kind == spoken) told_ = true;
  if (kind == question || number == number_) present_[static_cast<std::size_t>(from)] = true;
  if (kind != question) return;
  if (from < rank_) lower_asked_ = Clock::now();
  send(answered, number, from);
}

void RollCall::send(Kind kind, int number, int rank) {
  MPI_Request request;
  if (MPI_Isend(sent_.emplace_back(std::array<int, 2>{kind, number}).data(), 2, MPI_INT, rank, 0, own_, &request) == MPI_SUCCESS)
    MPI_Request_free(&request);
}

void RollCall::send_to_others(Kind kind, int number) {
  const std::lock_guard lock(calls());
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) send(kind, number, r);
  }
}

int RollCall::ask(const std::function<bool()>& done) {
  const std::lock_guard one_at_a_time(asks_);
  const Clock::time_point earliest =
      Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(roll_call_seconds));
  {
    const std::lock_guard lock(calls());
    std::fill_n(present_.get(), size_, false);
    present_[static_cast<std::size_t>(rank_)] = true;
    ++number_;
  }
  send_to_others(question, number_);
  // One of a lower rank that has asked not long ago speaks, unless it comes to hang as well.
  for (Waiting waited; waited.seconds() < (lower_asked_.load() > earliest ? 3 : 1) * roll_call_seconds;) {
    if (done()) return MPI_SUCCESS;
    if (const int end = answer()) return end;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  told_ = true;  // in other threads of this process nothing more is said
  send_to_others(spoken, number_);
  for (Waiting waited; waited.seconds() < 0.1; std::this_thread::sleep_for(std::chrono::milliseconds(1))) (void)answer();  // sends
  return timed_out;
}

}  // namespace frit::mpi
