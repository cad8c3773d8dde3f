// A program of elementwise operators together with sums or means of its results over the pixels of images, over rows of channels, or over
// everything: the gradient of a bias with the one that it is the sum of, a loss with its gradient.

#include "frit/ops/reduction/elementwise_sums.h"

#include <algorithm>

#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/operator/scratch_parts.h"
#include "frit/ops/reduction/reduction_axes.h"

namespace frit::ops {

void ElementwiseSumsAttributes::fields(FieldVisitor& v) {
  ElementwiseAttributes attributes{std::move(call.program)};
  attributes.fields(v);
  call.program = std::move(attributes.program);
  v.field("stored", call.stored);
  v.field("reduced", call.reduced);
  const std::string before = call.reduction.text();
  std::string reduction = before;
  v.field("reduction", reduction);
  if (reduction != before) call.reduction = OperatorCall::parse(reduction);
}

namespace {

const Operator& elementwise() { return registry().find("elementwise"); }

const ReducedProgram& call_of(const Attributes& attributes) { return attributes.as<ElementwiseSumsAttributes>().call; }

std::vector<TensorType> infer(const InferContext& context) {
  const ReducedProgram& call = call_of(context.attributes);
  const Operator* const op = call.reduction.op;
  context.require(op != nullptr && (op->name == "sum" || op->name == "mean"), "the reduction is ", op == nullptr ? "missing" : op->name,
                  ", expected sum or mean");
  std::vector<TensorType> outputs = program_outputs(call, context.inputs), results;
  const auto count = static_cast<std::int64_t>(outputs.size());
  context.require(call.stored >= 0 && call.stored <= count, "stored is ", call.stored, ", the program has ", count, " results");
  results.assign(outputs.begin(), outputs.begin() + call.stored);
  for (const std::int64_t output : call.reduced) {
    context.require(output >= 0 && output < count, "result ", output, " is reduced, the program has ", count);
    results.push_back(op->infer_types({&outputs[static_cast<std::size_t>(output)], 1}, call.reduction.attributes)[0]);
  }
  return results;
}

/// `rows`: of rows of channels, and not of images.
auto join_reduced(bool rows) {
  return [rows](const ReducedProgram& call, std::span<const TensorType> inputs) -> std::optional<Attributes> {
    if (call.program.outputs.size() > most_program_outputs || !elementwise().join(call.program, inputs)) return std::nullopt;
    const std::vector<TensorType> outputs = program_outputs(call, inputs);
    const auto images = SummedImages::of(outputs[0].shape, inputs, call.reduction);
    const auto lies = [&](const TensorType& type) { return images->operand(type.shape).has_value(); };
    const auto is_of_numbers = [&](std::int64_t output) { return is_floating(outputs[static_cast<std::size_t>(output)].dtype); };
    if (!images || images->are_rows() != rows || !images->are_summed_at_once()) return std::nullopt;
    if (!std::all_of(inputs.begin(), inputs.end(), lies)) return std::nullopt;
    if (!std::all_of(call.reduced.begin(), call.reduced.end(), is_of_numbers)) return std::nullopt;
    return ElementwiseSumsAttributes{call};
  };
}

Values decompose(Emitter& emitter, std::span<const Value> inputs, const Attributes& attributes) {
  const ReducedProgram& call = call_of(attributes);
  const Values outputs = elementwise().decompose(emitter, inputs, ElementwiseAttributes{call.program});
  Values results(outputs.begin(), outputs.begin() + call.stored);
  for (const std::int64_t output : call.reduced) {
    const Value read[] = {outputs[static_cast<std::size_t>(output)]};
    results.push_back(emitter.emit(*call.reduction.op, read, call.reduction.attributes)[0]);
  }
  return results;
}

/// That of all images.
Layout layout_of(const CallLayouts& layouts) {
  const auto any = [](const std::vector<Layout>& some) { return std::find(some.begin(), some.end(), Layout::channels_last) != some.end(); };
  return any(layouts.inputs) || any(layouts.outputs) ? Layout::channels_last : Layout::contiguous;
}

std::size_t bytes_of(const TensorType& type) { return aligned(static_cast<std::size_t>(type.bytes())); }

constexpr const char *masked = "y0 = multiply(x0, x2); y1 = silu_backward(y0, x1); return y1",
                     *squared = "y0 = subtract(x0, x1); y1 = square(y0); y2 = multiply(y0, x2); return y2, y1",
                     *scaled = "y0 = multiply(x0, x1); y1 = multiply(y0, x1); return y0, y1",
                     *all = "y0 = add(x0, x1); y1 = tanh(y0); y2 = multiply(y1, x2); y3 = square(y2); return y0, y1, y2, y3";

Sample sample(const char* program, std::int64_t stored, const Dims& reduced, const char* reduction, std::vector<SampleInput> inputs) {
  const ReducedProgram call{ElementwiseProgram::parse(program), stored, reduced, OperatorCall::parse(reduction)};
  const auto is_small = [](const SampleInput& input) { return element_count(input.shape) < 1000; };
  const bool smooth = std::all_of(inputs.begin(), inputs.end(), is_small);  // differences for each of many elements would take long
  return {.inputs = std::move(inputs), .attributes = ElementwiseSumsAttributes{call}, .smooth = smooth, .in_halves = false};
}

/// Small ones are computed in their parts, on any device.
std::vector<Sample> samples_of_images() {
  const char *const of_all = "sum {\"axes\":[0,2,3],\"keep_dims\":false}", *const of_each = "mean {\"axes\":[2,3],\"keep_dims\":true}",
                    *const to_one = "sum {\"axes\":[],\"keep_dims\":false}";
  const Shape small{2, 3, 4, 5}, large{3, 16, 41, 39}, flat{2, 520, 9, 8}, volume{2, 8, 17, 17, 15};
  const auto positive = [](const Shape& shape) { return SampleInput(shape, Fill::positive); };  // a sum that cancels has few digits
  return {
      sample(masked, 1, {0}, of_all, {small, small, Shape{}}),
      sample(squared, 1, {0, 1}, of_all, {small, small, Shape{3, 1, 1}}),
      sample(all, 2, {1, 3}, of_each, {small, Shape{2, 3, 1, 1}, Shape{2, 1, 4, 5}}),
      sample(all, 0, {2}, "sum {\"axes\":[3,-2],\"keep_dims\":false}", {small, small, small}),
      // With numbers for channels, samples and pixels.
      sample(masked, 1, {0}, of_all, {large, large, Shape{}}),
      sample(squared, 1, {0, 1}, of_all, {large, large, Shape{16, 1, 1}}),
      sample(squared, 1, {1, 0}, "mean {\"axes\":[0,2,3],\"keep_dims\":true}", {flat, flat, Shape{2, 520, 1, 1}}),
      sample(all, 2, {1, 3}, of_each, {large, Shape{3, 16, 1, 1}, Shape{3, 1, 41, 39}}),
      sample(all, 4, {0, 1, 2, 3}, of_all, {large, large, Shape{3, 1, 1, 1}}),
      sample(all, 0, {2}, "sum {\"axes\":[2,3,4],\"keep_dims\":false}", {volume, volume, volume}),
      sample(masked, 0, {0}, "sum {\"axes\":[0,2,3,4],\"keep_dims\":false}", {volume, volume, Shape{8, 1, 1, 1}}),
      // To one number: of images with numbers for channels, and of elements in whatever order.
      sample(squared, 1, {0, 1}, to_one, {small, small, Shape{}}),
      sample(squared, 1, {1, 0}, to_one, {large, large, Shape{16, 1, 1}}),
      sample(squared, 1, {1}, "mean {\"axes\":[],\"keep_dims\":true}", {large, large, Shape{}}),
      sample(all, 2, {1, 3}, to_one, {positive({3, 5, 73, 72}), positive({3, 5, 73, 72}), Shape{1, 1, 1}}),
      sample(masked, 0, {0}, to_one, {Shape{1000, 72}, Shape{1000, 72}, Shape{1}}),
      sample(scaled, 1, {1}, to_one, {Shape{}, large}),
  };
}

std::vector<Sample> samples_of_rows() {
  const char *const of_matrix = "sum {\"axes\":[0],\"keep_dims\":false}", *const of_images = "mean {\"axes\":[0,1,2],\"keep_dims\":true}";
  const Shape small{5, 6}, matrix{700, 96}, tall{66000, 8}, images{3, 20, 18, 64};
  return {
      sample(masked, 1, {0}, of_matrix, {small, small, Shape{6}}),
      sample(squared, 1, {1, 0}, of_images, {Shape{2, 3, 2, 4}, Shape{2, 3, 2, 4}, Shape{2, 3, 2, 1}}),
      sample(masked, 1, {0}, of_matrix, {matrix, matrix, Shape{96}}),
      sample(all, 1, {0, 3}, of_matrix, {tall, Shape{1, 8}, Shape{66000, 1}}),
      sample(squared, 0, {1, 0}, of_images, {images, images, Shape{3, 20, 18, 1}}),
  };
}

}  // namespace

std::optional<SummedImages> SummedImages::of(const Shape& shape, std::span<const TensorType> operands, const OperatorCall& reduction) {
  if (reduction.op->name != "sum" && reduction.op->name != "mean") return std::nullopt;
  const Dims axes = normalize_axes(reduction.attributes.as<ReductionAttributes>().axes, shape.rank(), "elementwise_sums");
  Dims all_rows, pixels, all_pixels{0};
  for (int axis = 0; axis + 1 < shape.rank(); ++axis) all_rows.push_back(axis);
  for (int axis = 2; axis < shape.rank(); ++axis) pixels.push_back(axis), all_pixels.push_back(axis);
  SummedImages images;
  images.shape_ = images.image_ = shape;
  images.are_rows_ = shape.rank() >= 2 && axes == all_rows;
  images.of_each_sample_ = axes == pixels;
  images.of_everything_ = axes.rank() == shape.rank() && shape.rank() > 0;
  images.in_any_order_ = images.of_everything_ && std::all_of(operands.begin(), operands.end(), [&](const TensorType& type) {
                           return type.shape == shape || element_count(type.shape) == 1;
                         });
  const bool are_images = shape.rank() >= 4 && (images.of_everything_ || axes == pixels || axes == all_pixels);
  if (element_count(shape) == 0 || (!images.are_rows_ && !images.in_any_order_ && !are_images)) return std::nullopt;
  if (images.are_rows_) images.image_ = {element_count(shape) / shape.back(), shape.back(), 1, 1};
  if (images.in_any_order_) {
    std::int64_t columns = 64;
    while (element_count(shape) % columns != 0) columns /= 2;
    images.image_ = {element_count(shape) / columns, columns, 1, 1};
  }
  constexpr std::int64_t least_summed = 16;
  const std::int64_t rows = element_count(shape) / images.image_[1], summed = images.of_each_sample_ ? rows / shape[0] : rows;
  return summed >= least_summed && rows <= INT32_MAX ? std::optional(images) : std::nullopt;
}

std::optional<Shape> SummedImages::operand(const Shape& operand) const {
  if (in_any_order_) return operand == shape_ ? image_ : Shape{};
  if (!are_rows_) return lies_along(operand, shape_) || lies_along_pixels(operand, shape_) ? std::optional(operand) : std::nullopt;
  if (operand == shape_) return image_;
  if (element_count(operand) == 1) return Shape{};
  Shape one_channel = shape_;
  one_channel[one_channel.rank() - 1] = 1;
  if (operand == one_channel) return Shape{image_[0], 1, 1, 1};
  const bool is_one_row = operand.back() == image_[1] && element_count(operand) == image_[1];
  return is_one_row ? std::optional(Shape{image_[1], 1, 1}) : std::nullopt;
}

std::vector<TensorType> program_outputs(const ReducedProgram& call, std::span<const TensorType> inputs) {
  return elementwise().infer_types(inputs, ElementwiseAttributes{call.program});
}

namespace {

/// On a CPU, whose kernels compute halves in float32, what lies between is not rounded to them, unless the program converts itself.
TensorType between(const TensorType& type, Device device) {
  return {device.kind == DeviceKind::cpu && is_half(type.dtype) ? DType::f32 : type.dtype, type.shape};
}

TensorType reduced(const OperatorCall& reduction, const TensorType& type) {
  return reduction.op->infer_types({&type, 1}, reduction.attributes)[0];
}

}  // namespace

std::size_t scratch_of_sums_in_parts(const InferContext& context, Device device) {
  const ReducedProgram& call = call_of(context.attributes);
  const CallLayouts read{{layout_of(context.layouts)}};
  std::vector<TensorType> values;
  for (const TensorType& type : program_outputs(call, context.inputs)) values.push_back(between(type, device));
  std::size_t kept = 0, most = scratch_bytes(elementwise(), context.inputs, values, ElementwiseAttributes{call.program}, device);
  for (const TensorType& type : values) kept += bytes_of(type);  // one that is stored too, as it may be that nobody reads it
  for (const std::int64_t output : call.reduced) {
    const TensorType &value = values[static_cast<std::size_t>(output)], sum = reduced(call.reduction, value);
    most = std::max(most, scratch_bytes(*call.reduction.op, {&value, 1}, {&sum, 1}, call.reduction.attributes, device, read));
    kept += bytes_of(sum);
  }
  return kept + most;
}

void run_sums_in_parts(const KernelContext& context) {
  const ReducedProgram& call = call_of(context.attributes);
  const Device device = context.inputs[0].device();
  const std::vector<TensorType> types = program_outputs(call, types_of(context.inputs));
  const auto stored = context.outputs.first(static_cast<std::size_t>(call.stored)), sums = context.outputs.subspan(stored.size());
  std::span<std::byte> scratch = context.scratch;
  const auto take = [&](const TensorType& type, Layout layout) {
    FRIT_CHECK(bytes_of(type) <= scratch.size());
    const Tensor tensor = Tensor::over(scratch.data(), type.shape, type.dtype, device, nullptr, layout);
    scratch = scratch.subspan(bytes_of(type));
    return tensor;
  };
  std::vector<Tensor> values(stored.begin(), stored.end());
  values.resize(types.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto output = static_cast<std::size_t>(call.reduced[static_cast<int>(i)]);
    const TensorType kept = between(types[output], device);
    const bool has_room = values[output].defined() && values[output].dtype() == kept.dtype;
    if (sums[i].defined() && !has_room) values[output] = take(kept, layout_of(layouts_of(context)));
  }
  if (std::none_of(values.begin(), values.end(), [](const Tensor& value) { return value.defined(); })) return;
  invoke(elementwise(), ElementwiseAttributes{call.program}, context.inputs, values, scratch);
  for (std::size_t k = 0; k < stored.size(); ++k) {
    if (stored[k].defined() && stored[k].raw() != values[k].raw()) copy(stored[k], values[k]);
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!sums[i].defined()) continue;
    const Tensor& read = values[static_cast<std::size_t>(call.reduced[static_cast<int>(i)])];
    const TensorType type = reduced(call.reduction, {read.dtype(), read.shape()});
    const Tensor sum = type.dtype == sums[i].dtype() ? sums[i] : take(type, Layout::contiguous);
    invoke(*call.reduction.op, call.reduction.attributes, {&read, 1}, {&sum, 1}, scratch);
    if (sum.raw() != sums[i].raw()) copy(sums[i], sum);
  }
}

