#include "apps/scaling/step_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "frit/graph/profile.h"

namespace frit::apps {
namespace {

constexpr double negligible_loss = 0.05;  // of a step

/// Standard deviations from the mean of a normal distribution below which a share of the values lies.
double normal_quantile(double share) {
  double below = -10, above = 10;
  for (int i = 0; i < 100; ++i) {
    const double middle = (below + above) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < share ? below : above) = middle;
  }
  return below;
}

/// When everything that a part waits for has ended; nothing if some of it has not been given its place.
std::optional<double> ready(const Part& part, const std::vector<Span>& spans, const std::vector<bool>& placed) {
  double time = 0;
  for (const int earlier : part.after) {
    const auto e = static_cast<std::size_t>(earlier);
    if (!placed[e]) return std::nullopt;
    time = std::max(time, spans[e].end);
  }
  return time;
}

}  // namespace

std::vector<Span> timeline(const std::vector<Part>& parts, const CallCost& mean, bool overlap) {
  std::vector<Span> spans(parts.size());
  std::vector<bool> placed(parts.size());
  std::array<double, 2> free = {0, 0};  // when a lane's last part has ended
  const auto lane = [&](const Part& part) -> double& { return free[part.reduces() && overlap ? 1 : 0]; };
  for (std::size_t count = 0; count < parts.size(); ++count) {
    double first = std::numeric_limits<double>::infinity();
    std::size_t next = parts.size();
    for (std::size_t i = 0; i < parts.size() && (overlap || next == parts.size()); ++i) {
      if (placed[i]) continue;
      const std::optional<double> time = ready(parts[i], spans, placed);
      if (!time || std::max(*time, lane(parts[i])) >= first) continue;
      first = std::max(*time, lane(parts[i]));
      next = i;
    }
    FRIT_CHECK(next < parts.size());
    const Part& part = parts[next];
    spans[next] = {first, first + (part.reduces() ? mean.of(part.reduced_bytes()) : part.microseconds)};
    lane(part) = spans[next].end;
    placed[next] = true;
  }
  return spans;
}

double end_of(const std::vector<Span>& spans) {
  double end = 0;
  for (const Span& span : spans) end = std::max(end, span.end);
  return end;
}

StepModel StepModel::of(const graph::Executable& executable, double microseconds, double deviation, double examples, int repeats) {
  StepModel model{.parts = {},
                  .microseconds = microseconds,
                  .deviation = deviation,
                  .examples = examples,
                  .overlap = executable.device().kind == DeviceKind::cuda};
  const std::vector<graph::Step>& steps = executable.steps();
  const std::vector<std::vector<int>> before = graph::steps_before(steps);
  const std::vector<graph::StepProfile> profiles = graph::profile(executable, repeats);
  double sum = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Part part{.after = before[i]};
    if (steps[i].op->collective) {
      for (const graph::Call& call : steps[i].calls)
        for (const Tensor& tensor : call.inputs) part.reduced.push_back({tensor.dtype(), tensor.shape()});
    } else {
      sum += part.microseconds = profiles[i].microseconds;
    }
    model.parts.push_back(std::move(part));
  }
  for (Part& part : model.parts) part.microseconds *= microseconds / sum;
  return model;
}

double Part::reduced_bytes() const {
  double bytes = 0;
  for (const TensorType& type : reduced) bytes += static_cast<double>(type.bytes());
  return bytes;
}

double StepModel::work() const { return end_of(timeline(parts, {}, overlap)); }

double StepModel::reduced_bytes() const {
  double bytes = 0;
  for (const Part& part : parts) bytes += part.reduced_bytes();
  return bytes;
}

double expected_maximum(int count) { return count == 1 ? 0 : normal_quantile((count - 0.375) / (count + 0.25)); }

Prediction predict(const StepModel& step, const Cluster& cluster, int processes) {
  Prediction result{.processes = processes, .machines = cluster.machines(processes)};
  const double work = step.work();
  double with_bytes = work, whole = work;
  if (processes > 1) {
    const CallCost mean = cluster.all_reduce(processes);
    for (const Part& part : step.parts) result.communication += part.reduces() ? mean.of(part.reduced_bytes()) : 0;
    with_bytes = end_of(timeline(step.parts, {0, mean.per_byte}, step.overlap));
    whole = end_of(timeline(step.parts, mean, step.overlap));
  }
  result.by_bytes = with_bytes - work;
  result.by_latency = whole - with_bytes;
  result.stragglers = step.deviation * expected_maximum(processes);
  result.microseconds = step.microseconds + (whole - work) + result.stragglers;
  using Limit = Prediction::Limit;
  const bool by_network = result.machines > 1 && (cluster.per_machine == 1 || cluster.network.bandwidth < cluster.machine.bandwidth);
  double most = negligible_loss * result.microseconds;
  if (whole - work + result.stragglers < most) return result;
  most = 0;
  for (const auto& [loss, limit] : {std::pair(result.by_bytes, by_network ? Limit::network : Limit::machine),
                                    std::pair(result.by_latency, Limit::latency), std::pair(result.stragglers, Limit::stragglers)}) {
    if (loss > most) most = loss, result.limit = limit;
  }
  return result;
}

}  // namespace frit::apps
