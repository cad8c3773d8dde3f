// How a convolution runs on a CUDA device: by which kernel, with what converted first and what program after.

#include <algorithm>
#include <optional>

#include "frit/core/cuda/device.h"
#include "frit/ops/convolution/convolution_epilogue.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/own_kernels.h"
#include "frit/ops/convolution/planned_convolution.h"
#include "frit/ops/convolution/tiles/patch_convolution.h"
#include "frit/ops/convolution/tiles/phase_convolution.h"
#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/libraries/cuda/channel_bias.h"
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
         (!is_tap_convolution(call) || is_narrow_patch_convolution(with_image(call, nullptr)));
}

/// A kernel of frit's for some calls.
struct OwnKernel {
  const char* name;
  bool (*takes)(const ConvolutionCall&);
  std::size_t (*scratch)(const ConvolutionCall&);
  bool (*run)(const ConvolutionCall&, std::span<std::byte> scratch, CUstream_st*);  ///< whether the epilogue is done
  void (*prepare)(const ConvolutionCall&) = nullptr;                                ///< see Kernel::prepare
  const char* (*way)(const ConvolutionCall&) = nullptr;                             ///< for Kernel::describe, where there are several
};

std::size_t no_scratch(const ConvolutionCall&) { return 0; }

/// For OwnKernel::run: what says whether the epilogue is done, or leaves it, or always does it.
template <auto kernel, bool finishes = false>
bool run_own(const ConvolutionCall& call, [[maybe_unused]] std::span<std::byte> scratch, CUstream_st* stream) {
  const auto run = [&] {
    if constexpr (std::is_invocable_v<decltype(kernel), const ConvolutionCall&, std::span<std::byte>, CUstream_st*>) {
      return kernel(call, scratch, stream);
    } else {
      return kernel(call, stream);
    }
  };
  if constexpr (std::is_same_v<decltype(run()), bool>) return run();
  run();
  return finishes;
}

constexpr OwnKernel own_kernels[] = {
    {"narrow product", is_narrow_product, no_scratch, run_own<narrow_product>},
    {"product", is_pointwise_product, pointwise_product_scratch, run_own<pointwise_product>},
    {"depthwise", is_depthwise_convolution, no_scratch, run_own<depthwise_convolution, /*finishes=*/true>, nullptr, depthwise_schedule},
    {"depthwise", is_depthwise_weight_gradient, depthwise_weight_gradient_scratch, run_own<depthwise_weight_gradient>},
    {"patch by patch", is_narrow_patch_convolution, patch_convolution_scratch, run_own<patch_convolution>, prepare_patch_convolution},
    {"swept over columns", is_swept_convolution, no_scratch, run_own<swept_convolution>, prepare_swept_convolution},
    {"taps on tensor cores", is_tap_convolution, no_scratch, run_own<tap_convolution>},
    {"taps on tensor cores", is_tap_product, tap_product_scratch, run_own<tap_product>},
    {"patch by patch", is_patch_convolution, patch_convolution_scratch, run_own<patch_convolution>, prepare_patch_convolution},
    {"rows of taps", is_row_product, row_product_scratch, run_own<row_product>},
    {"windows of taps", is_window_product, window_product_scratch, run_own<window_product>},
    {"phase by phase", is_phase_convolution, no_scratch, run_own<phase_convolution, /*finishes=*/true>, prepare_phase_convolution},
};

/// The first that takes a call, of those that have enough scratch memory; null if none does.
const OwnKernel* own_kernel(const ConvolutionCall& call, std::optional<std::size_t> scratch_bytes = {}) {
  for (const OwnKernel& kernel : own_kernels) {
    if (kernel.takes(call) && (!scratch_bytes || kernel.scratch(call) <= *scratch_bytes)) return &kernel;
  }
  return nullptr;
}

