#pragma once

#include <functional>
#include <memory>

namespace frit::cuda {

/// Work on a CUDA device that is recorded once, as a CUDA graph, and launched any number of times. It uses the same memory at every launch.
class CapturedWork {
 public:
  /// Calls `work`, whose launches and asynchronous copies on the device's compute stream are recorded instead of run. Throws what `work`
  /// throws, and ErrorKind::device for something that cannot be recorded.
  void record(int index, const std::function<void()>& work);
  bool recorded() const { return graph_ != nullptr; }
  /// On the compute stream.
  void launch() const;

 private:
  int index_ = 0;
  std::shared_ptr<void> graph_;  // a cudaGraphExec_t
};

}  // namespace frit::cuda
