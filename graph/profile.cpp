#include "frit/graph/profile.h"

#include <algorithm>
#include <chrono>

#include "frit/core/timer.h"

namespace frit::graph {
namespace {

std::string types_text(const std::vector<Tensor>& tensors) {
  std::string text;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const bool last = tensor.is_contiguous(Layout::channels_last);
    text += concat(text.empty() ? "" : ", ", tensor.dtype(), ' ', tensor.shape(),
                   tensor.is_contiguous() ? ""
                   : last                 ? " channels-last"
                                          : " in a larger one");
  }
  return text;
}

std::string dtypes_text(const std::vector<Tensor>& tensors) {
  std::string text;
  for (const Tensor& tensor : tensors) {
    if (tensor.defined()) text += concat(text.empty() ? "" : ", ", tensor.dtype());
  }
  return text;
}

std::int64_t moved_bytes(const Step& step) {
  std::map<const void*, std::int64_t> read;  // two inputs may be one tensor
  std::int64_t bytes = 0;
  for (const Call& call : step.calls) {
    if (step.prepacks >= 0) {
      bytes += call.inputs[static_cast<std::size_t>(step.prepacks)].bytes() + std::ssize(call.prepacked);
      continue;
    }
    for (const Tensor& input : call.inputs) read[input.raw()] = std::max(read[input.raw()], input.bytes());
    for (const Tensor& output : call.outputs) bytes += output.defined() ? output.bytes() : 0;
    for (const int i : step.op->mutates) {
      const auto input = static_cast<std::size_t>(i);
      if (input < call.inputs.size()) bytes += call.inputs[input].bytes();
    }
  }
  for (const auto& [memory, size] : read) bytes += size;
  return bytes;
}

double multiplications(const Step& step) {
  if (!step.op->multiplications || step.prepacks >= 0) return 0;
  double sum = 0;
  for (const Call& call : step.calls) {
    std::vector<TensorType> inputs;
    for (const Tensor& input : call.inputs) inputs.push_back({input.dtype(), input.shape()});
    sum += step.op->multiplications({*step.op, inputs, step.attributes}, step.op->infer_types(inputs, step.attributes)[0]);
  }
  return sum;
}

}  // namespace

std::string types_text(const Step& step) {
  const Call& call = step.calls[0];
  if (step.prepacks >= 0)
    return concat(types_text({call.inputs[static_cast<std::size_t>(step.prepacks)]}), " -> ", call.prepacked.size(), " bytes");
  const bool together = step.calls.size() > 1;
  const auto text = [&](const std::vector<Tensor>& tensors) { return together ? dtypes_text(tensors) : types_text(tensors); };
  const std::string outputs = text(call.outputs);
  return concat(together ? concat(step.calls.size(), " together: ") : "", text(call.inputs), outputs.empty() ? "" : " -> ", outputs);
}

std::vector<StepProfile> profile(const std::vector<Step>& steps, Device device, int repeats) {
  require(repeats >= 1, "profile: expected 1 repeat or more, got ", repeats);
  std::vector<std::vector<double>> times(steps.size());
  Timer timer(device);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (const Step& step : steps) timer.time([&] { step.run(); });
    const std::vector<double> sweep = timer.take();
    for (std::size_t i = 0; i < steps.size(); ++i) times[i].push_back(sweep[i]);
  }
  std::vector<StepProfile> profiles;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    profiles.push_back(
        {step.op->name, types_text(step), step.schedule(), moved_bytes(step), quantile(times[i], 0.5), multiplications(step)});
  }
  return profiles;
}

namespace {

/// By node: whether the result needs it.
std::vector<bool> needed_for(const Graph& graph, std::string_view result) {
  std::vector<bool> needed(graph.nodes().size());
  std::vector<int> open;
  for (const Output& output : graph.outputs()) {
    if (output.name == result) open.push_back(graph.producer_index(output.value));
  }
  require(!open.empty(), "time_gradient: there is no result \"", result, '"');
  while (!open.empty()) {
    const auto n = static_cast<std::size_t>(open.back());
    open.pop_back();
    if (needed[n]) continue;
    needed[n] = true;
    for (const int id : graph.nodes()[n].inputs) open.push_back(graph.producer_index(id));
  }
  return needed;
}

}  // namespace

std::vector<double> time_gradient(const Executable& executable, std::string_view of, int warmup, int repeats) {
  const Graph& graph = executable.graph();
  const std::vector<bool> needed = needed_for(graph, of);
  Sequence forward, gradient;
  for (const Step& step : executable.steps()) {
    Step of_forward{step.op, step.attributes, {}}, of_gradient = of_forward;
    for (const Call& call : step.calls) {
      (needed[static_cast<std::size_t>(call.node)] ? of_forward : of_gradient).calls.push_back(call);
    }
    if (!of_forward.calls.empty()) forward.add(std::move(of_forward));
    if (!of_gradient.calls.empty() && step.op->mutates.empty()) gradient.add(std::move(of_gradient));
  }
  const Device device = executable.device();
  for (Sequence* sequence : {&forward, &gradient}) sequence->record(device);
  Timer timer(device);
  for (int run = 0; run < warmup + repeats; ++run) {
    if (run == warmup) timer.take();
    forward.run(device);
    timer.time([&] { gradient.run(device); });
  }
  return timer.take();
}

namespace {

thread_local Tracing* tracing = nullptr;

}  // namespace

Tracing::Tracing() {
  FRIT_CHECK(tracing == nullptr);
  tracing = this;
}

Tracing::~Tracing() { tracing = nullptr; }

Tracing* Tracing::current() { return tracing; }

double Tracing::now() {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point start = Clock::now();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

std::shared_ptr<const std::vector<TracedStep>> Tracing::describe(const Executable& executable) {
  auto& known = described_[&executable];
  if (known != nullptr) return known;
  const std::vector<std::int64_t> alive = alive_bytes(executable.graph(), plan_buffers(executable.graph(), executable.device()));
  const std::vector<Step>& preparation = executable.preparation();
  const auto before =
      static_cast<std::size_t>(std::count_if(preparation.begin(), preparation.end(), [](const Step& step) { return step.prepacks < 0; }));
  std::vector<TracedStep> steps;
  std::map<int, std::size_t> places;  // by node, of which there are several steps where a batch is cut into parts
  for (const Step& step : executable.steps()) {
    const std::int64_t needed = alive[places.emplace(step.calls[0].node, before + places.size()).first->second];
    steps.push_back({step.op->name, types_text(step), step.schedule(), moved_bytes(step), needed});
  }
  return known = std::make_shared<const std::vector<TracedStep>>(std::move(steps));
}

void Tracing::run(const Executable& executable) {
  TracedRun traced{describe(executable), {}};
  Marks marks(executable.device());
  (void)marks.take();  // waits for what came before
  const double begin = now();
  marks.mark();
  for (const Step& step : executable.steps()) {
    step.run();
    marks.mark();
  }
  for (const double time : marks.take()) traced.marks.push_back(begin + time);
  runs_.push_back(std::move(traced));
}

}  // namespace frit::graph