void run(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream) {
  if (call.operands.result(call.kind).elements() == 0) return;
  if (call.geometry.batch > 0 && converts_image(call)) {
    Tensor own;  // where there is no room
    const std::size_t bytes =
        aligned_bytes(static_cast<std::size_t>(call.operands.input.elements()) * size_of(call.operands.weight.dtype()));
    const bool room = bytes <= scratch.size();
    if (!room) own = Tensor::empty(call.operands.input.shape(), call.operands.weight.dtype(), call.operands.input.device());
    const ConvolutionCall converted = with_image(call, room ? scratch.data() : own.raw());
    copy(converted.operands.input, call.operands.input);
    return run(converted, scratch.subspan(room ? bytes : 0), stream);
  }
  bool finished = false;
  const OwnKernel* const own = call.geometry.batch > 0 ? own_kernel(call, scratch.size()) : nullptr;
  if (own != nullptr) {
    finished = own->run(call, scratch, stream);
  } else if (call.geometry.batch > 0 && run_plan(call, scratch, stream)) {
    finished = !call.epilogue.steps.empty();
  } else {
    direct_convolution(call.kind, call.geometry, call.operands, stream);
  }
  if (!finished && call.finish) call.finish(call.operands, stream);
}

void prepare(const ConvolutionCall& call) {
  if (call.geometry.batch == 0 || call.operands.result(call.kind).elements() == 0) return;
  if (converts_image(call)) return prepare(with_image(call, nullptr));
  const OwnKernel* const own = own_kernel(call);
  if (own != nullptr && own->prepare != nullptr) own->prepare(call);
}

std::size_t scratch_for(const ConvolutionCall& call) {
  const cudnn::ConvolutionOperands& o = call.operands;
  if (call.geometry.batch == 0 || o.result(call.kind).elements() == 0) return 0;
  if (converts_image(call)) {
    return aligned_bytes(static_cast<std::size_t>(o.input.elements()) * size_of(o.weight.dtype())) + scratch_for(with_image(call, nullptr));
  }
  if (const OwnKernel* const own = own_kernel(call)) return own->scratch(call);
  return plan_scratch(call);
}

std::string describe(const ConvolutionCall& call) {
  const cudnn::ConvolutionOperands& o = call.operands;
  if (o.result(call.kind).elements() == 0) return "nothing to compute";
  if (call.geometry.batch == 0) return "by its definition, of an empty batch";
  if (converts_image(call)) return concat("image converted, ", describe(with_image(call, nullptr)));
  if (const OwnKernel* const own = own_kernel(call)) return concat(own->name, own->way ? own->way(call) : "");
  return describe_plan(call);
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

/// With the program that follows it; refers to that.
ConvolutionCall with_program(ConvolutionCall call, const Stages& stages) {
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

/// Whether the kernel that computes the call takes any program.
bool is_compiled_with_program(const ConvolutionCall& call) {
  if (call.geometry.batch == 0 || call.operands.result(call.kind).elements() == 0) return false;
  if (converts_image(call)) return is_compiled_with_program(with_image(call, nullptr));
  const OwnKernel* const own = own_kernel(call);
  return own != nullptr && own->prepare != nullptr;
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
  return staged;
}

}  // namespace

Kernel convolution_kernel(ReadConvolution read, std::vector<int> any_layout_inputs, std::vector<int> any_layout_outputs) {
  return {.run = [read](const KernelContext& call) { run(read(call.inputs, call.outputs, call.attributes), call.scratch, call.stream); },
          .prepare = [read](const KernelContext& call) { prepare(read(call.inputs, call.outputs, call.attributes)); },
          .halves = true,
          .scratch =
              [read](const InferContext& call) {
                const UnplacedCall unplaced(call, device_of_calls());
                const KernelContext context = unplaced.context();
                return scratch_for(read(context.inputs, context.outputs, context.attributes));
              },
          .any_layout_inputs = std::move(any_layout_inputs),
          .any_layout_outputs = std::move(any_layout_outputs),
          .prefers_channels_last = true,
          .library = cudnn::version,
          .staged = with_programs(read),
          .describe = [read](const KernelContext& call) { return describe(read(call.inputs, call.outputs, call.attributes)); }};
}

}  // namespace frit::ops
