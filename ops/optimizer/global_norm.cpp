#include <cmath>

#include "frit/core/convert.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/optimizer/gradient_scale.h"
#include "frit/ops/optimizer/optimizer_ops.h"
#include "frit/ops/reduction/sum_tile.h"

namespace frit::ops {
namespace {

constexpr const char* no_gradient_of_clipping = "made for gradients, which are not differentiated through";

std::vector<TensorType> infer_norm(const InferContext& call) {
  const DType dtype = call.as<GlobalNormAttributes>().dtype.value_or(call.inputs[0].dtype);
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const DType given = call.inputs[i].dtype;
    const bool fits = given == dtype || (dtype == DType::f32 && is_half(given));
    call.require(fits, "tensor ", i, " is ", given, ", expected ", dtype);
  }
  return {{dtype, {}}};
}

ReductionPlan plan_of(std::int64_t elements) { return {{elements}, {0}}; }

std::size_t norm_scratch(const InferContext& call) {
  std::size_t bytes = 0;
  for (const TensorType& type : call.inputs) bytes = std::max(bytes, plan_of(type.elements()).scratch_bytes(sizeof(SumTile<double>)));
  return bytes;
}

void norm_kernel(const KernelContext& call) {
  double total = 0;
  for (const Tensor& tensor : call.inputs) {
    dispatch_all(tensor.dtype(), [&]<class T>() {
      if constexpr (!std::is_integral_v<T>) {
        const T* const x = tensor.data<T>();
        const auto square = [x](std::int64_t i) { return convert<double>(x[i]) * convert<double>(x[i]); };
        reduce<SumTile<double>>(
            plan_of(tensor.elements()), call.scratch, [&](auto& tile, const Rows& rows) { tile.add(rows, square); },
            [&](const auto& tile, const Block&) { total += tile.sum[0]; });
      }
    });
  }
  call.outputs[0].fill(std::sqrt(total));
}

std::vector<Sample> norm_samples() {
  std::vector<Sample> samples;
  const std::vector<std::vector<SampleInput>> tensors = {{Shape{7}},
                                                         {Shape{3, 5}, Shape{}, Shape{2, 3, 5}},
                                                         {Shape{1}, Shape{1, 1}},
                                                         {Shape{0, 3}},
                                                         {Shape{0}, Shape{5}},
                                                         {Shape{4, 300}, Shape{257}, Shape{0}, Shape{50, 800}},
                                                         {Shape{60, 800}, Shape{300, 400}}};
  for (const auto& inputs : tensors) samples.push_back({.inputs = inputs, .attributes = GlobalNormAttributes{}});
  return samples;
}

std::vector<TensorType> infer_clip(const InferContext& call) {
  call.require(call.as<ClipAttributes>().max_norm >= 0, "max_norm is ", call.as<ClipAttributes>().max_norm,
               ", expected a number from 0 on");
  call.require(call.shape(0).empty(), "norm must be a scalar, got ", call.shape(0));
  return infer_same(call);
}

void clip_kernel(const KernelContext& call) {
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const ClipScale<T> scale{static_cast<T>(call.as<ClipAttributes>().max_norm)};
    *call.outputs[0].data<T>() = scale(*call.inputs[0].data<T>());
  });
}

std::vector<Sample> clip_samples() {
  const auto sample = [](double max_norm) {
    return Sample{.inputs = {SampleInput({}, Fill::positive)}, .attributes = ClipAttributes{max_norm}};
  };
  return {sample(0), sample(0.3), sample(1), sample(100)};
}

}  // namespace

Value global_norm(std::span<const Value> tensors) {
  GlobalNormAttributes attributes;
  for (const Value& tensor : tensors) {
    if (!attributes.dtype || tensor.dtype() == DType::f32) attributes.dtype = tensor.dtype();
  }
  return emit("global_norm", tensors, attributes).front();
}

Value clip_scale(Value norm, double max_norm) { return emit_one("clip_scale", {norm}, ClipAttributes{max_norm}); }

}  // namespace frit::ops

FRIT_OPERATORS(global_norm) {
  registry.add<GlobalNormAttributes>({
      .name = "global_norm",
      .summary = "the square root of the sum of squares of all elements of all tensors",
      .inputs = {"tensors"},
      .variadic = true,
      .infer = infer_norm,
      .no_gradient = no_gradient_of_clipping,
      .any_precision = {0},
      .cpu = {.run = norm_kernel, .halves = true, .scratch = norm_scratch},
      .samples = norm_samples,
  });
  registry.add<ClipAttributes>({
      .name = "clip_scale",
      .summary = "min(1, max_norm / (norm + 1e-6))",
      .inputs = {"norm"},
      .infer = infer_clip,
      .no_gradient = no_gradient_of_clipping,
      .cpu = {clip_kernel},
      .samples = clip_samples,
  });
}
