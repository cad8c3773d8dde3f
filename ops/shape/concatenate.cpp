#include "frit/ops/shape/concatenate.h"

#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/stream.h"
#include "frit/ops/operator/memory_order.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/image_axes.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace ops {
namespace {

struct ConcatenateAttributes {
  std::int64_t axis = 0;
  void fields(FieldVisitor& v) { v.field("axis", axis); }
};

/// All inputs, but where samples follow samples.
std::vector<bool> samples_of_parts(const InferContext& call) {
  return std::vector(call.inputs.size(), concatenation_axis(call.attributes, call.shape(0).rank()) != 0);
}

std::vector<TensorType> infer_concatenate(const InferContext& call) {
  TensorType result = call.inputs[0];
  const int axis = concatenation_axis(call.attributes, result.shape.rank());
  for (std::size_t i = 1; i < call.inputs.size(); ++i) {
    TensorType expected = call.inputs[i];
    const std::int64_t size = axis < expected.shape.rank() ? expected.shape[axis] : 0;
    if (axis < expected.shape.rank()) expected.shape[axis] = call.shape(0)[axis];
    call.require(expected == call.inputs[0], "input ", i, " is ", call.inputs[i], ", which does not join ", call.inputs[0], " along axis ",
                 axis);
    result.shape[axis] += size;
  }
  return {result};
}

Values concatenate_gradient(const GradientContext& call) {
  const std::int64_t axis = call.as<ConcatenateAttributes>().axis;
  Values results;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const std::int64_t end = begin + call.inputs[i].dim(axis);
    results.push_back(call.wanted[i] ? slice(call.gradients[0], axis, begin, end) : Value{});
    begin = end;
  }
  return results;
}

std::vector<Sample> concatenate_samples() {
  return {
      {.inputs = {Shape{3}, Shape{5}}},
      {.inputs = {Shape{2, 16, 1, 3}, Shape{2, 8, 1, 3}, Shape{2, 24, 1, 3}}, .attributes = ConcatenateAttributes{1}},
      {.inputs = {Shape{2, 3}, Shape{2, 1}, Shape{2, 5}}, .attributes = ConcatenateAttributes{-1}},
      {.inputs = {Shape{2, 3, 2}, Shape{2, 0, 2}, Shape{2, 1, 2}}, .attributes = ConcatenateAttributes{1}},
      {.inputs = {Shape{2, 8, 3, 2}, Shape{2, 3, 3, 2}}, .attributes = ConcatenateAttributes{1}},
      {.inputs = {Shape{2, 58, 2, 3}, Shape{2, 6, 2, 3}, Shape{2, 21, 2, 3}}, .attributes = ConcatenateAttributes{1}},
      {.inputs = {Shape{1, 7}}},
      {.inputs = {Shape{0, 2}, Shape{0, 3}}, .attributes = ConcatenateAttributes{1}},
  };
}

/// Copies whole stretches of the result's bytes, in their order.
void concatenate_rows(const Tensor& output, const JoinedRows& rows) {
  constexpr std::int64_t grain = 1 << 16;
  const bool streams = output.bytes() >= streamed_bytes;
  auto* const to = static_cast<std::byte*>(output.raw());
  parallel_for(rows.count * rows.length, grain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t row = begin / rows.length, place = begin % rows.length;
    for (; begin < end; ++row, begin += rows.length - place, place = 0) {
      const std::int64_t last = std::min(rows.length, place + end - begin);
      for (const JoinedRows::Part& part : rows.parts) {
        const std::int64_t first = std::max(place, part.begin), count = std::min(last, part.begin + part.length) - first;
        if (count <= 0) continue;
        const std::byte* const from = part.data + row * part.step + first - part.begin;
        std::byte* const there = to + row * rows.step + first;
        streams ? stream(there, from, count) : static_cast<void>(std::copy_n(from, count, there));
      }
    }
    if (streams) end_stream();
  });
}

void run_concatenate(const KernelContext& call) {
  const std::optional<JoinedRows> rows = JoinedRows::of(call);
  rows ? concatenate_rows(call.outputs[0], *rows) : concatenate_in_turn(call);
}

