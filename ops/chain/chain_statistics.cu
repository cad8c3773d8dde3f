// Chains and the statistics of their results on CUDA devices.

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"
#include "frit/ops/chain/chain_statistics.h"
#include "frit/ops/operator/scratch_parts.h"
#include "frit/ops/operator/unplaced_call.h"

namespace frit::ops {
namespace {

/// A call whose chain has a kernel that finds the moments of what it gives, which lie first in the call's scratch memory; else both are
/// computed in turn.
struct WithMoments {
  ChainAndNorm calls;
  ChainCall chain;
  const StagedKernel& kernel;
  Stages stages;
  std::int64_t moments = 0;  ///< their count

  explicit WithMoments(const KernelContext& context)
      : calls(context), chain(calls.chain(context)), kernel(chain.centre.op.cuda.staged), stages(chain.stages) {
    if (!kernel.moment_parts) return;
    stages.moments.parts = kernel.moment_parts(chain.centre, stages);
    moments = calls.image.dim(0) * calls.image.dim(1) * stages.moments.parts * PartialMoments::count;
    stages.moments.numbers = scratch_part<double>(context, 0);
  }

  bool has() const { return stages.moments.parts > 0; }
  std::size_t bytes() const { return aligned(moments, sizeof(double)); }
};

void run(const KernelContext& context) {
  const WithMoments call(context);
  if (!call.has()) return run_statistics_in_parts(context);
  const std::span<std::byte> scratch = context.scratch.subspan(call.bytes());
  FRIT_CUDA_CALL(cudaMemsetAsync(call.stages.moments.numbers, 0, call.bytes(), context.stream));
  KernelContext centre = call.chain.centre;
  centre.scratch = scratch;
  call.kernel.run(centre, call.stages);
  const OperatorCall& norm = call.calls.own.norm;
  norm.op->cuda.run(
      {*norm.op, norm.attributes, call.calls.norm_inputs, call.calls.norm_outputs, scratch, context.stream, {}, call.stages.moments});
}

std::size_t scratch(const InferContext& call) {
  const UnplacedCall unplaced(call, cuda::current_device());
  return WithMoments(unplaced.context()).bytes() + scratch_of_statistics_in_parts(call, cuda::current_device());
}

std::string describe(const KernelContext& context) {
  const WithMoments call(context);
  const std::string& centre = call.chain.centre.op.name;
  if (!call.has()) return concat("in its parts, around ", centre);
  return concat("around ", centre, ": ", call.kernel.describe(call.chain.centre, call.stages), ", with moments");
}

void prepare(const KernelContext& context) {
  const WithMoments call(context);
  if (call.has()) return call.kernel.prepare(call.chain.centre, call.stages);
  prepare_chain(call.calls.chain(context));
}

bool takes_parts(const KernelContext& context) {
  const WithMoments call(context);
  return call.has() && call.kernel.takes_parts && call.kernel.takes_parts(call.chain.centre, call.stages);
}

/// Images as kernels like them.
CallLayouts channels_last(std::span<const TensorType> inputs) {
  CallLayouts layouts;
  for (const TensorType& type : inputs) layouts.inputs.push_back(type.shape.rank() < 4 ? Layout::contiguous : Layout::channels_last);
  layouts.outputs = {Layout::channels_last};
  return layouts;
}

std::optional<Attributes> join_norm(const OperatorCall& call, const OperatorCall& norm, std::span<const TensorType> inputs,
                                    std::int64_t norm_inputs) {
  if (cuda::device_count() == 0 || !norm.op->reads_moments) return std::nullopt;
  const Operator &op = registry().find("chain_statistics"), &chain = registry().find("chain");
  ChainStatisticsAttributes own{{}, norm, norm_inputs};
  own.call = call.op == &chain ? call.attributes.as<ChainAttributes>().call : StagedCall{{}, 0, call, {}};
  if (!own.call.centre.op->cuda.staged.moment_parts) return std::nullopt;
  const Attributes attributes = own;
  const UnplacedCall unplaced({op, inputs, attributes, channels_last(inputs)}, cuda::current_device());
  return WithMoments(unplaced.context()).has() ? std::optional(attributes) : std::nullopt;
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(chain_statistics) {
  Kernel kernel = chain_statistics_kernel(run, scratch, &Operator::cuda);
  kernel.prepare = prepare;
  kernel.halves = true;
  kernel.takes_parts = takes_parts;
  kernel.describe = describe;
  kernel.join_norm = join_norm;
  registry.add_cuda("chain_statistics", kernel);
}
