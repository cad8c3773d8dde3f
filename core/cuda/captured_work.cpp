#include "frit/core/cuda/captured_work.h"

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"

namespace frit::cuda {
namespace {

struct DestroyStream {
  void operator()(cudaStream_t stream) const { (void)cudaStreamDestroy(stream); }
};
struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { (void)cudaGraphDestroy(graph); }
};
using OwnedStream = std::unique_ptr<CUstream_st, DestroyStream>;
using OwnedGraph = std::unique_ptr<CUgraph_st, DestroyGraph>;

}  // namespace

void CapturedWork::record(int index, const std::function<void()>& work) {
  (void)compute_stream(index);  // makes the device current
  // A stream of its own: what other threads start meanwhile is not recorded.
  cudaStream_t recording = nullptr;
  FRIT_CUDA_CALL(cudaStreamCreateWithFlags(&recording, cudaStreamNonBlocking));
  const OwnedStream owner(recording);
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
