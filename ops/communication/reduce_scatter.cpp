#include "frit/ops/communication/reduce_scatter.h"

#include "frit/ops/communication/all_reduce_attributes.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

constexpr const char* no_gradient_of_parts = "made for gradients and updates, which are not differentiated through";

std::vector<TensorType> infer_parts(const InferContext& call) {
  check_reduced(call);
  const auto& attributes = call.as<ReduceScatterAttributes>();
  call.require(attributes.rank >= 0 && attributes.rank < attributes.processes, "process ", attributes.rank, " of ", attributes.processes);
  std::vector<TensorType> types;
  for (const TensorType& type : call.inputs) {
    const Parts parts(type.elements(), static_cast<int>(attributes.processes));
    types.push_back({type.dtype, {parts.size(static_cast<int>(attributes.rank))}});
  }
  return types;
}

std::vector<TensorType> infer_gathered(const InferContext& call) {
  check_reduced(call);
  return {};
}

Tensor part_of(const Tensor& tensor, int rank, int processes) {
  const Parts parts(tensor.elements(), processes);
  return Tensor::over(address_of(tensor, parts.begin(rank)), {parts.size(rank)}, tensor.dtype(), tensor.device(), nullptr);
}

std::vector<int> each_input() {
  std::vector<int> inputs;
  for (int i = 0; i < static_cast<int>(most_reduced_together); ++i) inputs.push_back(i);
  return inputs;
}

std::vector<Sample> samples_of_parts() {
  std::vector<Sample> samples = reduced_samples(ReduceScatterAttributes{});
  for (Sample& sample : reduced_samples(ReduceScatterAttributes{.rank = 2, .processes = 3})) samples.push_back(std::move(sample));
  return samples;
}

}  // namespace

void parts_of_mean_over_processes(const KernelContext& call) {
  const auto& attributes = call.as<ReduceScatterAttributes>();
  std::vector<Tensor> tensors, parts;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.outputs[i].defined()) continue;  // nor is it in the other processes
    tensors.push_back(call.inputs[i]);
    parts.push_back(call.outputs[i]);
  }
  if (attributes.communicator != Communicator::no_id)
    return Communicator::of(attributes.communicator).reduce_scatter(tensors, parts, call.stream);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    copy(parts[i], part_of(tensors[i], static_cast<int>(attributes.rank), static_cast<int>(attributes.processes)));
  }
}

void gather_parts_of_processes(const KernelContext& call) {
  const std::int64_t id = call.as<AllReduceAttributes>().communicator;
  if (id == Communicator::no_id) return;
  Communicator& communicator = Communicator::of(id);
  std::vector<Tensor> parts;
  for (const Tensor& variable : call.inputs) parts.push_back(part_of(variable, communicator.rank(), communicator.size()));
  communicator.all_gather(parts, call.inputs, call.stream);
}

Values reduce_scatter(std::span<const Value> tensors, const Communicator& communicator) {
  return emit("reduce_scatter", tensors, ReduceScatterAttributes{communicator.id(), communicator.rank(), communicator.size()});
}

void gather_parts(std::span<const Value> variables, const Communicator& communicator) {
  emit("gather_parts", variables, AllReduceAttributes{communicator.id()});
}

}  // namespace frit::ops

FRIT_OPERATORS(reduce_scatter) {
  registry.add<ReduceScatterAttributes>({
      .name = "reduce_scatter",
      .summary = "a process's part of the mean of each tensor over the processes of a communicator",
      .inputs = {"tensors"},
      .variadic = true,
      .outputs = {"parts"},
      .variadic_outputs = true,
      .infer = infer_parts,
      .no_gradient = no_gradient_of_parts,
      .cpu = {.run = parts_of_mean_over_processes, .halves = true},
      .collective = true,
      .samples = samples_of_parts,
  });
  registry.add<AllReduceAttributes>({
      .name = "gather_parts",
      .summary = "gives the processes of a communicator every one's part of each variable",
      .inputs = {"variables"},
      .variadic = true,
      .outputs = {},
      .infer = infer_gathered,
      .no_gradient = no_gradient_of_parts,
      .cpu = {.run = gather_parts_of_processes, .halves = true},
      .mutates = each_input(),
      .collective = true,
      .samples = [] { return reduced_samples(AllReduceAttributes{}); },
  });
}
