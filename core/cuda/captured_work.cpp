#include "frit/core/cuda/captured_work.h"

#include <set>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"
#include "frit/core/cuda/stream.h"

namespace frit::cuda {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { (void)cudaGraphDestroy(graph); }
};
using OwnedGraph = std::unique_ptr<CUgraph_st, DestroyGraph>;

using Nodes = std::vector<cudaGraphNode_t>;

using Kept = std::set<std::shared_ptr<const void>>;
thread_local Kept* kept_with_recording = nullptr;

/// What the next thing to be recorded will wait for.
Nodes awaited(cudaStream_t recording) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  FRIT_CUDA_CALL(cudaStreamGetCaptureInfo(recording, &status, nullptr, nullptr, &nodes, nullptr, &count));
#else
  FRIT_CUDA_CALL(cudaStreamGetCaptureInfo(recording, &status, nullptr, nullptr, &nodes, &count));
#endif
  return {nodes, nodes + count};
}

void wait_for(cudaStream_t recording, Nodes nodes) {
#if CUDART_VERSION >= 13000
  FRIT_CUDA_CALL(cudaStreamUpdateCaptureDependencies(recording, nodes.data(), nullptr, nodes.size(), cudaStreamSetCaptureDependencies));
#else
  FRIT_CUDA_CALL(cudaStreamUpdateCaptureDependencies(recording, nodes.data(), nodes.size(), cudaStreamSetCaptureDependencies));
#endif
}

void record_parts(cudaStream_t recording, const std::vector<std::vector<int>>& before, const std::function<void(int)>& part) {
  std::vector<Nodes> last;  // of each part
  for (std::size_t i = 0; i < before.size(); ++i) {
    std::set<cudaGraphNode_t> nodes;
    for (const int other : before[i])
      nodes.insert(last[static_cast<std::size_t>(other)].begin(), last[static_cast<std::size_t>(other)].end());
    wait_for(recording, {nodes.begin(), nodes.end()});
    part(static_cast<int>(i));
    last.push_back(awaited(recording));
  }
}

}  // namespace

void CapturedWork::record(int index, const std::vector<std::vector<int>>& before, const std::function<void(int)>& part) {
  // A stream of its own: what other threads start meanwhile is not recorded.
  const Stream owner(index);
  const cudaStream_t recording = owner.get();
  FRIT_CUDA_CALL(cudaStreamBeginCapture(recording, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t captured = nullptr;
  Kept kept;
  try {
    const StreamScope scope(index, recording);
    kept_with_recording = &kept;
    record_parts(recording, before, part);
    kept_with_recording = nullptr;
  } catch (...) {
    kept_with_recording = nullptr;
    (void)cudaStreamEndCapture(recording, &captured);
    const OwnedGraph discarded(captured);
    throw;
  }
  FRIT_CUDA_CALL(cudaStreamEndCapture(recording, &captured));
  const OwnedGraph graph(captured);
  cudaGraphExec_t executable = nullptr;
  FRIT_CUDA_CALL(cudaGraphInstantiate(&executable, captured, 0));
  graph_ = std::shared_ptr<void>(executable, [kept](void* handle) { (void)cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(handle)); });
  index_ = index;
}

void CapturedWork::launch() const {
  FRIT_CHECK(recorded());
  FRIT_CUDA_CALL(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_.get()), compute_stream(index_)));
}

void keep_with_recording(const std::shared_ptr<const void>& used) {
  if (kept_with_recording != nullptr) kept_with_recording->insert(used);
}

}  // namespace frit::cuda
