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
  /// From the first byte to the last: all of them, or of each `pitch` bytes the first `width`.
  struct Range {
    const std::byte* begin = nullptr;
    std::int64_t size = 0, pitch = 0, width = 0;

    explicit Range(std::span<const std::byte> memory) : begin(memory.data()), size(std::ssize(memory)) {}
    explicit Range(const Tensor& tensor) : begin(static_cast<const std::byte*>(tensor.raw())) {
      const auto element = static_cast<std::int64_t>(size_of(tensor.dtype()));
      for (int axis = 0; axis < tensor.rank(); ++axis) size += (tensor.dim(axis) - 1) * tensor.strides()[axis] * element;
      size += element;
      if (const std::int64_t pixel = tensor.pixel_pitch(); pixel > 0) pitch = pixel * element, width = tensor.dim(1) * element;
    }

    /// Parts of one image's channels may lie between each other.
    bool meets(const Range& other) const {
      if (size == 0 || other.size == 0 || begin >= other.begin + other.size || other.begin >= begin + size) return false;
      if (pitch == 0 || pitch != other.pitch) return true;
      const std::int64_t place = ((other.begin - begin) % pitch + pitch) % pitch;
      return place < width || place + other.width > pitch;
    }
  };
  std::vector<Range> read, written;
  bool collective;

  explicit Accesses(const Step& step) : collective(step.op->collective) {
    const std::vector<int>& mutated = step.op->mutates;
    for (const Call& call : step.calls) {
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        const bool changed = std::find(mutated.begin(), mutated.end(), static_cast<int>(i)) != mutated.end();
        add(changed ? written : read, call.inputs[i]);
      }
      (step.prepacks >= 0 ? written : read).push_back(Range(call.prepacked));
      if (step.prepacks >= 0) continue;
      for (const Tensor& output : call.outputs) add(written, output);
      written.push_back(Range(call.scratch));
    }
  }

  bool waits_for(const Accesses& earlier) const {
    const bool in_order = collective && earlier.collective;
    return in_order || meet(written, earlier.written) || meet(written, earlier.read) || meet(read, earlier.written);
  }

 private:
  static void add(std::vector<Range>& ranges, const Tensor& tensor) {
    if (tensor.defined() && tensor.elements() > 0) ranges.push_back(Range(tensor));
  }
  static bool meet(const std::vector<Range>& left, const std::vector<Range>& right) {
    return std::any_of(left.begin(), left.end(),
                       [&](const Range& a) { return std::any_of(right.begin(), right.end(), [&](const Range& b) { return a.meets(b); }); });
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
