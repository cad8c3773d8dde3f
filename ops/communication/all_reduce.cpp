#include "frit/ops/communication/all_reduce.h"

#include "frit/ops/communication/all_reduce_attributes.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

std::vector<TensorType> infer(const InferContext& call) {
  check_reduced(call);
  return {call.inputs.begin(), call.inputs.end()};
}

void kernel(const KernelContext& call) { mean_over_processes(call); }

std::vector<std::pair<int, int>> each_in_place() {
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < static_cast<int>(most_reduced_together); ++i) pairs.push_back({i, i});
  return pairs;
}

}  // namespace

void check_reduced(const InferContext& call) {
  call.require(call.inputs.size() <= most_reduced_together, "got ", call.inputs.size(), " tensors, expected at most ",
               most_reduced_together);
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    call.require(is_floating(call.inputs[i].dtype), "tensor ", i, " is ", call.inputs[i].dtype, ", expected floating numbers");
  }
}

std::vector<Sample> reduced_samples(const Attributes& attributes) {
  const std::vector<std::vector<SampleInput>> tensors = {
      {Shape{7}}, {Shape{3, 5}, Shape{}, Shape{2, 3, 5}}, {Shape{0, 3}, Shape{1}}, {Shape{40, 30}}};
  std::vector<Sample> samples;
  for (const auto& inputs : tensors) samples.push_back({.inputs = inputs, .attributes = attributes});
  return samples;
}

void mean_over_processes(const KernelContext& call) {
  const std::int64_t id = call.as<AllReduceAttributes>().communicator;
  std::vector<Tensor> tensors, means;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.outputs[i].defined()) continue;  // nor is it in the other processes
    tensors.push_back(call.inputs[i]);
    means.push_back(call.outputs[i]);
  }
  if (id != Communicator::no_id) return Communicator::of(id).mean(tensors, means, call.stream);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (means[i].raw() != tensors[i].raw()) copy(means[i], tensors[i]);
  }
}

Values all_reduce(std::span<const Value> tensors, const Communicator& communicator) {
  return emit("all_reduce", tensors, AllReduceAttributes{communicator.id()});
}

}  // namespace frit::ops

FRIT_OPERATORS(all_reduce) {
  registry.add<AllReduceAttributes>({
      .name = "all_reduce",
      .summary = "the mean of each tensor over the processes of a communicator",
      .inputs = {"tensors"},
      .variadic = true,
      .outputs = {"means"},
      .variadic_outputs = true,
      .infer = infer,
      .no_gradient = "made for gradients, which are not differentiated through",
      .cpu = {.run = kernel, .halves = true},
      .in_place = each_in_place(),
      .collective = true,
      .samples = [] { return reduced_samples(AllReduceAttributes{}); },
  });
}
