#include "frit/graph/executable.h"

#include <algorithm>

#include "frit/core/cuda/range.h"
#include "frit/core/text.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/profile.h"
#include "frit/ops/operator/run.h"

namespace frit::graph {
namespace {

/// Where a step reads and writes.
struct Accesses {
  using Range = std::span<const std::byte>;
  std::vector<Range> read, written;

  explicit Accesses(const Step& step) {
    const std::vector<int>& mutated = step.op->mutates;
    for (const Call& call : step.calls) {
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        const bool changed = std::find(mutated.begin(), mutated.end(), static_cast<int>(i)) != mutated.end();
        add(changed ? written : read, call.inputs[i]);
      }
      for (const Tensor& output : call.outputs) add(written, output);
      written.push_back(call.scratch);
    }
  }

  bool waits_for(const Accesses& earlier) const {
    return meet(written, earlier.written) || meet(written, earlier.read) || meet(read, earlier.written);
  }

 private:
  static void add(std::vector<Range>& ranges, const Tensor& tensor) {
    if (tensor.defined()) ranges.push_back({static_cast<const std::byte*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes())});
  }
  static bool meet(const std::vector<Range>& left, const std::vector<Range>& right) {
    const auto overlap = [](Range a, Range b) {
      return !a.empty() && !b.empty() && a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
    };
    return std::any_of(left.begin(), left.end(),
                       [&](Range a) { return std::any_of(right.begin(), right.end(), [&](Range b) { return overlap(a, b); }); });
  }
};

}  // namespace

std::vector<std::vector<int>> steps_before(std::span<const Step> steps) {
  std::vector<std::vector<int>> before(steps.size());
  std::vector<std::vector<bool>> known(steps.size());  // of each step: those that it waits for, directly or not
  const std::vector<Accesses> accesses(steps.begin(), steps.end());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    known[i].resize(i);
    for (std::size_t j = i; j-- > 0;) {
      if (known[i][j] || !accesses[i].waits_for(accesses[j])) continue;
      before[i].push_back(static_cast<int>(j));
      known[i][j] = true;
      for (std::size_t k = 0; k < j; ++k) {
        if (known[j][k]) known[i][k] = true;
      }
    }
  }
  return before;
}

void Step::run() const {
  const cuda::Range range(calls.size() == 1 ? op->name.c_str() : concat(op->name, " x ", calls.size()).c_str());
  if (calls.size() == 1) return ops::invoke(*op, attributes, calls[0].inputs, calls[0].outputs, calls[0].scratch);
  std::vector<ops::KernelContext> together;
  for (const Call& call : calls) together.push_back({*op, attributes, call.inputs, call.outputs, call.scratch});
  ops::invoke(std::move(together));
}

Executable::Executable(const Graph& graph, State& state) : graph_(remove_dead_code(graph)) {
  verify(graph_);
  state.prepare(graph_);
  const std::vector<Layout> layouts = choose_layouts(graph_, state.device());
  const BufferPlan buffers = plan_buffers(graph_, state.device(), layouts);
  plan_ = plan_memory(buffers.lifetimes);
  arena_ = Tensor::empty({plan_.arena_bytes}, DType::u8, state.device());
  const auto place = [&](int buffer) { return static_cast<std::byte*>(arena_.raw()) + plan_.offsets[static_cast<std::size_t>(buffer)]; };

  values_.resize(static_cast<std::size_t>(graph_.value_count()));
  for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
    const Node& node = graph_.nodes()[n];
    for (const int id : node.outputs) {
      const TensorType& type = graph_.type(id);
      const int buffer = buffers.buffer[static_cast<std::size_t>(id)];
      if (buffer < 0) continue;
      values_[static_cast<std::size_t>(id)] =
          Tensor::over(place(buffer), type.shape, type.dtype, state.device(), nullptr, layouts[static_cast<std::size_t>(id)]);
    }
    if (node.kind == NodeKind::variable) values_[static_cast<std::size_t>(node.outputs[0])] = state.at(node.name);
    if (node.kind == NodeKind::constant) values_[static_cast<std::size_t>(node.outputs[0])] = node.constant.to(state.device());
    if (node.kind != NodeKind::operation) continue;
    const Tensor& first = values_[static_cast<std::size_t>(node.inputs[0])];
    if (node.op->view) {
      values_[static_cast<std::size_t>(node.outputs[0])] = first.reshape(graph_.type(node.outputs[0]).shape);
      continue;
    }
    Call call{{}, {}, {}, static_cast<int>(n)};
    for (const int id : node.inputs) call.inputs.push_back(values_[static_cast<std::size_t>(id)]);
    for (const int id : node.outputs) call.outputs.push_back(values_[static_cast<std::size_t>(id)]);
    if (const int scratch = buffers.scratch[n]; scratch >= 0) {
      call.scratch = {place(scratch), static_cast<std::size_t>(buffers.lifetimes[static_cast<std::size_t>(scratch)].bytes)};
    }
    if (buffers.step[n] == static_cast<int>(n)) steps_.push_back({node.op, node.attributes, {}});
    steps_.back().calls.push_back(std::move(call));
  }
}

void Executable::run(const Bindings& inputs) {
  place_inputs(inputs);
  run();
}

void Executable::place_inputs(const Bindings& inputs) {
  for (const Node* node : graph_.all(NodeKind::input)) {
    const auto given = inputs.find(node->name);
    require(given != inputs.end(), "input \"", node->name, "\" was not given");
    const TensorType& type = graph_.type(node->outputs[0]);
    const TensorType found{given->second.dtype(), given->second.shape()};
    require(type == found, "input \"", node->name, "\": expected ", type, ", got ", found);
    const Tensor& place = values_[static_cast<std::size_t>(node->outputs[0])];
    if (!place.defined()) continue;
    if (place.device() == given->second.device() || place.is_contiguous()) {
      copy(place, given->second);
      continue;
    }
    // Another layout than the host's: the device rearranges it.
    Tensor& arrived = arrived_[node->name];
    if (!arrived.defined()) arrived = Tensor::empty(type.shape, type.dtype, place.device());
    copy(arrived, given->second);
    copy(place, arrived);
  }
}

void Executable::run() {
  if (Tracing* const tracing = Tracing::current()) return tracing->run(*this);
  const cuda::Range range("frit run");
  if (arena_.device().kind == DeviceKind::cpu || !warm_) {
    run_steps();
    warm_ = true;
    return;
  }
  if (!captured_.recorded()) {
    captured_.record(arena_.device().index, steps_before(steps_), [this](int step) { steps_[static_cast<std::size_t>(step)].run(); });
  }
  captured_.launch();
}

void Executable::run_each(const Bindings& inputs, const std::function<bool(const Step&)>& after) {
  place_inputs(inputs);
  for (const Step& step : steps_) {
    step.run();
    if (!after(step)) return;
  }
}

void Executable::run_steps() const {
  for (const Step& step : steps_) step.run();
}

std::int64_t Executable::predicted_bytes() const {
  std::int64_t bytes = plan_.arena_bytes;
  for (const Node& node : graph_.nodes()) {
    const bool outside = node.kind == NodeKind::variable || node.kind == NodeKind::constant;
    if (outside) bytes += values_[static_cast<std::size_t>(node.outputs[0])].bytes();
  }
  return bytes;
}

const Tensor& Executable::output(std::string_view name) const {
  for (const Output& output : graph_.outputs()) {
    if (output.name == name) return values_[static_cast<std::size_t>(output.value)];
  }
  fail(ErrorKind::argument, "the program has no output \"", name, "\"");
}

}  // namespace frit::graph
