#include "frit/ops/norm/shared_slices.h"

#include "frit/ops/operator/run.h"
#include "frit/ops/operator/scratch_parts.h"

namespace frit::ops {
namespace {

std::int64_t processes_of(std::int64_t id) { return id == Communicator::no_id ? 1 : Communicator::of(id).size(); }

std::size_t bytes_of(std::int64_t slices, std::int64_t processes) { return aligned(2 * slices * processes, sizeof(double)); }

}  // namespace

SharedSlices::SharedSlices(const KernelContext& call, std::size_t image)
    : communicator_(call.as<BatchNormAttributes>().communicator),
      processes_(processes_of(communicator_)),
      slices_(call.inputs[image].dim(1)),
      all_(scratch_part<double>(call, 0)),
      own_(all_ + (communicator_ == Communicator::no_id ? 0 : 2 * slices_ * Communicator::of(communicator_).rank())),
      device_(call.inputs[image].device()),
      stream_(call.stream) {}

std::size_t SharedSlices::bytes(const InferContext& call, std::size_t image) {
  return bytes_of(call.shape(image)[1], processes_of(call.as<BatchNormAttributes>().communicator));
}

KernelContext SharedSlices::rest_of(const KernelContext& call) const {
  KernelContext rest = call;
  rest.scratch = call.scratch.subspan(bytes_of(slices_, processes_));
  return rest;
}

ProcessPairs SharedSlices::gather() const {
  const auto numbers = [&](double* memory, std::int64_t processes) {
    return Tensor::over(memory, {processes, 2, slices_}, DType::f64, device_, nullptr);
  };
  const Tensor own = numbers(own_, 1), all = numbers(all_, processes_);
  if (processes_ > 1 && slices_ > 0) Communicator::of(communicator_).all_gather(std::span(&own, 1), std::span(&all, 1), stream_);
  return {all_, processes_, slices_};
}

Kernel with_shared_slices(Kernel kernel, std::size_t image) {
  kernel.scratch = [rest = kernel.scratch, image](const InferContext& call) { return SharedSlices::bytes(call, image) + rest(call); };
  if (!kernel.staged.scratch) return kernel;
  kernel.staged.scratch = [rest = kernel.staged.scratch, image](const KernelContext& call, const Stages& stages) {
    const std::vector<TensorType> types = types_of(call.inputs);
    return SharedSlices::bytes({call.op, types, call.attributes}, image) + rest(call, stages);
  };
  return kernel;
}

}  // namespace frit::ops
