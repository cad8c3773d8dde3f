#include "frit/graph/steps.h"

#include <algorithm>

#include "frit/core/cuda/range.h"
#include "frit/core/text.h"
#include "frit/core/thread_pool.h"
#include "frit/ops/operator/run.h"

namespace frit::graph {
namespace {

/// Where a step reads and writes.
struct Accesses {
  using Range = std::span<const std::byte>;
  std::vector<Range> read, written;
  bool collective;

  explicit Accesses(const Step& step) : collective(step.op->collective) {
    const std::vector<int>& mutated = step.op->mutates;
    for (const Call& call : step.calls) {
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        const bool changed = std::find(mutated.begin(), mutated.end(), static_cast<int>(i)) != mutated.end();
        add(changed ? written : read, call.inputs[i]);
      }
      (step.prepacks >= 0 ? written : read).push_back(call.prepacked);
      if (step.prepacks >= 0) continue;
      for (const Tensor& output : call.outputs) add(written, output);
      written.push_back(call.scratch);
    }
  }

  bool waits_for(const Accesses& earlier) const {
    const bool in_order = collective && earlier.collective;
    return in_order || meet(written, earlier.written) || meet(written, earlier.read) || meet(read, earlier.written);
  }

 private:
  /// From the first byte of a tensor, which may be a part of another, to the last.
  static void add(std::vector<Range>& ranges, const Tensor& tensor) {
    if (!tensor.defined() || tensor.elements() == 0) return;
    std::int64_t last = 0;
    for (int axis = 0; axis < tensor.rank(); ++axis) last += (tensor.dim(axis) - 1) * tensor.strides()[axis];
    ranges.push_back({static_cast<const std::byte*>(tensor.raw()), static_cast<std::size_t>(last + 1) * size_of(tensor.dtype())});
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
  const cuda::Range range(label.empty() ? op->name.c_str() : label.c_str());
  if (prepacks >= 0) {
    for (const Call& call : calls) ops::prepack(*op, attributes, call.inputs, call.outputs, call.prepacked);
    return;
  }
  tell_variables();
  if (calls.size() == 1) return ops::invoke(*op, attributes, calls[0].inputs, calls[0].outputs, calls[0].scratch, calls[0].prepacked);
  std::vector<ops::KernelContext> together;
  for (const Call& call : calls) together.push_back({*op, attributes, call.inputs, call.outputs, call.scratch, nullptr, call.prepacked});
  ops::invoke(std::move(together));
}

std::string Step::schedule() const {
  if (prepacks >= 0) return "prepacked";
  const Call& call = calls[0];
  const std::string schedule = ops::schedule_of(*op, attributes, call.inputs, call.outputs, call.scratch);
  if (parts == 1) return schedule;
  return concat(schedule, schedule.empty() ? "" : ", ", "in ", parts, " parts of the batch");
}

void Step::tell_variables() const {
  for (const Call& call : calls) {
    for (const State::Variable* variable : call.variables) variable->changed();
  }
}

/// One operation after another would wait for its compiler.
void Sequence::prepare(Device device) {
  std::vector<ops::KernelContext> calls;
  for (const Step& step : steps_) {
    if (step.prepacks >= 0 || !step.op->kernel_on(device).prepare) continue;
    for (const Call& call : step.calls) calls.push_back({*step.op, step.attributes, call.inputs, call.outputs, call.scratch});
  }
  parallel_for(std::ssize(calls), 1, [&](std::int64_t begin, std::int64_t) {
    const ops::KernelContext& call = calls[static_cast<std::size_t>(begin)];
    call.op.kernel_on(device).prepare(call);
  });
  if (cuda::Range::is_shown()) label_steps();
}

void Sequence::label_steps() {
  for (Step& step : steps_) {
    const std::string schedule = step.schedule();
    step.label =
        concat(step.op->name, step.calls.size() > 1 ? concat(" x ", step.calls.size()) : "", schedule.empty() ? "" : ": ", schedule);
  }
}

void Sequence::run(Device device) {
  if (steps_.empty()) return;
  if (!warm_) prepare(device);
  if (device.kind == DeviceKind::cpu || !warm_) {
    for (const Step& step : steps_) step.run();
    warm_ = true;
    return;
  }
  if (!captured_.recorded()) record(device);
  captured_.launch();
  for (const Step& step : steps_) step.tell_variables();
}

void Sequence::record(Device device) {
  if (device.kind == DeviceKind::cpu || steps_.empty()) return;
  captured_.record(device.index, steps_before(steps_), [this](int step) { steps_[static_cast<std::size_t>(step)].run(); });
  warm_ = true;
}

}  // namespace frit::graph
