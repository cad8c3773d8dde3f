// Calls that are one kernel, with programs of elementwise operators before and after it, as one kernel that NVRTC compiles.

#include "frit/ops/elementwise/staged_kernel.cuh"

#include <algorithm>

#include "frit/core/cuda/device.h"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"

namespace frit::ops {
namespace {

/// What stands around a centre, as text and as arguments.
struct Surroundings {
  CompiledStage source, sink;

  Surroundings(const CentreKernel& centre, const KernelContext& call, const Stages& stages)
      : source(stages.before.instructions.empty()
                   ? stored_source(call.inputs[stages.input], "Source")
                   : compiled_source(stages.before, stages.before_inputs, stages.input_type.shape, {.name = "Source", .keeps_to_sample = centre.keeps_to_sample})),
        sink(stages.after.instructions.empty()
                 ? stored_sink(call.outputs[0], call.outputs[0].dtype(), "Sink")
                 : compiled_sink(stages.after, stages.after_inputs, call.outputs[0], call.outputs[0].shape(),
                                 {.name = "Sink", .keeps_to_sample = centre.keeps_to_sample, .result = call.outputs[0].dtype()})) {}
};

/// What is aligned is said to be, so that there is one way to read it.
std::string text_of(const CentreKernel& centre, const Surroundings& around, const Stages& stages) {
  const char* const source = stages.before.instructions.empty() ? "Source{source.data, true}" : "source";
  const char* const sink = stages.after.instructions.empty() ? "Sink{sink.data, true}" : "sink";
  return concat("#include \"", centre.header, "\"\n", stage_text_head, around.source.text, around.sink.text, "using Centre = ", centre.type,
                ";\nextern \"C\" __global__ void __launch_bounds__(", centre.shape.block.x,
                ") chain(const __grid_constant__ Centre centre, const __grid_constant__ Source source, const __grid_constant__ Sink sink) {\n",
                "  centre(", source, ", ", sink, ");\n}\n");
}

/// Programs compute in float64 where an operand is float64; so do kernels.
bool computes_alike(const Stages& stages) {
  const auto is_wide = [](const Tensor& operand) { return operand.dtype() == DType::f64; };
  const bool wide = std::any_of(stages.before_inputs.begin(), stages.before_inputs.end(), is_wide);
  return stages.before.instructions.empty() || wide == (stages.input_type.dtype == DType::f64);
}

}  // namespace

std::string staged_source(const CentreKernel& centre, const KernelContext& call, const Stages& stages) {
  return text_of(centre, Surroundings(centre, call, stages), stages);
}

StagedKernel staged_by(CentreRule rule) {
  const auto compile = [](const CentreKernel& centre, const Surroundings& around, const KernelContext& call, const Stages& stages) {
    const Device device = call.outputs[0].device();
    (void)cuda::compute_stream(device.index);  // makes the device the thread's
    return nvrtc::compile("chain", text_of(centre, around, stages), device.index).function;
  };
  StagedKernel staged;
  staged.takes = [rule](const KernelContext& call, const Stages& stages) {
    const bool stored = stages.before.instructions.empty();
    return nvrtc::is_available(call.outputs[0].device().index) && call.outputs[0].defined() && lies_in_channels(call.outputs[0]) && (!stored || lies_in_channels(call.inputs[stages.input])) &&
           computes_alike(stages) && is_stage_possible(stages.before_inputs, stages.input_type.shape) &&
           is_stage_possible(stages.after_inputs, call.outputs[0].shape()) && rule(call, stages).has_value();
  };
  staged.prepare = [rule, compile](const KernelContext& call, const Stages& stages) {
    const CentreKernel centre = rule(call, stages).value();
    (void)compile(centre, Surroundings(centre, call, stages), call, stages);
  };
  staged.run = [rule, compile](const KernelContext& call, const Stages& stages) {
    CentreKernel centre = rule(call, stages).value();
    Surroundings around(centre, call, stages);
    const void* const kernel = compile(centre, around, call, stages);
    FRIT_CHECK(kernel != nullptr);
    void* arguments[] = {centre.argument.data(), around.source.argument.data(), around.sink.argument.data()};
    FRIT_CUDA_CALL(cudaLaunchKernel(kernel, centre.shape.grid, centre.shape.block, arguments, 0, call.stream));
  };
  return staged;
}

}  // namespace frit::ops
