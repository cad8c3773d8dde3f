#pragma once

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

/// Later work on the stream begins after the event's last mark.
void wait(CUstream_st* stream, const Event& event);

}  // namespace frit::cuda
