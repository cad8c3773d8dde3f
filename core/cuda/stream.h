#pragma once

#include <functional>
#include <memory>

struct CUevent_st;   // what cudaEvent_t points to
struct CUstream_st;  // what cudaStream_t points to

namespace frit::cuda {

/// A mark in the order of a stream's work. Copies share it; the last one waits for it.
class Event {
 public:
  /// Makes the device current. Only a timed event says when it was reached.
  explicit Event(int index, bool timed = false);

  void record(CUstream_st* stream) const;
  /// The host waits until the work before the last mark is done; not at all if none was made.
  void wait() const;
  CUevent_st* get() const { return handle_.get(); }

 private:
  [[maybe_unused]] int index_;  // but in a build without CUDA
  std::shared_ptr<CUevent_st> handle_;
};

/// A stream next to the device's compute stream, which waits for it, and it for the other, only where events say so. Copies share it; the
/// last one waits for its work.
class Stream {
 public:
  explicit Stream(int index);
  CUstream_st* get() const { return handle_.get(); }

 private:
  std::shared_ptr<CUstream_st> handle_;
};

/// What the host does while it waits for a device, whose work may wait for other processes, and when it has waited for too long.
struct WaitRules {
  double seconds;
  /// Several times a second.
  std::function<void()> meanwhile;
  /// After `seconds`: ends the process, unless `done` comes to be true. Nothing else would: work that is under way on a device cannot be
  /// taken back.
  std::function<void(const std::function<bool()>& done)> give_up;
};

/// Waits for it by the rules.
void wait_by(const WaitRules& rules, const std::function<bool()>& done);

/// While it lives, the host waits for a device by these rules. One at a time for each device.
class WaitLimit {
 public:
  WaitLimit(int index, WaitRules rules);
  ~WaitLimit();
  WaitLimit(const WaitLimit&) = delete;
  WaitLimit& operator=(const WaitLimit&) = delete;

 private:
  int index_;
};

/// Later work on the stream begins after the event's last mark.
void wait(CUstream_st* stream, const Event& event);

}  // namespace frit::cuda
