// How a convolution runs on a CUDA device: by which kernel, with what converted first and what program after.

#include <optional>
#include <string_view>

#include "frit/core/cuda/device.h"
#include "frit/ops/convolution/convolution_epilogue.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/convolution_stages.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/convolution/planned_convolution.h"
#include "frit/ops/convolution/tiles/patch_convolution.h"
#include "frit/ops/convolution/tiles/phase_convolution.h"
#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/elementwise/staged_kernel.cuh"
#include "frit/ops/operator/registry.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/operator/unplaced_call.h"

namespace frit::ops {
namespace {

/// With the image in the weight's dtype, in memory of its own.
ConvolutionCall with_image(const ConvolutionCall& call, void* memory) {
  ConvolutionCall converted = call;
  Tensor& image = converted.operands.input;
  const Layout layout = image.is_contiguous() ? Layout::contiguous : Layout::channels_last;
  image = Tensor::over(memory, image.shape(), call.operands.weight.dtype(), image.device(), nullptr, layout);
  return converted;
}

/// Of a float32 image with halves, which one kernel reads as it is, where another is not faster by more than the conversion takes.
bool converts_image(const ConvolutionCall& call) {
  return call.kind == cudnn::ConvolutionKind::forward && call.operands.input.dtype() != call.operands.weight.dtype() &&
         (!tap_convolution(call) || narrow_patch_convolution(with_image(call, nullptr)));
}

constexpr std::optional<OwnKernel> (*own_kernels[])(const ConvolutionCall&) = {
    narrow_product,
    few_pixel_product,
    narrow_weight_gradient,
    pointwise_product,
    depthwise_convolution,
    depthwise_weight_gradient,
    narrow_patch_convolution,
    swept_convolution,
    tap_convolution,
    tap_product,
    patch_convolution,
    row_product,
    window_product,
    phase_convolution,
};

/// The first that takes a call, of those that have enough scratch memory; none if none does.
std::optional<OwnKernel> own_kernel(const ConvolutionCall& call, std::optional<std::size_t> scratch_bytes = {}) {
  for (const auto& kernel_of : own_kernels) {
    std::optional<OwnKernel> kernel = kernel_of(call);
    if (kernel && (!scratch_bytes || kernel->scratch_bytes <= *scratch_bytes)) return kernel;
  }
  return std::nullopt;
}

/// Of an empty batch, or without a result.
bool is_empty(const ConvolutionCall& call) { return call.geometry.batch == 0 || call.operands.result(call.kind).elements() == 0; }

std::size_t converted_bytes(const ConvolutionCall& call) {
  return aligned_bytes(static_cast<std::size_t>(call.operands.input.elements()) * size_of(call.operands.weight.dtype()));
}

void run(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream) {
  if (call.operands.result(call.kind).elements() == 0) return;
  if (call.geometry.batch > 0 && converts_image(call)) {
    Tensor own;  // where there is no room
    const std::size_t bytes = converted_bytes(call);
    const bool room = bytes <= scratch.size();
    if (!room) own = Tensor::empty(call.operands.input.shape(), call.operands.weight.dtype(), call.operands.input.device());
    const ConvolutionCall converted = with_image(call, room ? scratch.data() : own.raw());
    copy(converted.operands.input, call.operands.input);
    return run(converted, scratch.subspan(room ? bytes : 0), stream);
  }
  bool finished = false;
  const std::optional<OwnKernel> own = call.geometry.batch > 0 ? own_kernel(call, scratch.size()) : std::nullopt;
  FRIT_CHECK(call.moments.parts == 0 || (own && own->moment_parts == call.moments.parts));
  if (own) {
    own->run(scratch, stream);
    finished = own->finishes;
  } else if (call.geometry.batch > 0 && run_plan(call, scratch, stream)) {
    finished = !call.epilogue.steps.empty();
  } else {
    direct_convolution(call.kind, call.geometry, call.operands, stream);
  }
  if (!finished && call.finish) call.finish(call.operands, stream);
}

void prepare(const ConvolutionCall& call) {
  if (is_empty(call)) return;
  if (converts_image(call)) return prepare(with_image(call, nullptr));
  const std::optional<OwnKernel> own = own_kernel(call);
  if (own && own->prepare) own->prepare();
}

std::size_t scratch_for(const ConvolutionCall& call) {
  if (is_empty(call)) return 0;
  if (converts_image(call)) return converted_bytes(call) + scratch_for(with_image(call, nullptr));
  const std::optional<OwnKernel> own = own_kernel(call);
  return own ? own->scratch_bytes : plan_scratch(call);
}

std::string describe(const ConvolutionCall& call) {
  if (call.operands.result(call.kind).elements() == 0) return "nothing to compute";
  if (call.geometry.batch == 0) return "by its definition, of an empty batch";
  if (converts_image(call)) return concat("image converted, ", describe(with_image(call, nullptr)));
  const std::optional<OwnKernel> own = own_kernel(call);
  return own ? own->schedule : describe_plan(call);
}

/// Whether the kernel that is the fastest for such images takes parts of others. cuDNN 9.19's plans do not: they make wholes of them first,
/// which takes longer than to join the parts.
bool takes_parts(const ConvolutionCall& parts, const ConvolutionCall& of_wholes) {
  const auto& [input, weight, output, bias, others] = parts.operands;
  if (!has_channel_vectors(input) || !has_channel_vectors(output) || !weight.is_contiguous(weight.layout())) return false;
  if (is_empty(parts) || converts_image(of_wholes)) return false;
  const std::optional<OwnKernel> kernel = own_kernel(parts), usual = own_kernel(of_wholes);
  return kernel && kernel->takes_parts && usual && std::string_view(kernel->schedule) == usual->schedule;
}

/// The current one, if there is any.
Device device_of_calls() { return cuda::device_count() > 0 ? cuda::current_device() : Device{DeviceKind::cuda}; }

/// Of a call that is yet to come, images as kernels like them.
std::vector<Tensor> channels_last(std::span<const TensorType> types) {
  std::vector<Tensor> tensors;
  for (const TensorType& type : types) {
    const Layout layout = type.shape.rank() < 4 ? Layout::contiguous : Layout::channels_last;
    tensors.push_back(Tensor::over(nullptr, type.shape, type.dtype, device_of_calls(), nullptr, layout));
  }
  return tensors;
}

/// A pass over the result where it lies.
void run_program(const ElementwiseAttributes& program, const Tensor& result, const std::vector<Tensor>& others, CUstream_st* stream) {
  const Operator& op = registry().find("elementwise");
  const Attributes attributes = program;
  std::vector<Tensor> operands = {result};
  operands.insert(operands.end(), others.begin(), others.end());
  op.cuda.run({op, attributes, operands, std::span(&result, 1), {}, stream});
}

/// With what follows it; refers to that.
ConvolutionCall with_program(ConvolutionCall call, const Stages& stages) {
  call.moments = stages.moments;
  if (stages.after.instructions.empty()) return call;
  const cudnn::ConvolutionKind kind = call.kind;
  call.program = &stages.after;
  call.operands.others.assign(stages.after_inputs.begin(), stages.after_inputs.end());
  call.finish = [program = ElementwiseAttributes{stages.after}, kind](const cudnn::ConvolutionOperands& operands, CUstream_st* stream) {
    run_program(program, operands.result(kind), operands.others, stream);
  };
  if (kind == cudnn::ConvolutionKind::forward) {
    call.epilogue = epilogue_of(stages.after, types_of(stages.after_operands(call.operands.output))).value_or(ConvolutionEpilogue{});
  }
  return call;
}

/// answer(kernel) of the kernel of frit's own that computes the call, maybe of a converted image; 0 where there is none.
template <class Answer>
auto of_own_kernel(const ConvolutionCall& call, const Answer& answer) -> decltype(answer(OwnKernel())) {
  if (is_empty(call)) return {};
  if (converts_image(call)) return of_own_kernel(with_image(call, nullptr), answer);
  const std::optional<OwnKernel> own = own_kernel(call);
  return own ? answer(*own) : decltype(answer(*own))();
}

/// Whether the kernel that computes the call takes any program.
bool is_compiled_with_program(const ConvolutionCall& call) {
  return of_own_kernel(call, [](const OwnKernel& own) { return static_cast<bool>(own.prepare); });
}

/// Whether a program is to follow a call: any where there is such a kernel, else what libraries are asked for. Other programs are better
/// joined with what reads the result.
bool leads(ReadConvolution read, const InferContext& call, const ElementwiseProgram& after, std::span<const TensorType> operands) {
  const TensorType result = registry().find("elementwise").infer_types(operands, ElementwiseAttributes{after}).at(0);
  const std::vector<Tensor> inputs = channels_last(call.inputs), outputs = channels_last({&result, 1}),
                            others = channels_last(operands.subspan(1));
  const ElementwiseProgram none;
  const ConvolutionCall followed = with_program(read(inputs, outputs, call.attributes), {none, 0, {}, {}, after, others});
  if (cuda::device_count() > 0 && is_compiled_with_program(followed)) return true;
  const ConvolutionGeometry& g = followed.geometry;
  const bool depthwise = g.groups > 1 && g.out_channels == 1;
  const bool in_library = !depthwise && on_tensor_cores(result.dtype);
  return !followed.epilogue.steps.empty() && (in_library || followed.epilogue.is_exact());
}

StagedKernel with_programs(ReadConvolution read) {
  const auto call_of = [read](const KernelContext& call, const Stages& stages) {
    return with_program(read(call.inputs, call.outputs, call.attributes), stages);
  };
  StagedKernel staged;
  // A pass over the result cannot change its type.
  staged.takes = [=](const KernelContext& call, const Stages& stages) {
    return call.outputs[0].dtype() == call.inputs[1].dtype() || is_compiled_with_program(call_of(call, stages));
  };
  staged.run = [=](const KernelContext& call, const Stages& stages) { run(call_of(call, stages), call.scratch, call.stream); };
  staged.prepare = [=](const KernelContext& call, const Stages& stages) { prepare(call_of(call, stages)); };
  staged.scratch = [=](const KernelContext& call, const Stages& stages) { return scratch_for(call_of(call, stages)); };
  staged.describe = [=](const KernelContext& call, const Stages& stages) { return describe(call_of(call, stages)); };
  staged.leads = [=](const InferContext& call, const ElementwiseProgram& after, std::span<const TensorType> operands) {
    return leads(read, call, after, operands);
  };
  staged.mixes_layouts = true;
  staged.moment_parts = [=](const KernelContext& call, const Stages& stages) {
    return of_own_kernel(call_of(call, stages), [](const OwnKernel& own) { return own.moment_parts; });
  };
  staged.takes_parts = [=](const KernelContext& call, const Stages& stages) {
    const std::vector<Tensor> inputs = wholes(call.inputs), outputs = wholes(call.outputs);
    const KernelContext of_wholes{call.op, call.attributes, inputs, outputs, {}};
    const ConvolutionCall own = call_of(call, stages);
    return ConvolutionStages::finishes(own) && takes_parts(own, call_of(of_wholes, stages));
  };
  return staged;
}

}  // namespace

Kernel convolution_kernel(ReadConvolution read) {
  return {.run = [read](const KernelContext& call) { run(read(call.inputs, call.outputs, call.attributes), call.scratch, call.stream); },
          .prepare = [read](const KernelContext& call) { prepare(read(call.inputs, call.outputs, call.attributes)); },
          .takes_parts =
              [read](const KernelContext& call) {
                const std::vector<Tensor> inputs = wholes(call.inputs), outputs = wholes(call.outputs);
                return takes_parts(read(call.inputs, call.outputs, call.attributes), read(inputs, outputs, call.attributes));
              },
          .halves = true,
          .scratch =
              [read](const InferContext& call) {
                const UnplacedCall unplaced(call, device_of_calls());
                const KernelContext context = unplaced.context();
                return scratch_for(read(context.inputs, context.outputs, context.attributes));
              },
          .any_layout_inputs = {0, 1},
          .any_layout_outputs = {0},
          .prefers_channels_last = true,
          .library = cudnn::version,
          .staged = with_programs(read),
          .describe = [read](const KernelContext& call) { return describe(read(call.inputs, call.outputs, call.attributes)); }};
}

}  // namespace frit::ops
