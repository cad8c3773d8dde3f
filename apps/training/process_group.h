#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "frit/core/communication/communicator.h"
#include "frit/core/error.h"

namespace frit::apps {

/// An error that all processes of a run throw alike: the first one says it.
class ErrorOfAll : public Error {
 public:
  using Error::Error;
};

/// The processes of one run; all make the same calls in the same order. Without a communicator it is this process alone.
class ProcessGroup {
 public:
  explicit ProcessGroup(std::shared_ptr<Communicator> communicator = nullptr) : communicator_(std::move(communicator)) {}

  int rank() const { return communicator_ ? communicator_->rank() : 0; }
  int size() const { return communicator_ ? communicator_->size() : 1; }
  bool is_first() const { return rank() == 0; }
  /// Null for one process.
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

  /// What the run comes to, the exit code. Of its errors an ErrorOfAll is printed once; another one says which process it is of.
  int run(const std::function<int()>& body) const;
  /// Runs what some processes may fail in. Then all throw an ErrorOfAll: what the first of them threw, and which one that is.
  void together(const std::function<void()>& body) const;
  /// Runs what compares the processes: what all throw alike becomes an ErrorOfAll.
  void alike(const std::function<void()>& body) const;
  /// Throws ErrorOfAll of ErrorKind::argument, naming `what`, a process and both texts, if the processes have different ones.
  void require_same(const std::string& what, const std::string& own) const;
  /// Likewise for each entry of a JSON object that all have; `prefix` stands before its name.
  void require_same_entries(const std::string& prefix, const std::string& json) const;
  std::string of_first(const std::string& own) const;
  std::vector<std::string> of_all(const std::string& own) const;
  std::vector<double> sum(const std::vector<double>& own) const;

 private:
  std::shared_ptr<Communicator> communicator_;
};

/// An interrupt of one process as one of all, which stop at the same place.
class SharedInterrupt {
 public:
  explicit SharedInterrupt(const ProcessGroup& group) : group_(group) {}

  /// The signal that some process was sent, or 0, the same in all. Several processes ask each other at every call that is `final`, and else
  /// a few times a second.
  int signal(bool final);

 private:
  using Clock = std::chrono::steady_clock;

  ProcessGroup group_;
  int agreed_ = 0;
  std::int64_t calls_ = 0, calls_until_next_ = 1;
  Clock::time_point last_ = Clock::now();
};

}  // namespace frit::apps
