// A linear layer with an epilogue on CUDA devices: as a convolution of size 1, of which a plan of cuDNN's may do both in one kernel, where
// that measures faster than the product by cuBLASLt and a pass over its result.

#include <map>
#include <mutex>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/noise.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/timer.h"
#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/libraries/cuda/cublas.h"
#include "frit/ops/libraries/cuda/cudnn.h"
#include "frit/ops/linear/linear_epilogue.h"
#include "frit/ops/linear/matmul.h"
#include "frit/ops/operator/registry.h"
#include "frit/ops/operator/run.h"

namespace frit::ops {
namespace {

using Operand = ConvolutionEpilogue::Operand;

constexpr std::size_t alignment = 256;

/// (..., features) as an image (N, features, H, W) that lies channels-last: the same memory.
Tensor image_of(const Tensor& rows) {
  const Shape& shape = rows.shape();
  const int features = shape.rank() - 1;
  Shape image{features > 0 ? shape[0] : 1, shape[features], features > 1 ? shape[1] : 1, 1};
  for (int axis = 2; axis < features; ++axis) image[3] *= shape[axis];
  return Tensor::over(rows.raw(), image, rows.dtype(), rows.device(), nullptr, Layout::channels_last);
}

/// And back: (rows, features).
Tensor rows_of(const Tensor& image) {
  const Shape shape{image.dim(0) * image.dim(2) * image.dim(3), image.dim(1)};
  return Tensor::over(image.raw(), shape, image.dtype(), image.device(), nullptr);
}

/// The convolution that a call is.
struct PointwiseConvolution {
  cudnn::ConvolutionKey key;
  cudnn::ConvolutionOperands operands;
  cudnn::Finish finish;
};

PointwiseConvolution read(std::span<const Tensor> inputs, const Tensor& result, const Attributes& attributes) {
  const auto& epilogue = attributes.as<ElementwiseAttributes>();
  const std::span<const Tensor> others = inputs.last(other_operands(epilogue));
  const Tensor& weight = inputs[1];
  std::vector<TensorType> types = types_of(others);
  types.insert(types.begin(), {result.dtype(), result.shape()});
  PointwiseConvolution call{.operands = {.input = image_of(inputs[0]),
                                         .weight = image_of(weight),
                                         .output = image_of(result),
                                         .bias = inputs.size() > 2 + others.size() ? inputs[2] : Tensor()}};
  call.key.epilogue = *linear_epilogue_of(epilogue.program, types);
  for (std::size_t i = 0; i < others.size(); ++i) {
    const Operand kind = call.key.epilogue.operands[i];
    call.operands.others.push_back(kind == Operand::image      ? image_of(others[i])
                                   : kind == Operand::channels ? others[i].reshape({weight.dim(0), 1, 1})
                                                               : others[i].reshape({}));
  }
  const Shape& image = call.operands.input.shape();
  const ImageAxes size = {1, image[2], image[3]}, one = {1, 1, 1}, none = {0, 0, 0};
  call.key.geometry = {image[0], 1, image[1], weight.dim(0), size, size, one, one, none, one};
  call.key.dtype = result.dtype();
  call.key.layout = Layout::channels_last;
  call.key.bias = call.operands.bias.defined();
  call.key.device = result.device().index;
  call.key = cudnn::with_numerics(call.key);
  call.finish = [epilogue](const cudnn::ConvolutionOperands& operands, CUstream_st* stream) {
    apply_epilogue(epilogue, operands.output, operands.others, {}, stream);
  };
  return call;
}

GemmShape shape_of_product(const PointwiseConvolution& call) {
  const ConvolutionGeometry& g = call.key.geometry;
  return linear_shape({g.batch * product(g.input), g.in_channels}, {g.out_channels, g.in_channels});
}

void run_product(const PointwiseConvolution& call, std::span<std::byte> scratch, CUstream_st* stream) {
  const auto& [input, weight, output, bias, others] = call.operands;
  cublas::multiply(shape_of_product(call), rows_of(input), rows_of(weight), bias, rows_of(output), scratch, stream);
  call.finish(call.operands, stream);
}

/// Microseconds.
double time_of_product(const PointwiseConvolution& call) {
  const auto noise = [](const Tensor& like) {
    const Tensor tensor = Tensor::empty(like.shape(), like.dtype(), like.device(), like.layout());
    cuda::fill_with_noise(tensor);
    return tensor;
  };
  const auto& [input, weight, output, bias, others] = call.operands;
  PointwiseConvolution trial{call.key, {noise(input), noise(weight), noise(output), bias.defined() ? noise(bias) : bias}, call.finish};
  for (const Tensor& other : others) trial.operands.others.push_back(noise(other));
  const std::size_t bytes = cublas::product_scratch(shape_of_product(call));
  const Tensor scratch = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::u8, output.device());
  const auto work = [&] {
    run_product(trial, {static_cast<std::byte*>(scratch.raw()), bytes}, cuda::compute_stream(output.device().index));
  };
  work();  // the first run loads code
  Timer timer(output.device());
  for (int run = 0; run < 5; ++run) timer.time(work);
  return quantile(timer.take(), 0.5);
}

/// The plan that does all of the call, if it is faster than the product and a pass; where no times are taken, if there is one.
const cudnn::ConvolutionPlan* search(const PointwiseConvolution& call) try {
  const cudnn::ConvolutionPlan* const plan = cudnn::plan_for(call.key, call.finish);
  if (plan == nullptr || !cudnn::does_epilogue(*plan)) return nullptr;
  const double time = cudnn::microseconds(*plan);
  if (time == 0) return plan;
  const bool is_faster = time < time_of_product(call);
  allocator_of(call.operands.output.device()).trim();  // what follows has other sizes
  return is_faster ? plan : nullptr;
} catch (const Error& error) {
  if (error.kind() != ErrorKind::device && error.kind() != ErrorKind::out_of_memory) throw;
  return nullptr;
}

/// Null: the product. Asked for at each call, and decided before the first.
const cudnn::ConvolutionPlan* plan_for(const PointwiseConvolution& call) {
  const bool on_tensor_cores = is_half(call.key.dtype) || call.key.tf32;
  if (!on_tensor_cores || call.key.geometry.in_channels == 0) return nullptr;
  static auto& plans = *new std::map<cudnn::ConvolutionKey, const cudnn::ConvolutionPlan*>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = plans.try_emplace(call.key, nullptr);
  if (is_new) place->second = search(call);
  return place->second;
}

bool is_aligned(const cudnn::ConvolutionOperands& operands) {
  const auto aligned = [](const Tensor& tensor) { return !tensor.defined() || cuda::aligned_for_vectors(tensor.raw()); };
  const auto& [input, weight, output, bias, others] = operands;
  return aligned(input) && aligned(weight) && aligned(output) && aligned(bias) && std::all_of(others.begin(), others.end(), aligned);
}

void run_linear_epilogue(const KernelContext& context) {
  if (context.outputs[0].elements() == 0) return;
  const PointwiseConvolution call = read(context.inputs, context.outputs[0], context.attributes);
  const cudnn::ConvolutionPlan* const plan = plan_for(call);
  const std::span<std::byte> scratch = context.scratch;
  const std::size_t offset = (alignment - reinterpret_cast<std::uintptr_t>(scratch.data()) % alignment) % alignment;
  // The scratch memory may have been measured with other settings.
  if (plan != nullptr && scratch.size() >= alignment + cudnn::workspace_bytes(*plan) && is_aligned(call.operands)) {
    return cudnn::execute(*plan, call.operands, scratch.data() + offset, context.stream);
  }
  run_product(call, scratch, context.stream);
}

std::size_t scratch(const InferContext& context) {
  const Device device = cuda::current_device();
  std::vector<Tensor> tensors;
  for (const TensorType& type : context.inputs) tensors.push_back(Tensor::over(nullptr, type.shape, type.dtype, device, nullptr));
  const TensorType result = context.op.infer(context)[0];
  const Tensor output = Tensor::over(nullptr, result.shape, result.dtype, device, nullptr);
  if (output.elements() == 0) return 0;
  const PointwiseConvolution call = read(tensors, output, context.attributes);
  const cudnn::ConvolutionPlan* const plan = plan_for(call);
  return std::max(cublas::product_scratch(shape_of_product(call)), plan ? alignment + cudnn::workspace_bytes(*plan) : 0);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(linear_epilogue) {
  registry.add_cuda("linear_epilogue", {.run = run_linear_epilogue, .halves = true, .scratch = scratch, .library = cudnn::version});
}
