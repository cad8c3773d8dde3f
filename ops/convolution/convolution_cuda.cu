// How a convolution runs on a CUDA device: which plan, in which layout, with what rearranged first.

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/convolution/convolution_epilogue.h"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/depthwise/depthwise_convolution.h"
#include "frit/ops/convolution/depthwise/depthwise_weight.h"
#include "frit/ops/convolution/direct_convolution.h"
#include "frit/ops/convolution/mirrored_convolution.h"
#include "frit/ops/convolution/narrow_product.h"
#include "frit/ops/convolution/pointwise_product.h"
#include "frit/ops/convolution/tiles/patch_convolution.h"
#include "frit/ops/convolution/tiles/phase_convolution.h"
#include "frit/ops/convolution/tiles/swept_convolution.h"
#include "frit/ops/convolution/tiles/tap_convolution.h"
#include "frit/ops/convolution/tiles/tap_products.h"
#include "frit/ops/convolution/weight_gradient/row_products.h"
#include "frit/ops/convolution/weight_gradient/window_products.h"
#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/libraries/cuda/channel_bias.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/operator/run.h"

namespace frit::ops {
namespace {

constexpr std::size_t alignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

/// That of both images, or where they differ that of the larger one.
Layout layout_of_plan(const Tensor& input, const Tensor& output) {
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    if (input.is_contiguous(layout) && output.is_contiguous(layout)) return layout;
  }
  const Tensor& larger = input.elements() > output.elements() ? input : output;
  return larger.is_contiguous() ? Layout::contiguous : Layout::channels_last;
}

/// The same convolution of the same memory: where the kernel leaves the depth alone, each depth is an image, and cuDNN does two dimensions
/// faster than three.
ConvolutionGeometry with_depth_as_batch(ConvolutionGeometry g, Layout layout) {
  const bool alone = g.kernel[0] == 1 && g.stride[0] == 1 && g.padding[0] == 0 && g.input[0] == g.output[0];
  if (layout != Layout::channels_last || !alone) return g;
  g.batch *= g.input[0];
  g.input[0] = g.output[0] = g.dilation[0] = 1;
  return g;
}

cudnn::ConvolutionKey key_of(const ConvolutionCall& call, Layout layout) {
  const Numerics settings = numerics();
  const Tensor& result = call.operands.result(call.kind);
  return {.kind = call.kind,
          .geometry = with_depth_as_batch(call.geometry, layout),
          .dtype = result.dtype(),
          .layout = layout,
          .bias = call.operands.bias.defined(),
          .epilogue = call.epilogue,
          .tf32 = settings.tf32 && result.dtype() == DType::f32,
          .deterministic = settings.deterministic,
          .exhaustive = settings.search == Search::exhaustive && !settings.deterministic,
          .workspace_limit = settings.workspace_limit,
          .device = result.device().index};
}

const cudnn::ConvolutionPlan* plan_for(const ConvolutionCall& call, Layout layout) {
  return cudnn::plan_for(key_of(call, layout), call.finish);
}

std::size_t workspace_bytes(const cudnn::ConvolutionPlan& plan) { return static_cast<std::size_t>(cudnn::facts(plan).workspace); }

/// Whether a call that has a mirror image is faster as that, by the time of its plan, or by rule where there are no times. cuDNN's data
/// gradients are slow in TF32 in two dimensions, and fast in three.
bool is_faster_mirrored(const ConvolutionCall& call, const ConvolutionCall& mirror, Layout layout) {
  const cudnn::ConvolutionKey key = key_of(call, layout);
  const bool flat = key.geometry.kernel[0] == 1, forward = key.kind == cudnn::ConvolutionKind::forward;
  if (flat && forward) return false;
  if (key.deterministic) return flat && key.tf32;
  constexpr double worth_a_search = 100, time_of_weight = 5, least_gain = 0.95;  // microseconds
  const cudnn::ConvolutionPlan* const own = plan_for(call, layout);
  const double time = own ? cudnn::facts(*own).microseconds : 0;
  if (time < worth_a_search) return false;
  const cudnn::ConvolutionPlan* const other = plan_for(mirror, layout);
  const double other_time = other ? cudnn::facts(*other).microseconds : 0;
  return other_time > 0 && other_time + time_of_weight < least_gain * time;
}

/// The mirror image, its weight yet without memory, that is to run instead of a call.
std::optional<ConvolutionCall> mirror_to_run(const ConvolutionCall& call, Layout layout) {
  if (!has_mirror(call)) return std::nullopt;
  Shape shape = call.operands.weight.shape();
  std::swap(shape[0], shape[1]);
  const Tensor& weight = call.operands.weight;
  const ConvolutionCall mirror = mirrored(call, Tensor::over(nullptr, shape, weight.dtype(), weight.device(), nullptr, layout));
  // Asked at each call: of plans that do not fit the workspace limit only the first call may hear.
  static auto& decisions = *new std::map<cudnn::ConvolutionKey, bool>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = decisions.try_emplace(key_of(call, layout), false);
  if (is_new) {
    try {
      place->second = is_faster_mirrored(call, mirror, layout);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::device) throw;
    }
  }
  return place->second ? std::optional(mirror) : std::nullopt;
}

