#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/shape_attributes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace ops {
namespace {

std::vector<TensorType> infer_cast(const InferContext& call) { return {{call.as<CastAttributes>().dtype, call.shape(0)}}; }

/// Nothing flows through integers.
Values cast_gradient(const GradientContext& c) {
  const DType from = c.inputs[0].dtype();
  return {is_floating(from) && is_floating(c.as<CastAttributes>().dtype) ? cast(c.gradients[0], from) : Value{}};
}

void run_cast(const KernelContext& call) { copy(call.outputs[0], call.inputs[0]); }
ElementFunction cast_function(const KernelContext& call) { return conversion(call.outputs[0].dtype(), call.inputs[0].dtype()); }

std::vector<Sample> cast_samples() {
  std::vector<Sample> samples;
  for (const DType dtype : all_dtypes) {
    // Differences of 1e-6 survive no rounding below double.
    samples.push_back({.inputs = {Shape{3, 5}}, .attributes = CastAttributes{dtype}, .smooth = dtype == DType::f64});
  }
  for (const Shape& shape : {Shape{1}, Shape{}, Shape{0, 3}}) {
    samples.push_back({.inputs = {shape}, .attributes = CastAttributes{DType::f64}});
  }
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {  // in many vectors, the last one cut short
    samples.push_back({.inputs = {Shape{3, 1401}}, .attributes = CastAttributes{dtype}, .smooth = false});
    samples.push_back({.inputs = {Shape{2, 8, 3, 5}}, .attributes = CastAttributes{dtype}, .smooth = false});
    samples.push_back({.inputs = {Shape{3, 264, 3, 3}}, .attributes = CastAttributes{dtype}, .smooth = false});
  }
  // Between layouts: channels in vectors or not, an even or odd number of pixels, fewer or more of them than channels, in several chunks.
  for (const Shape& shape : {Shape{2, 3, 5, 7}, Shape{1, 11, 4, 5}, Shape{2, 33, 3, 13}, Shape{1, 16, 16, 2, 8}, Shape{2, 72, 3, 3, 3},
                             Shape{5, 24, 2, 2}, Shape{3, 33, 8, 12}}) {
    samples.push_back({.inputs = {shape}, .attributes = CastAttributes{DType::f32}, .smooth = false});
  }
  return samples;
}

}  // namespace
}  // namespace ops

Value cast(Value x, DType dtype) { return x.dtype() == dtype ? x : ops::emit_one("cast", {x}, ops::CastAttributes{dtype}); }

}  // namespace frit

FRIT_OPERATORS(cast) {
  registry.add<CastAttributes>({.name = "cast",
                                .summary = "x in another dtype; towards zero and saturating for integers, where NaN becomes 0",
                                .inputs = {"input"},
                                .infer = infer_cast,
                                .gradient = cast_gradient,
                                .elementwise = true,
                                .cpu = {.run = run_cast,
                                        .elements = cast_function,
                                        .strided = true,
                                        .halves = true,
                                        .any_layout_inputs = {0},
                                        .any_layout_outputs = {0}},
                                .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
                                .in_place = {{0, 0}},
                                .conversion = [](DType dtype) { return Attributes(CastAttributes{dtype}); },
                                .samples = cast_samples});
}
