#include "frit/graph/profile.h"

#include <algorithm>

#include "frit/core/timer.h"

namespace frit::graph {
namespace {

std::string types_text(const std::vector<Tensor>& tensors) {
  std::string text;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    text += concat(text.empty() ? "" : ", ", tensor.dtype(), ' ', tensor.shape(), tensor.is_contiguous() ? "" : " channels-last");
  }
  return text;
}

std::string types_text(const Step& step) {
  const std::string outputs = types_text(step.outputs);
  return types_text(step.inputs) + (outputs.empty() ? "" : " -> " + outputs);
}

std::int64_t moved_bytes(const Step& step) {
  std::map<const void*, std::int64_t> read;  // two inputs may be one tensor
  for (const Tensor& input : step.inputs) read[input.raw()] = std::max(read[input.raw()], input.bytes());
  std::int64_t bytes = 0;
  for (const auto& [memory, size] : read) bytes += size;
  for (const Tensor& output : step.outputs) bytes += output.defined() ? output.bytes() : 0;
  for (const int i : step.op->mutates) {
    const auto input = static_cast<std::size_t>(i);
    if (input < step.inputs.size()) bytes += step.inputs[input].bytes();
  }
  return bytes;
}

}  // namespace

std::vector<StepProfile> profile(const Executable& executable, int repeats) {
  require(repeats >= 1, "profile: expected 1 repeat or more, got ", repeats);
  const std::vector<Step>& steps = executable.steps();
  std::vector<std::vector<double>> times(steps.size());
  Timer timer(executable.device());
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (const Step& step : steps) timer.time([&] { step.run(); });
    const std::vector<double> sweep = timer.take();
    for (std::size_t i = 0; i < steps.size(); ++i) times[i].push_back(sweep[i]);
  }
  std::vector<StepProfile> profiles;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    profiles.push_back({steps[i].op->name, types_text(steps[i]), moved_bytes(steps[i]), quantile(times[i], 0.5)});
  }
  return profiles;
}

}  // namespace frit::graph