/// Hands out the scratch memory of a call in pieces.
class Pieces {
 public:
  explicit Pieces(std::span<std::byte> scratch) : begin_(scratch.data()), end_(scratch.data() + scratch.size()) {
    begin_ += aligned(reinterpret_cast<std::uintptr_t>(begin_)) - reinterpret_cast<std::uintptr_t>(begin_);
  }

  /// Null if there is not so much left.
  void* take(std::size_t bytes) {
    if (begin_ > end_ || static_cast<std::size_t>(end_ - begin_) < aligned(bytes)) return nullptr;
    void* const piece = begin_;
    begin_ += aligned(bytes);
    return piece;
  }
  std::span<std::byte> rest() const { return {begin_, end_}; }

 private:
  std::byte *begin_, *end_;
};

/// The tensor, if it lies as a plan wants it, or uninitialised memory that does; undefined if there is not so much. A graph aligns all its
/// tensors; one that a call at once brings as it lies may get memory of its own.
Tensor laid_out(const Tensor& tensor, Layout layout, Pieces& pieces) {
  const bool fits = tensor.is_contiguous(layout);
  if (fits && cuda::aligned_for_vectors(tensor.raw())) return tensor;
  if (fits) return Tensor::empty(tensor.shape(), tensor.dtype(), tensor.device(), layout);
  void* const memory = pieces.take(static_cast<std::size_t>(tensor.bytes()));
  return memory ? Tensor::over(memory, tensor.shape(), tensor.dtype(), tensor.device(), nullptr, layout) : Tensor();
}

/// False if cuDNN has no plan, or the scratch memory, which was measured with other settings, is too small for it.
bool run_plan(const ConvolutionCall& call, Layout layout, std::span<std::byte> scratch, CUstream_st* stream) {
  const cudnn::ConvolutionOperands& given = call.operands;
  const cudnn::ConvolutionPlan* const plan = plan_for(call, layout);
  if (plan == nullptr) return false;
  const Tensor& result = given.result(call.kind);
  Pieces pieces(scratch);
  void* const workspace = pieces.take(workspace_bytes(*plan));
  cudnn::ConvolutionOperands used;
  bool enough = workspace != nullptr;
  const auto lay_out = [&](const Tensor& from, Tensor& to, Layout to_layout) {
    to = laid_out(from, to_layout, pieces);
    enough = enough && to.defined();
    if (enough && to.raw() != from.raw() && &from != &result) copy(to, from);
  };
  lay_out(given.input, used.input, layout);
  lay_out(given.weight, used.weight, layout);
  lay_out(given.output, used.output, layout);
  if (given.bias.defined()) lay_out(given.bias, used.bias, Layout::contiguous);
  for (std::size_t i = 0; i < call.epilogue.operands.size(); ++i) {
    const bool is_image = call.epilogue.operands[i] == ConvolutionEpilogue::Operand::image;
    lay_out(given.others[i], used.others.emplace_back(), is_image ? layout : Layout::contiguous);
  }
  if (!enough) return false;
  cudnn::execute(*plan, used, workspace, stream);
  if (used.result(call.kind).raw() != result.raw()) copy(result, used.result(call.kind));
  return true;
}

/// Likewise, in the direction that is faster.
bool run_plan(const ConvolutionCall& call, std::span<std::byte> scratch, CUstream_st* stream) {
  const Layout layout = layout_of_plan(call.operands.input, call.operands.output);
  if (std::optional<ConvolutionCall> mirror = mirror_to_run(call, layout)) {
    Pieces pieces(scratch);
    Tensor& weight = mirror->operands.weight;
    void* const memory = pieces.take(static_cast<std::size_t>(weight.bytes()));
    if (memory != nullptr) {
      weight = Tensor::over(memory, weight.shape(), weight.dtype(), weight.device(), nullptr, layout);
      mirror_weight(weight, call.operands.weight, stream);
      if (run_plan(*mirror, layout, pieces.rest(), stream)) return true;
    }
  }
  return run_plan(call, layout, scratch, stream);
}

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
    {"depthwise", is_depthwise_convolution, no_scratch, run_own<depthwise_convolution, /*finishes=*/true>},
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
    const std::size_t bytes = aligned(static_cast<std::size_t>(call.operands.input.elements()) * size_of(call.operands.weight.dtype()));
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

