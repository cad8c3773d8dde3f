#include "frit/core/cuda/captured_work.h"

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"
#include "frit/core/cuda/stream.h"

namespace frit::cuda {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { (void)cudaGraphDestroy(graph); }
};
using OwnedGraph = std::unique_ptr<CUgraph_st, DestroyGraph>;

}  // namespace

void CapturedWork::record(int index, const std::function<void()>& work) {
  // A stream of its own: what other threads start meanwhile is not recorded.
  const Stream owner(index);
  const cudaStream_t recording = owner.get();
  FRIT_CUDA_CALL(cudaStreamBeginCapture(recording, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t captured = nullptr;
  try {
    const StreamScope scope(index, recording);
    work();
  } catch (...) {
    (void)cudaStreamEndCapture(recording, &captured);
    const OwnedGraph discarded(captured);
    throw;
  }
  FRIT_CUDA_CALL(cudaStreamEndCapture(recording, &captured));
  const OwnedGraph graph(captured);
  cudaGraphExec_t executable = nullptr;
  FRIT_CUDA_CALL(cudaGraphInstantiate(&executable, captured, 0));
  graph_ = std::shared_ptr<void>(executable, [](void* handle) { (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle)); });
  index_ = index;
}

void CapturedWork::launch() const {
  FRIT_CHECK(recorded());
  FRIT_CUDA_CALL(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_.get()), compute_stream(index_)));
}

}  // namespace frit::cuda
