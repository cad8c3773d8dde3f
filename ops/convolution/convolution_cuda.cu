// How a convolution runs on a CUDA device: which plan, in which layout, with what rearranged first.

#include <algorithm>

#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/ops/convolution/convolution_cuda.h"
#include "frit/ops/convolution/direct_convolution.h"
#include "frit/ops/cuda/pointwise.h"
#include "frit/ops/elementwise/arithmetic_functors.h"

namespace frit::ops {
namespace {

constexpr std::size_t alignment = 256;

std::size_t aligned(std::size_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

cudnn::ConvolutionKey key_of(cudnn::ConvolutionKind kind, const ConvolutionGeometry& g, DType dtype, Layout layout, bool bias, int device) {
  const Numerics settings = numerics();
  return {kind, g, dtype, layout, bias, settings.tf32 && dtype == DType::f32, settings.deterministic, settings.workspace_limit, device};
}

/// That of both images, or where they differ that of the larger one.
Layout layout_of_plan(const Tensor& input, const Tensor& output) {
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    if (input.is_contiguous(layout) && output.is_contiguous(layout)) return layout;
  }
  const Tensor& larger = input.elements() > output.elements() ? input : output;
  return larger.is_contiguous() ? Layout::contiguous : Layout::channels_last;
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
bool run_plan(cudnn::ConvolutionKind kind, const ConvolutionGeometry& g, const cudnn::ConvolutionOperands& given,
              std::span<std::byte> scratch, CUstream_st* stream) {
  const Layout layout = layout_of_plan(given.input, given.output);
  const Tensor& result = given.result(kind);
  const cudnn::ConvolutionPlan* const plan =
      cudnn::plan_for(key_of(kind, g, result.dtype(), layout, given.bias.defined(), result.device().index));
  if (plan == nullptr) return false;
  Pieces pieces(scratch);
  void* const workspace = pieces.take(cudnn::workspace_bytes(*plan));
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
  if (!enough) return false;
  cudnn::execute(*plan, used, workspace, stream);
  if (used.result(kind).raw() != result.raw()) copy(result, used.result(kind));
  return true;
}

}  // namespace

void convolve_cuda(cudnn::ConvolutionKind kind, const ConvolutionGeometry& g, const cudnn::ConvolutionOperands& operands,
                   std::span<std::byte> scratch, CUstream_st* stream) {
  if (operands.result(kind).elements() == 0) return;
  if (g.batch > 0 && run_plan(kind, g, operands, scratch, stream)) return;
  direct_convolution(kind, g, operands, stream);
}

// The layouts of a call are not known yet: there is room for the workspace of either plan, the weight in the other layout, and the smaller
// image in that of the larger.
std::size_t convolution_cuda_scratch(cudnn::ConvolutionKind kind, const ConvolutionGeometry& g, DType dtype, bool bias) {
  if (g.batch == 0) return 0;
  int device = 0;
  FRIT_CUDA_CALL(cudaGetDevice(&device));
  bool any = false;
  std::size_t workspace = 0;
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    const cudnn::ConvolutionPlan* const plan = cudnn::plan_for(key_of(kind, g, dtype, layout, bias, device));
    if (plan == nullptr) continue;
    any = true;
    workspace = std::max(workspace, cudnn::workspace_bytes(*plan));
  }
  if (!any) return 0;
  const auto bytes = [&](std::int64_t elements) { return aligned(static_cast<std::size_t>(elements) * size_of(dtype)); };
  const std::int64_t weight = g.groups * g.out_channels * g.in_channels * product(g.kernel);
  const std::int64_t image = g.batch * g.groups * std::min(g.in_channels * product(g.input), g.out_channels * product(g.output));
  return alignment + aligned(workspace) + bytes(weight) + bytes(image);
}

void add_channel_bias(const Tensor& image, const Tensor& bias, CUstream_st* stream) {
  Shape shape = Shape::filled(image.rank(), 1);
  shape[1] = image.dim(1);
  const Tensor operands[] = {image, bias.reshape(shape)};
  dispatch_floating_and_halves(image.dtype(), [&]<class T>() { map_elements<T, T, T>(stream, image, operands, Add<Computed<T>>{}); });
}

}  // namespace frit::ops
