#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace frit::mpi {

/// MPI is told that only one thread at a time calls it: every call, none of which waits, holds this.
std::mutex& calls();

/// Who waits when a process has waited for too long: it asks all others, of whom those answer that wait too, in MPI's calls or for their
/// GPU. Of several that ask, the one of the lowest rank speaks for all, and tells them so.
class RollCall {
 public:
  RollCall(MPI_Comm own, int rank, int size);

  /// Answers those that have asked; `told` once another process has spoken.
  int answer();
  /// Gives 0 as soon as `done`, else `timed_out` if this process is to speak, or `told`.
  int ask(const std::function<bool()>& done);
  const bool* present() const { return present_.get(); }

 private:
  using Clock = std::chrono::steady_clock;
  enum Kind : int { question, answered, spoken };

  void send(Kind kind, int number, int rank);
  void send_to_others(Kind kind, int number);
  void take(const std::array<int, 2>& note, int from);

  MPI_Comm own_;  // for these messages
  int rank_, size_, number_ = 0;
  std::unique_ptr<bool[]> present_;
  std::atomic<bool> told_ = false;
  std::atomic<Clock::time_point> lower_asked_ = Clock::time_point();  // of the last question of a lower rank
  std::deque<std::array<int, 2>> sent_;                               // which MPI may read later
  std::mutex asks_;
};

}  // namespace frit::mpi
