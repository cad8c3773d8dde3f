// Kernels that compute several calls at once give the bits of single calls.

#include <gtest/gtest.h>

#include "frit/core/cuda/device.h"
#include "ops/operator_checks.h"

namespace frit::together_test {
namespace {

/// Empty, of one chunk or many, with vectors that are cut short, and as images of either layout.
const std::vector<Shape> shapes = {{7},      {0, 3},       {1},          {2048},         {2049},       {3, 1401},
                                   {20'000}, {8, 3, 3, 3}, {1, 5, 2, 2}, {64, 16, 5, 5}, {16, 1, 3, 3}};

/// Of a tensor that is made longer, and of all but one in ten.
constexpr std::int64_t most_elements = 20'000, few_elements = 1'000;

struct Call {
  std::vector<Tensor> inputs, outputs;
};

bool takes_any_layout(const std::vector<int>& operands, std::size_t operand) {
  return std::find(operands.begin(), operands.end(), static_cast<int>(operand)) != operands.end();
}

/// A call of the sample with its first input, and all of that shape, in another layout and, where all others are scalars, in another shape;
/// sometimes misaligned. Its scalars are those of `scalars`, if given.
Call call_of(const Operator& op, Sample sample, DType dtype, std::size_t number, Device device, const Call* scalars) {
  const ops::Kernel& kernel = op.kernel_on(device);
  const Shape old = sample.inputs[0].shape;
  const bool resizable = std::all_of(sample.inputs.begin(), sample.inputs.end(),
                                     [&](const ops::SampleInput& input) { return input.shape == old || input.shape.empty(); });
  Shape shape = resizable ? shapes[number % shapes.size()] : old;
  if (op.name == "sum" || op.name == "mean") {  // whose axes its attributes name: longer ones, a few so long that rows are cut into chunks
    shape = old;
    const std::int64_t most = number % 10 == 0 ? most_elements : few_elements;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const auto longer = static_cast<std::int64_t>((number + static_cast<std::size_t>(axis)) % 4 == 0 ? 600 : 1 + number % 3);
      shape[axis] *= std::clamp<std::int64_t>(most / std::max<std::int64_t>(element_count(shape), 1), 1, longer);
    }
  }
  for (ops::SampleInput& input : sample.inputs) {
    if (input.shape == old) input.shape = shape;
  }
  Call call{sample_tensors(sample, dtype, number), {}};
  const std::vector<TensorType> results = op.infer_types(types_of(call.inputs), sample.attributes);
  const auto layout = [&](const std::vector<int>& operands, std::size_t operand, bool last) {
    return shape.rank() >= 4 && last && takes_any_layout(operands, operand) ? Layout::channels_last : Layout::contiguous;
  };
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    Tensor& input = call.inputs[i];
    const bool scalar = input.shape().empty();
    input = scalar && scalars != nullptr ? scalars->inputs[i]
                                         : input.to(device).contiguous(layout(kernel.any_layout_inputs, i, number % 2 == 0));
    if (!scalar && number % 5 == 4 && input.is_contiguous()) input = misaligned_copy(input);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    call.outputs.push_back(
        Tensor::empty(results[i].shape, results[i].dtype, device, layout(kernel.any_layout_outputs, i, number % 3 == 0)));
  }
  return call;
}

/// What comes of more calls than one launch takes, with two sets of scalars: together or one by one.
std::vector<Tensor> results(const Operator& op, const Sample& sample, DType dtype, Device device, bool together) {
  std::vector<Call> calls;
  for (std::size_t i = 0; i < 200; ++i) {
    calls.push_back(call_of(op, sample, dtype, i, device, i % 140 == 0 ? nullptr : &calls[i / 140 * 140]));
  }
  std::vector<ops::KernelContext> contexts;
  std::vector<Tensor> scratch;
  for (const Call& call : calls) {
    const auto bytes = static_cast<std::int64_t>(
        ops::scratch_bytes(op, ops::types_of(call.inputs), ops::types_of(call.outputs), sample.attributes, device));
    scratch.push_back(Tensor::empty({bytes}, DType::u8, device));
    const std::span<std::byte> memory(static_cast<std::byte*>(scratch.back().raw()), static_cast<std::size_t>(bytes));
    contexts.push_back({op, sample.attributes, call.inputs, call.outputs, memory});
  }
  for (const ops::KernelContext& call : contexts) {
    if (!together) ops::invoke(op, call.attributes, call.inputs, call.outputs, call.scratch);
  }
  if (together) ops::invoke(std::move(contexts));
  std::vector<Tensor> values;
  for (const Call& call : calls) {
    for (const Tensor& output : call.outputs) values.push_back(output.to(Device::cpu()));
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      if (mutates(op, i)) values.push_back(call.inputs[i].to(Device::cpu()));
    }
  }
  return values;
}

/// Returns how many operators there were.
int compare_all(Device device) {
  int compared = 0;
  for (const Operator* op : ops::registry().all()) {
    if (op->view || !(device == Device::cpu() ? op->cpu : op->cuda).run_together) continue;
    ++compared;
    for (const Sample& sample : op->samples()) {
      if (sample.inputs[0].shape.empty()) continue;                         // one cannot tell its scalars
      if (element_count(sample.inputs[0].shape) > most_elements) continue;  // hundreds of them would take long
      for (const DType dtype : op->dtypes) {
        if (is_half(dtype) && !op->kernel_on(device).halves) continue;
        SCOPED_TRACE(concat(op->name, " {", sample.attributes.text(), "} ", dtype));
        const std::vector<Tensor> expected = results(*op, sample, dtype, device, false), found = results(*op, sample, dtype, device, true);
        for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same_bits(found[i], expected[i])) << "result " << i;
      }
    }
  }
  return compared;
}

TEST(CudaTogether, GivesTheBitsOfSingleCalls) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  EXPECT_GE(compare_all({DeviceKind::cuda, 0}), 6) << "sgd_update, adam_update, clear, cast, sum, mean";
}

}  // namespace
}  // namespace frit::together_test
