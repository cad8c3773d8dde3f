// How a convolution runs by a plan of cuDNN's: in which layout and direction, with what rearranged first.

#include <map>
#include <mutex>
#include <optional>

#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/ops/convolution/mirrored_convolution.h"
#include "frit/ops/convolution/planned_convolution.h"
#include "frit/ops/cuda/elementwise.cuh"

namespace frit::ops {
namespace {

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
    begin_ += aligned_bytes(reinterpret_cast<std::uintptr_t>(begin_)) - reinterpret_cast<std::uintptr_t>(begin_);
  }

  /// Null if there is not so much left.
  void* take(std::size_t bytes) {
    if (begin_ > end_ || static_cast<std::size_t>(end_ - begin_) < aligned_bytes(bytes)) return nullptr;
    void* const piece = begin_;
    begin_ += aligned_bytes(bytes);
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

/// Of a plan: room for the workspace and for what must be rearranged. Looks for the plan that the call will need.
std::size_t plan_scratch(const ConvolutionCall& call, Layout layout) {
  const cudnn::ConvolutionPlan* const plan = plan_for(call, layout);
  if (plan == nullptr) return 0;
  std::size_t bytes = scratch_alignment + aligned_bytes(workspace_bytes(*plan));
  const cudnn::ConvolutionOperands& o = call.operands;
  for (const Tensor& tensor : {o.input, o.weight, o.output, call.residual()}) {
    if (tensor.defined() && !tensor.is_contiguous(layout)) bytes += aligned_bytes(static_cast<std::size_t>(tensor.bytes()));
  }
  return bytes;
}

std::string plan_text(const ConvolutionCall& call, Layout layout) {
  const cudnn::ConvolutionPlan* const plan = plan_for(call, layout);
  if (plan == nullptr) return "by its definition, as cuDNN has no plan";
  const LibraryPlan& facts = cudnn::facts(*plan);
  const char* const fused = facts.fused_epilogue ? ", epilogue fused" : facts.fused_bias ? ", bias fused" : "";
  return concat("cuDNN engine ", facts.engine, fused);
}

}  // namespace

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

std::size_t plan_scratch(const ConvolutionCall& call) {
  const cudnn::ConvolutionOperands& o = call.operands;
  const Layout layout = layout_of_plan(o.input, o.output);
  if (const auto mirror = mirror_to_run(call, layout)) {
    return scratch_alignment + aligned_bytes(static_cast<std::size_t>(o.weight.bytes())) + plan_scratch(*mirror, layout);
  }
  return plan_scratch(call, layout);
}

std::string describe_plan(const ConvolutionCall& call) {
  const Layout layout = layout_of_plan(call.operands.input, call.operands.output);
  if (const auto mirror = mirror_to_run(call, layout)) return concat("mirrored, ", plan_text(*mirror, layout));
  return plan_text(call, layout);
}

}  // namespace frit::ops
