// What of cuDNN is kept for the process's life, and the running of plans.

#include "frit/ops/libraries/cuda/cudnn.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "frit/core/cuda/device.h"
#include "frit/core/thread_pool.h"
#include "frit/ops/libraries/cuda/channel_bias.h"
#include "frit/ops/libraries/cuda/cudnn_epilogue.h"
#include "frit/ops/libraries/cuda/cudnn_search.h"
#include "frit/ops/libraries/library_plans.h"

namespace frit::cudnn {
namespace {

/// Never destroyed, as static objects may run convolutions. The lock also keeps threads from using a handle at once.
struct Library {
  std::mutex mutex;
  std::map<int, std::vector<cudnnHandle_t>> handles;
  std::map<ConvolutionKey, std::unique_ptr<ConvolutionPlan>> plans;

  std::span<const cudnnHandle_t> handles_of(int device, std::size_t count) {
    std::vector<cudnnHandle_t>& made = handles[device];
    (void)cuda::compute_stream(device);  // makes the device current
    while (made.size() < count) {
      const ops::LibraryLoad load;
      cudnnHandle_t handle = nullptr;
      FRIT_CUDNN_CALL(cudnnCreate(&handle));
      made.push_back(handle);
    }
    return std::span(made).first(count);
  }
};

Library& library() {
  static auto& library = *new Library;
  return library;
}

/// See ConvolutionPlan::constants.
Tensor constants_of(int device) {
  static auto& tensors = *new std::map<int, Tensor>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  Tensor& tensor = tensors[device];
  if (!tensor.defined()) {
    Tensor numbers = Tensor::zeros({2, 4});
    numbers.span<float>()[0] = 3;
    numbers.span<float>()[4] = 1.0f / 6;
    tensor = numbers.to(Device{DeviceKind::cuda, device});
    cuda::synchronize(device);
  }
  return tensor;
}

/// Half-precision convolutions in three dimensions are wrong in these versions (PyTorch issues 163539, 166122, 166643).
void refuse_wrong_versions(const ConvolutionKey& key) {
  const std::size_t number = cudnnGetVersion();
  if (!is_half(key.dtype) || ConvolutionShapes(key).image_rank() == 2 || number < 90800 || number >= 91500) return;
  fail(ErrorKind::device, version(), " computes three-dimensional convolutions of ", name_of(key.dtype),
       " wrongly, as versions 9.8 to 9.14 do: use another version, or float32");
}

/// Before version 9.3, elements are counted in 32 bits.
bool is_too_large(const ConvolutionKey& key) {
  const ConvolutionShapes shapes(key);
  return cudnnGetVersion() < 90300 && std::max(element_count(shapes.input), element_count(shapes.output)) > INT32_MAX;
}

}  // namespace

ConvolutionPlan::ConvolutionPlan(const ConvolutionKey& for_key, Finish to_finish, Configuration from, cudnnHandle_t handle)
    : key(for_key),
      finish(std::move(to_finish)),
      facts(std::move(from.plan)),
      configuration(std::move(from.descriptor)),
      descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
  descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle).set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration).finalize();
  facts.workspace = descriptor.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (facts.fused_epilogue && reads_constants(key.epilogue)) constants = constants_of(key.device);
}

void start(const ConvolutionPlan& plan, const ConvolutionOperands& operands, void* workspace, cudnnHandle_t handle, CUstream_st* stream) {
  std::vector<std::int64_t> ids = {input_id, weight_id, output_id};
  std::vector<void*> pointers = {operands.input.raw(), operands.weight.raw(), operands.output.raw()};
  if (plan.facts.fused_bias) {
    ids.push_back(bias_id);
    pointers.push_back(operands.bias.raw());
  }
  for (std::size_t i = 0; plan.facts.fused_epilogue && i < operands.others.size(); ++i) {
    ids.push_back(first_other_id + static_cast<std::int64_t>(i));
    pointers.push_back(operands.others[i].raw());
  }
  if (plan.constants.defined()) {
    ids.insert(ids.end(), {three_id, sixth_id});
    pointers.insert(pointers.end(), {plan.constants.raw(), plan.constants.slice(0, 1, 2).raw()});
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(ids));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(pointers));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace).finalize();
  FRIT_CUDNN_CALL(cudnnSetStream(handle, stream));
  FRIT_CUDNN_CALL(cudnnBackendExecute(handle, plan.descriptor.raw(), pack.raw()));
  if (plan.key.bias && !plan.facts.fused_bias) ops::add_channel_bias(operands.result(plan.key.kind), operands.bias, stream);
  if (!plan.key.epilogue.steps.empty() && !plan.facts.fused_epilogue) plan.finish(operands, stream);
}

std::string version() {
  const std::size_t number = cudnnGetVersion();
  return concat("cuDNN ", number / 10000, '.', number / 100 % 100, '.', number % 100);
}

const Tensor& ConvolutionOperands::result(ConvolutionKind kind) const {
  if (kind == ConvolutionKind::forward) return output;
  return kind == ConvolutionKind::data_gradient ? input : weight;
}

const ConvolutionPlan* plan_for(const ConvolutionKey& key, const Finish& finish) {
  refuse_wrong_versions(key);
  if (is_too_large(key)) return nullptr;
  const std::lock_guard lock(library().mutex);
  auto& plans = library().plans;
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second.get();
  auto plan = remembered_plan(key, finish, library().handles_of(key.device, 1).front());
  if (!plan) {
    constexpr int most_builders = 16;
    const int builders = key.exhaustive ? std::min(thread_count(), most_builders) : 1;
    plan = search_plan(key, finish, library().handles_of(key.device, static_cast<std::size_t>(builders)));
  }
  return plans.emplace(key, std::move(plan)).first->second.get();
}

const ops::LibraryPlan& facts(const ConvolutionPlan& plan) { return plan.facts; }

void execute(const ConvolutionPlan& plan, const ConvolutionOperands& operands, void* workspace, CUstream_st* stream) {
  const std::lock_guard lock(library().mutex);
  start(plan, operands, workspace, library().handles_of(plan.key.device, 1).front(), stream);
}

}  // namespace frit::cudnn
