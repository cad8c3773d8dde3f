#include "frit/ops/shape/concatenate.h"

#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/stream.h"
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

/// Of an input: what each row of the result has of it.
struct Part {
  const std::byte* data;
  std::int64_t begin, length;
};

/// From inputs that lie as the result does, whose bytes are written in their order.
void concatenate_rows(const Tensor& output, const std::vector<Part>& parts, std::int64_t row_bytes) {
  constexpr std::int64_t grain = 1 << 16;
  const bool streams = output.bytes() >= streamed_bytes;
  auto* const to = static_cast<std::byte*>(output.raw());
  parallel_for(output.bytes(), grain, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t row = begin / row_bytes, place = begin % row_bytes;
    for (; begin < end; ++row, place = 0) {
      for (const Part& part : parts) {
        const std::int64_t skipped = place - part.begin, count = std::min(part.length - skipped, end - begin);
        if (count <= 0 || skipped < 0) continue;
        const std::byte* const from = part.data + row * part.length + skipped;
        streams ? stream(to + begin, from, count) : static_cast<void>(std::copy_n(from, count, to + begin));
        begin += count;
        place += count;
      }
    }
    if (streams) end_stream();
  });
}

void run_concatenate(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  const int axis = concatenation_axis(call.attributes, output.rank());
  const Layout layout = output.layout();
  const std::int64_t step = output.strides()[axis] * static_cast<std::int64_t>(size_of(output.dtype()));
  std::vector<Part> parts;
  std::int64_t row_bytes = 0;
  for (const Tensor& input : call.inputs) {
    if (!input.is_contiguous(layout)) return concatenate_in_turn(call);
    parts.push_back({static_cast<const std::byte*>(input.raw()), row_bytes, input.dim(axis) * step});
    row_bytes += input.dim(axis) * step;
  }
  concatenate_rows(output, parts, row_bytes);
}

}  // namespace

int concatenation_axis(const Attributes& attributes, int rank) {
  return normalize_axis(attributes.as<ConcatenateAttributes>().axis, rank, "concatenate");
}

void concatenate_in_turn(const KernelContext& call) {
  const int axis = concatenation_axis(call.attributes, call.outputs[0].rank());
  std::int64_t begin = 0;
  for (const Tensor& input : call.inputs) {
    const std::int64_t end = begin + input.dim(axis);
    copy(call.outputs[0].slice(axis, begin, end), input);
    begin = end;
  }
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
      .cpu = {.run = run_concatenate, .strided = true, .halves = true, .any_layout_inputs = {0}, .any_layout_outputs = {0}},
      .dtypes = {std::begin(all_dtypes), std::end(all_dtypes)},
      .with_unit_axis = axis_around_unit_axis<ConcatenateAttributes>,
      .samples = concatenate_samples,
  });
}
