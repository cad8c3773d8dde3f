// Calls that are one kernel, with programs of elementwise operators before and after it, as one kernel that NVRTC compiles.

#include <algorithm>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/launch.cuh"
#include "frit/core/cuda/runtime.h"
#include "frit/core/cuda/vector.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

/// What NVRTC compiles for a call, and the kernel's arguments.
class StagedCentre {
 public:
  StagedCentre(const CentreKernel& centre, const Stages& stages, const Tensor& input, const Tensor& output)
      : centre_(centre),
        reads_program_(!stages.before.instructions.empty()),
        writes_program_(!stages.after.instructions.empty()),
        source_(reads_program_ ? compiled_source(stages.before, stages.before_inputs, stages.input_type.shape,
                                                 {.name = "Source", .keeps_to_sample = centre_.keeps_to_sample})
                               : stored_source(input, "Source")),
        sink_(writes_program_ ? compiled_sink(stages.after, stages.after_inputs, output, output.shape(),
                                              {.name = "Sink", .keeps_to_sample = centre_.keeps_to_sample, .result = output.dtype()})
                              : stored_sink(output, output.dtype(), "Sink")) {}

  /// What is aligned is said to be, so that there is one way to read it.
  std::string text() const {
    const std::string resident = centre_.resident_blocks > 0 ? concat(", ", centre_.resident_blocks) : "";
    return concat("#include \"", centre_.header, "\"\n", stage_text_head, source_.text, sink_.text, "using Centre = ", centre_.type,
                  ";\nextern \"C\" __global__ void __launch_bounds__(", centre_.threads, resident,
                  ") chain(const __grid_constant__ Centre centre,"
                  " const __grid_constant__ Source source, const __grid_constant__ Sink sink) {\n  centre(",
                  reads_program_ ? "source" : "Source{source.data, true}", ", ", writes_program_ ? "sink" : "Sink{sink.data, true}",
                  ");\n}\n");
  }

  const void* compile(Device device) const {
    const nvrtc::CompiledKernel kernel = nvrtc::compile("chain", text(), device.index);
    if (kernel.function == nullptr) fail(ErrorKind::bug, centre_.type, " was not compiled with its stages: ", kernel.obstacle);
    return kernel.function;
  }

  void launch(Device device, cudaStream_t stream) {
    void* arguments[] = {centre_.argument.data(), source_.argument.data(), sink_.argument.data()};
    const void* const kernel = compile(device);
    cuda::allow_shared_memory(kernel, centre_.shared_bytes);
    FRIT_CUDA_CALL(cudaLaunchKernel(kernel, dim3(centre_.blocks), dim3(centre_.threads), arguments, centre_.shared_bytes, stream));
    if (centre_.finish) centre_.finish(stream);
  }

 private:
  CentreKernel centre_;
  bool reads_program_, writes_program_;
  CompiledStage source_, sink_;
};

/// Programs compute in float64 where an operand is float64; so do kernels.
bool computes_alike(const Stages& stages) {
  const auto is_wide = [](const Tensor& operand) { return operand.dtype() == DType::f64; };
  const bool wide = std::any_of(stages.before_inputs.begin(), stages.before_inputs.end(), is_wide);
  return stages.before.instructions.empty() || wide == (stages.input_type.dtype == DType::f64);
}

/// As StagedKernel::takes, for a device that NVRTC compiles for.
struct Takes {
  CentreRule rule;

  std::optional<CentreKernel> centre(const KernelContext& call, const Stages& stages) const {
    const Tensor& output = call.outputs[0];
    const bool lies_so = output.defined() && (!call.op.staged_output || (output.rank() >= 4 && has_channel_vectors(output)));
    if (!lies_so || !computes_alike(stages)) return std::nullopt;
    if (stages.before.instructions.empty() && !lies_in_channels(call.inputs[stages.input])) return std::nullopt;
    if (!is_stage_possible(stages.before_inputs, stages.input_type.shape)) return std::nullopt;
    return is_stage_possible(stages.after_inputs, output.shape()) ? rule(call, stages) : std::nullopt;
  }
  bool operator()(const KernelContext& call, const Stages& stages) const {
    return nvrtc::is_available(call.outputs[0].device().index) && centre(call, stages).has_value();
  }
};

