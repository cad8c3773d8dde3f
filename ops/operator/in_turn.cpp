#include "frit/ops/operator/in_turn.h"

#include <algorithm>

#include "frit/ops/operator/emitter.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/operator/unplaced_call.h"

namespace frit::ops {

class InTurn::Recorder : public Emitter {
 public:
  explicit Recorder(InTurn& recorded) : recorded_(recorded) {}

  Values emit(const Operator& op, std::span<const Value> inputs, Attributes attributes) override {
    std::vector<int> read;
    for (const Value& input : inputs) read.push_back(input.id());
    const std::vector<TensorType> results = op.infer_types(recorded_.types_of(read), attributes);
    const int first = static_cast<int>(recorded_.types_.size());
    recorded_.steps_.push_back({&op, std::move(attributes), std::move(read), first, static_cast<int>(results.size())});
    Values values;
    for (const TensorType& result : results) {
      values.emplace_back(*this, static_cast<int>(recorded_.types_.size()));
      recorded_.types_.push_back(result);
    }
    return values;
  }
  Value constant(const Tensor&) override { fail(ErrorKind::bug, "operators in turn have constants"); }
  const TensorType& type(int id) const override { return recorded_.types_.at(static_cast<std::size_t>(id)); }

 private:
  InTurn& recorded_;
};

InTurn::InTurn(const DecomposeRule& rule, std::span<const TensorType> inputs, const Attributes& attributes)
    : inputs_(static_cast<int>(inputs.size())), types_(inputs.begin(), inputs.end()) {
  Recorder recorder(*this);
  Values given;
  for (int i = 0; i < inputs_; ++i) given.emplace_back(recorder, i);
  for (const Value& value : rule(recorder, given, attributes)) results_.push_back(value.id());
}

Kernel InTurn::kernel(const DecomposeRule& rule, Device (*device)(), const Kernel& own, bool (*takes)(const KernelContext&)) {
  const auto in_turn = [rule](const KernelContext& call) { return InTurn(rule, ops::types_of(call.inputs), call.attributes); };
  const auto scratch = [own](const InferContext& call) { return own.scratch ? own.scratch(call) : 0; };
  // The scratch memory is too small where the call was asked about with other Numerics.
  const auto takes_now = [=](const KernelContext& call) {
    if (takes == nullptr || !takes(call)) return false;
    const std::vector<TensorType> types = ops::types_of(call.inputs);
    const CallLayouts layouts = layouts_of(call);
    return scratch({call.op, types, call.attributes, layouts}) <= call.scratch.size();
  };
  Kernel kernel = own;
  kernel.run = [=](const KernelContext& call) { takes_now(call) ? own.run(call) : in_turn(call).run(call); };
  kernel.scratch = [=](const InferContext& call) {
    if (takes != nullptr && takes(UnplacedCall(call, device()).context())) return scratch(call);
    return InTurn(rule, call.inputs, call.attributes).scratch(device(), call.layouts.inputs);
  };
  kernel.describe = [=](const KernelContext& call) { return takes_now(call) ? own.describe(call) : in_turn(call).schedule(); };
  return kernel;
}

std::vector<TensorType> InTurn::types_of(const std::vector<int>& values) const {
  std::vector<TensorType> types;
  for (const int id : values) types.push_back(types_[static_cast<std::size_t>(id)]);
  return types;
}

std::vector<TensorType> InTurn::outputs_of(const Step& step) const {
  return {types_.begin() + step.first_output, types_.begin() + step.first_output + step.outputs};
}

std::vector<TensorType> InTurn::results() const { return types_of(results_); }

bool InTurn::is_result(int id) const { return std::find(results_.begin(), results_.end(), id) != results_.end(); }

bool InTurn::is_read(int id) const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [&](const Step& step) { return std::find(step.inputs.begin(), step.inputs.end(), id) != step.inputs.end(); });
}

std::vector<std::size_t> InTurn::places() const {
  constexpr std::size_t alignment = 256;
  std::vector<std::size_t> places(static_cast<std::size_t>(inputs_), 0);
  std::size_t bytes = 0;
  for (std::size_t id = places.size(); id < types_.size(); ++id) {
    places.push_back(bytes);
    if (!is_result(static_cast<int>(id)) || is_read(static_cast<int>(id)))
      bytes += (static_cast<std::size_t>(types_[id].bytes()) + alignment - 1) / alignment * alignment;
  }
  places.push_back(bytes);
  return places;
}

std::size_t InTurn::scratch(Device device, std::span<const Layout> layouts) const {
  std::size_t most = 0;
  for (const Step& step : steps_) {
    CallLayouts of_step;
    for (const int id : step.inputs) {
      const bool given = id < inputs_ && !layouts.empty();
      of_step.inputs.push_back(given ? layouts[static_cast<std::size_t>(id)] : Layout::contiguous);
    }
    of_step.outputs.assign(static_cast<std::size_t>(step.outputs), Layout::contiguous);
    most = std::max(most, scratch_bytes(*step.op, types_of(step.inputs), outputs_of(step), step.attributes, device, of_step));
  }
  return places().back() + most;
}

std::string InTurn::schedule() const {
  std::string names;
  for (const Step& step : steps_) names += concat(names.empty() ? "" : ", ", step.op->name);
  return "in turn, with no kernel for the whole: " + names;
}

void InTurn::run(const KernelContext& call) const {
  const std::vector<std::size_t> places = this->places();
  std::vector<Layout> layouts;
  for (const Tensor& input : call.inputs) layouts.push_back(input.is_contiguous() ? Layout::contiguous : Layout::channels_last);
  FRIT_CHECK(scratch(call.inputs[0].device(), layouts) <= call.scratch.size());
  std::vector<Tensor> values(call.inputs.begin(), call.inputs.end());
  for (std::size_t id = values.size(); id < types_.size(); ++id) {
    values.push_back(Tensor::over(call.scratch.data() + places[id], types_[id].shape, types_[id].dtype, call.inputs[0].device(), nullptr));
  }
  std::vector<bool> needed(values.size(), false);
  for (std::size_t i = 0; i < results_.size(); ++i) {
    const auto id = static_cast<std::size_t>(results_[i]);
    if (!is_read(results_[i])) values[id] = call.outputs[i];
    needed[id] = call.outputs[i].defined();
  }
  const auto gives_needed = [&](const Step& step) {
    const auto first = needed.begin() + step.first_output;
    return std::find(first, first + step.outputs, true) != first + step.outputs;
  };
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (!gives_needed(*step)) continue;
    for (const int id : step->inputs) needed[static_cast<std::size_t>(id)] = true;
  }
  for (const Step& step : steps_) {
    if (!gives_needed(step)) continue;
    std::vector<Tensor> inputs, outputs;
    for (const int id : step.inputs) inputs.push_back(values[static_cast<std::size_t>(id)]);
    for (int i = 0; i < step.outputs; ++i) {
      const auto id = static_cast<std::size_t>(step.first_output + i);
      outputs.push_back(needed[id] ? values[id] : Tensor());
    }
    invoke(*step.op, step.attributes, inputs, outputs, call.scratch.subspan(places.back()));
  }
  // Results that steps read may not be wanted, or lie in another layout.
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (is_read(results_[i]) && call.outputs[i].defined()) copy(call.outputs[i], values[static_cast<std::size_t>(results_[i])]);
  }
}

}  // namespace frit::ops