/// Of a plan: room for the workspace and for what must be rearranged. Looks for the plan that the call will need.
std::size_t plan_scratch(const ConvolutionCall& call, Layout layout) {
  const cudnn::ConvolutionPlan* const plan = plan_for(call, layout);
  if (plan == nullptr) return 0;
  std::size_t bytes = alignment + aligned(workspace_bytes(*plan));
  const cudnn::ConvolutionOperands& o = call.operands;
  for (const Tensor& tensor : {o.input, o.weight, o.output, call.residual()}) {
    if (tensor.defined() && !tensor.is_contiguous(layout)) bytes += aligned(static_cast<std::size_t>(tensor.bytes()));
  }
  return bytes;
}

std::size_t scratch_for(const ConvolutionCall& call) {
  const cudnn::ConvolutionOperands& o = call.operands;
  if (call.geometry.batch == 0 || o.result(call.kind).elements() == 0) return 0;
  if (converts_image(call)) {
    return aligned(static_cast<std::size_t>(o.input.elements()) * size_of(o.weight.dtype())) + scratch_for(with_image(call, nullptr));
  }
  if (const OwnKernel* const own = own_kernel(call)) return own->scratch(call);
  const Layout layout = layout_of_plan(o.input, o.output);
  if (const auto mirror = mirror_to_run(call, layout)) {
    return alignment + aligned(static_cast<std::size_t>(o.weight.bytes())) + plan_scratch(*mirror, layout);
  }
  return plan_scratch(call, layout);
}

std::string plan_text(const ConvolutionCall& call, Layout layout) {
  const cudnn::ConvolutionPlan* const plan = plan_for(call, layout);
  if (plan == nullptr) return "by its definition";
  const LibraryPlan& facts = cudnn::facts(*plan);
  const char* const fused = facts.fused_epilogue ? ", epilogue fused" : facts.fused_bias ? ", bias fused" : "";
  return concat("cuDNN engine ", facts.engine, fused);
}

std::string describe(const ConvolutionCall& call) {
  const cudnn::ConvolutionOperands& o = call.operands;
  if (o.result(call.kind).elements() == 0) return "nothing to compute";
  if (call.geometry.batch == 0) return "by its definition";
  if (converts_image(call)) return concat("image converted, ", describe(with_image(call, nullptr)));
  if (const OwnKernel* const own = own_kernel(call)) return own->name;
  const Layout layout = layout_of_plan(o.input, o.output);
  if (const auto mirror = mirror_to_run(call, layout)) return concat("mirrored, ", plan_text(*mirror, layout));
  return plan_text(call, layout);
}

/// Of a call that is yet to come, on the current device if there is one.
Tensor without_memory(const TensorType& type, Layout layout) {
  const Device device = cuda::device_count() > 0 ? cuda::current_device() : Device{DeviceKind::cuda};
  return Tensor::over(nullptr, type.shape, type.dtype, device, nullptr, layout);
}

std::vector<Tensor> without_memory(std::span<const TensorType> types, const std::vector<Layout>& layouts) {
  std::vector<Tensor> tensors;
  for (const TensorType& type : types) {
    tensors.push_back(without_memory(type, layouts.empty() ? Layout::contiguous : layouts[tensors.size()]));
  }
  return tensors;
}

/// Likewise, images as kernels like them.
std::vector<Tensor> channels_last(std::span<const TensorType> types) {
  std::vector<Tensor> tensors;
  for (const TensorType& type : types) {
    tensors.push_back(without_memory(type, type.shape.rank() < 4 ? Layout::contiguous : Layout::channels_last));
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
                const std::vector<Tensor> inputs = without_memory(call.inputs, call.layouts.inputs);
                return scratch_for(read(inputs, without_memory(call.op.infer(call), call.layouts.outputs), call.attributes));
              },
          .any_layout_inputs = std::move(any_layout_inputs),
          .any_layout_outputs = std::move(any_layout_outputs),
          .prefers_channels_last = true,
          .library = cudnn::version,
          .staged = with_programs(read),
          .describe = [read](const KernelContext& call) { return describe(read(call.inputs, call.outputs, call.attributes)); }};
}

}  // namespace frit::ops
