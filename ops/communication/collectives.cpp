#include "frit/ops/communication/collectives.h"

#include <numeric>

#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

constexpr const char* no_gradient_of_parts = "made for gradients and updates, which are not differentiated through";

struct AllReduceAttributes {
  std::int64_t communicator = Communicator::no_id;

  void fields(FieldVisitor& v) { v.field("communicator", communicator); }
};

struct ReduceScatterAttributes {
  std::int64_t communicator = Communicator::no_id;
  std::int64_t rank = 0, processes = 1;  ///< of the communicator

  void fields(FieldVisitor& v) {
    v.field("communicator", communicator);
    v.field("rank", rank);
    v.field("processes", processes);
  }
};

/// For the types of tensors that one call takes.
void check_reduced(const InferContext& call) {
  call.require(call.inputs.size() <= most_reduced_together, "got ", call.inputs.size(), " tensors, expected at most ",
               most_reduced_together);
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    call.require(is_floating(call.inputs[i].dtype), "tensor ", i, " is ", call.inputs[i].dtype, ", expected floating numbers");
  }
}

std::vector<TensorType> infer_all_reduce(const InferContext& call) {
  check_reduced(call);
  return {call.inputs.begin(), call.inputs.end()};
}

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

/// Of a call, but for results that nobody reads: nor are they read in the other processes.
struct Reduced {
  std::vector<Tensor> tensors, results;

  explicit Reduced(const KernelContext& call) {
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      if (!call.outputs[i].defined()) continue;
      tensors.push_back(call.inputs[i]);
      results.push_back(call.outputs[i]);
    }
  }
};

// The kernels, on any device: on a GPU NCCL's, in the order of the call's stream.

void run_all_reduce(const KernelContext& call) {
  const std::int64_t id = call.as<AllReduceAttributes>().communicator;
  const auto [tensors, means] = Reduced(call);
  if (id != Communicator::no_id) return Communicator::of(id).mean(tensors, means, call.stream);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (means[i].raw() != tensors[i].raw()) copy(means[i], tensors[i]);
  }
}

void run_reduce_scatter(const KernelContext& call) {
  const auto& [id, rank, processes] = call.as<ReduceScatterAttributes>();
  const auto [tensors, parts] = Reduced(call);
  if (id != Communicator::no_id) return Communicator::of(id).reduce_scatter(tensors, parts, call.stream);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    copy(parts[i], part_of(tensors[i], static_cast<int>(rank), static_cast<int>(processes)));
  }
}

void run_gather_parts(const KernelContext& call) {
  const std::int64_t id = call.as<AllReduceAttributes>().communicator;
  if (id == Communicator::no_id) return;
  Communicator& communicator = Communicator::of(id);
  std::vector<Tensor> parts;
  for (const Tensor& variable : call.inputs) parts.push_back(part_of(variable, communicator.rank(), communicator.size()));
  communicator.all_gather(parts, call.inputs, call.stream);
}

std::vector<std::pair<int, int>> each_in_place() {
  std::vector<std::pair<int, int>> pairs;
  for (int i = 0; i < static_cast<int>(most_reduced_together); ++i) pairs.push_back({i, i});
  return pairs;
}

std::vector<int> each_input() {
  std::vector<int> inputs(most_reduced_together);
  std::iota(inputs.begin(), inputs.end(), 0);
  return inputs;
}

/// Calls with these attributes, of tensors in several numbers and shapes.
std::vector<Sample> reduced_samples(const Attributes& attributes) {
  const std::vector<std::vector<SampleInput>> tensors = {
      {Shape{7}}, {Shape{3, 5}, Shape{}, Shape{2, 3, 5}}, {Shape{0, 3}, Shape{1}}, {Shape{40, 30}}};
  std::vector<Sample> samples;
  for (const auto& inputs : tensors) samples.push_back({.inputs = inputs, .attributes = attributes});
  return samples;
}

std::vector<Sample> samples_of_parts() {
  std::vector<Sample> samples = reduced_samples(ReduceScatterAttributes{});
  for (Sample& sample : reduced_samples(ReduceScatterAttributes{.rank = 2, .processes = 3})) samples.push_back(std::move(sample));
  return samples;
}

}  // namespace

Values all_reduce(std::span<const Value> tensors, const Communicator& communicator) {
  return emit("all_reduce", tensors, AllReduceAttributes{communicator.id()});
}

Values reduce_scatter(std::span<const Value> tensors, const Communicator& communicator) {
  return emit("reduce_scatter", tensors, ReduceScatterAttributes{communicator.id(), communicator.rank(), communicator.size()});
}

void gather_parts(std::span<const Value> variables, const Communicator& communicator) {
  emit("gather_parts", variables, AllReduceAttributes{communicator.id()});
}

}  // namespace frit::ops

FRIT_OPERATORS(collectives) {
  registry.add<AllReduceAttributes>({
      .name = "all_reduce",
      .summary = "the mean of each tensor over the processes of a communicator",
      .inputs = {"tensors"},
      .variadic = true,
      .outputs = {"means"},
      .variadic_outputs = true,
      .infer = infer_all_reduce,
      .no_gradient = "made for gradients, which are not differentiated through",
      .cpu = {.run = run_all_reduce, .halves = true},
      .cuda = {.run = run_all_reduce, .halves = true},
      .in_place = each_in_place(),
      .collective = true,
      .samples = [] { return reduced_samples(AllReduceAttributes{}); },
  });
  registry.add<ReduceScatterAttributes>({
      .name = "reduce_scatter",
      .summary = "a process's part of the mean of each tensor over the processes of a communicator",
      .inputs = {"tensors"},
      .variadic = true,
      .outputs = {"parts"},
      .variadic_outputs = true,
      .infer = infer_parts,
      .no_gradient = no_gradient_of_parts,
      .cpu = {.run = run_reduce_scatter, .halves = true},
      .cuda = {.run = run_reduce_scatter, .halves = true},
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
      .cpu = {.run = run_gather_parts, .halves = true},
      .cuda = {.run = run_gather_parts, .halves = true},
      .mutates = each_input(),
      .collective = true,
      .samples = [] { return reduced_samples(AllReduceAttributes{}); },
  });
}
