#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace frit::cuda {

/// Work on a CUDA device that is recorded once, as a CUDA graph, and launched any number of times. It uses the same memory at every launch.
class CapturedWork {
 public:
  /// Calls part(0), part(1), ..., whose launches and asynchronous copies on the device's compute stream are recorded instead of run. At a
  /// launch, part i waits for the earlier parts before[i], and may run next to the others. Throws what a part throws, and ErrorKind::device
  /// for something that cannot be recorded.
  void record(int index, const std::vector<std::vector<int>>& before, const std::function<void(int)>& part);
  bool recorded() const { return graph_ != nullptr; }
  /// On the compute stream.
  void launch() const;

 private:
  [[maybe_unused]] int index_ = 0;  // but in a build without CUDA
  std::shared_ptr<void> graph_;     // a cudaGraphExec_t
};

/// Called while a part is recorded: what it uses lives as long as the graph. Otherwise it does nothing.
void keep_with_recording(const std::shared_ptr<const void>& used);

}  // namespace frit::cuda