/// But for output 0, which a Sink writes.
bool reads_and_writes_wholes(const KernelContext& call) {
  const auto is_whole = [](const Tensor& tensor) { return !tensor.defined() || tensor.is_contiguous(tensor.layout()); };
  return std::ranges::all_of(call.inputs, is_whole) && std::ranges::all_of(call.outputs.subspan(1), is_whole);
}

/// As values_compiled says.
struct LargeValues {
  Takes takes;

  std::optional<CentreKernel> operator()(const KernelContext& call) const {
    constexpr std::int64_t least_elements = 1 << 20;
    const bool fits = !call.outputs[1].defined() && call.inputs[0].elements() >= least_elements;
    return fits && nvrtc::is_available(call.inputs[0].device().index) ? takes.centre(call, no_stages(call)) : std::nullopt;
  }
  static Stages no_stages(const KernelContext& call) {
    static const ElementwiseProgram none = {};
    return {none, 0, {call.inputs[0].dtype(), call.inputs[0].shape()}, {}, none, {}};
  }
};

}  // namespace

bool lies_in_channels(const Tensor& tensor) {
  return tensor.rank() >= 4 && tensor.is_contiguous(Layout::channels_last) && cuda::aligned_for_vectors(tensor.raw());
}

bool has_channel_vectors(const Tensor& tensor) {
  const std::int64_t pitch = tensor.pixel_pitch() * static_cast<std::int64_t>(size_of(tensor.dtype()));
  const bool lies_so = tensor.is_contiguous(Layout::channels_last) || (pitch > 0 && pitch % 16 == 0);
  return lies_so && cuda::aligned_for_vectors(tensor.raw());
}

std::string staged_source(const KernelContext& call, const Stages& stages) {
  const Takes* const takes = call.op.cuda.staged.takes.target<Takes>();
  const std::optional<CentreKernel> centre = takes == nullptr ? std::nullopt : takes->centre(call, stages);
  return centre ? centre_source(*centre, stages, call.inputs[stages.input], call.outputs[0]) : "";
}

std::string centre_source(const CentreKernel& centre, const Stages& stages, const Tensor& input, const Tensor& output) {
  return StagedCentre(centre, stages, input, output).text();
}

void run_centre(const CentreKernel& centre, const Stages& stages, const Tensor& input, const Tensor& output, CUstream_st* stream) {
  StagedCentre(centre, stages, input, output).launch(output.device(), stream);
}

void prepare_centre(const CentreKernel& centre, const Stages& stages, const Tensor& input, const Tensor& output) {
  (void)cuda::compute_stream(output.device().index);  // makes the device the thread's
  (void)StagedCentre(centre, stages, input, output).compile(output.device());
}

StagedKernel staged_by(CentreRule rule) {
  StagedKernel staged;
  staged.takes = Takes{rule};
  staged.takes_parts = [takes = Takes{rule}](const KernelContext& call, const Stages& stages) {
    return reads_and_writes_wholes(call) && takes(call, stages);
  };
  staged.prepare = [rule](const KernelContext& call, const Stages& stages) {
    prepare_centre(rule(call, stages).value(), stages, call.inputs[stages.input], call.outputs[0]);
  };
  staged.run = [rule](const KernelContext& call, const Stages& stages) {
    run_centre(rule(call, stages).value(), stages, call.inputs[stages.input], call.outputs[0], call.stream);
  };
  return staged;
}

Kernel values_compiled(Kernel kernel, CentreRule rule) {
  const LargeValues large{{std::move(rule)}};
  kernel.prepare = [large](const KernelContext& call) {
    if (const auto centre = large(call)) prepare_centre(*centre, large.no_stages(call), call.inputs[0], call.outputs[0]);
  };
  kernel.run = [large, run = std::move(kernel.run)](const KernelContext& call) {
    const auto centre = large(call);
    centre ? run_centre(*centre, large.no_stages(call), call.inputs[0], call.outputs[0], call.stream) : run(call);
  };
  kernel.describe = [large, describe = std::move(kernel.describe)](const KernelContext& call) -> std::string {
    return large(call) ? "compiled for its sizes" : describe ? describe(call) : "";
  };
  return kernel;
}

}  // namespace frit::ops