Kernel elementwise_sums_kernel(KernelFunction run, std::function<std::size_t(const InferContext&)> scratch, bool rows) {
  Kernel kernel{.run = std::move(run), .halves = true, .scratch = std::move(scratch)};
  if (rows) return kernel;  // contiguous
  kernel.any_layout_inputs = {0};
  kernel.any_layout_outputs = all_program_outputs();
  kernel.one_layout = true;  // contiguous it runs in parts, but for sums of everything: that costs no more than a conversion
  return kernel;
}

}  // namespace frit::ops

FRIT_OPERATORS(elementwise_sums) {
  for (const bool rows : {false, true}) {
    registry.add<ElementwiseSumsAttributes>(
        {.name = rows ? "elementwise_row_sums" : "elementwise_sums",
         .summary = rows ? "a program of elementwise operators, and sums or means of its results over all rows of channels"
                         : "a program of elementwise operators, and sums or means of its results over the pixels of images, or over all",
         .inputs = {"input"},
         .variadic = true,
         .variadic_outputs = true,
         .infer = infer,
         .no_gradient = "made of operators whose gradients are taken before",
         .decompose = decompose,
         .join_reduced = join_reduced(rows),
         .cpu = elementwise_sums_kernel(
             run_sums_in_parts, [](const InferContext& call) { return scratch_of_sums_in_parts(call, Device::cpu()); }, rows),
         .in_place = all_outputs_in_any_input(),
         .samples = rows ? samples_of_rows : samples_of_images});
  }
}