/// Elements from a row to the next, which each begin with axes before `axis`; nothing if there are none, or one does not lie in one piece.
std::optional<std::int64_t> row_step(const Tensor& tensor, int axis) {
  std::int64_t length = 1, rows = 1;
  for (int a = tensor.rank() - 1; a >= axis; --a) {
    if (tensor.dim(a) != 1 && tensor.strides()[a] != length) return std::nullopt;
    length *= tensor.dim(a);
  }
  std::int64_t step = length;
  for (int a = axis - 1; a >= 0; --a) {
    if (tensor.dim(a) == 1) continue;
    if (rows == 1) step = tensor.strides()[a];
    if (tensor.strides()[a] != rows * step) return std::nullopt;
    rows *= tensor.dim(a);
  }
  return step;
}

}  // namespace

int concatenation_axis(const Attributes& attributes, int rank) {
  return normalize_axis(attributes.as<ConcatenateAttributes>().axis, rank, "concatenate");
}

void concatenate_in_turn(const KernelContext& call) {
  const int axis = concatenation_axis(call.attributes, call.outputs[0].rank());
  std::int64_t begin = 0;
  for (const Tensor& input : call.inputs) {
    const Tensor part = call.outputs[0].slice(axis, begin, begin + input.dim(axis));
    if (part.raw() != input.raw()) copy(part, input);
    begin += input.dim(axis);
  }
}

std::optional<JoinedRows> JoinedRows::of(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  const bool in_channels = !output.is_contiguous();
  if (in_channels && output.pixel_pitch() == 0) return std::nullopt;
  const int axis = concatenation_axis(call.attributes, output.rank());
  const Dims axes = memory_order(output);
  const auto place = static_cast<int>(std::find(axes.begin(), axes.end(), axis) - axes.begin());
  const auto element = static_cast<std::int64_t>(size_of(output.dtype()));
  const Tensor in_order = output.permute(axes);
  const std::optional<std::int64_t> step = row_step(in_order, place);
  if (!step) return std::nullopt;
  std::int64_t of_axis = element;  // bytes
  for (int a = place + 1; a < output.rank(); ++a) of_axis *= in_order.dim(a);
  JoinedRows rows{.count = 1, .step = *step * element, .length = of_axis * in_order.dim(place)};
  for (int a = 0; a < place; ++a) rows.count *= in_order.dim(a);
  std::int64_t begin = 0;
  for (const Tensor& input : call.inputs) {
    const std::int64_t length = of_axis * input.dim(axis);
    if (input.elements() > 0 && input.raw() != static_cast<std::byte*>(output.raw()) + begin) {
      const std::optional<std::int64_t> of_input = row_step(input.permute(axes), place);
      if (!of_input) return std::nullopt;
      rows.parts.push_back({static_cast<const std::byte*>(input.raw()), *of_input * element, begin, length});
    }
    begin += length;
  }
  return rows;
}

}  // namespace ops

Value concatenate(std::span<const Value> parts, std::int64_t axis) {
  require(!parts.empty(), "concatenate: no inputs were given");
  return ops::emit("concatenate", parts, ops::ConcatenateAttributes{normalize_axis(axis, parts[0].rank(), "concatenate")}).front();
}

}  // namespace frit

FRIT_OPERATORS(concatenate) {
  registry.add<ConcatenateAttributes>({
      .name = "concatenate",
      .summary = "the inputs one after another along an axis",
      .inputs = {"inputs"},
      .variadic = true,
      .infer = infer_concatenate,
      .gradient = concatenate_gradient,
      .samples_in = samples_of_parts,
      .cpu = {.run = run_concatenate,
              .strided = true,
              .takes_parts = [](const KernelContext&) { return true; },
              .halves = true,
              .any_layout_inputs = {0},
              .any_layout_outputs = {0}},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .joins = concatenation_axis,
      .with_unit_axis = axis_around_unit_axis<ConcatenateAttributes>,
      .samples = concatenate_samples,
  });
}
