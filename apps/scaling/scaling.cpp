#include "apps/scaling/scaling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>

#include "apps/common/table.h"
#include "apps/common/text.h"
#include "apps/scaling/communication.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

constexpr int default_per_machine = 8, most_processes = 1 << 20;
constexpr double default_network_latency = 20, default_network_bandwidth = 400;  // microseconds, Gbit/s
constexpr double most_number = 1e9;

/// The values that most lie within, of a normal distribution.
double deviation_of(const ModeTimes& times) {
  constexpr double deviations_between = 2.5631;  // the tenth and the ninetieth percentile
  return (times.p90 - times.p10) / deviations_between;
}

/// What the means of a step cost as they are: several tensors take longer than one of as many bytes.
CallCost measured_cost(const StepModel& step, const Benchmark& bench) {
  const auto measure = [&](const std::vector<TensorType>& tensors) {
    return measure_mean(*bench.communicator, tensors, bench.warmup, bench.repeats);
  };
  std::vector<double> bytes, microseconds;
  for (const Part& part : step.parts) {
    if (!part.reduces()) continue;
    const CommunicationTime time = measure(part.reduced);
    bytes.push_back(time.bytes);
    microseconds.push_back(time.median);
  }
  return total_cost(measure({{DType::f32, {1}}}).median, bytes, microseconds);
}

/// Means of what all processes measured; their steps are the same.
void average(StepModel& step, Communicator& communicator) {
  communicator.require_same("the number of a step's parts", concat(step.parts.size()));
  std::vector<double> numbers = {step.microseconds, step.deviation};
  for (const Part& part : step.parts) numbers.push_back(part.microseconds);
  numbers = communicator.sum(numbers);
  for (double& number : numbers) number /= communicator.size();
  step.microseconds = numbers[0];
  step.deviation = numbers[1];
  for (std::size_t i = 0; i < step.parts.size(); ++i) step.parts[i].microseconds = numbers[i + 2];
}

const char* name_of(Prediction::Limit limit) {
  switch (limit) {
    case Prediction::Limit::machine: return "bandwidth within a machine";
    case Prediction::Limit::network: return "bandwidth between machines";
    case Prediction::Limit::latency: return "latency";
    case Prediction::Limit::stragglers: return "the slowest process";
    default: return "computing";
  }
}

std::string link_text(const Link& link) { return concat(fixed(link.latency, 1), " us, ", rate_text(link.bandwidth)); }

/// Of the means of gradients, in order, on so many processes.
void print_means(std::ostream& out, const ScalingReport& report, int processes) {
  const std::vector<Span> spans = timeline(report.step.parts, report.cluster.all_reduce(processes), report.step.overlap);
  const std::vector<Span> alone = timeline(report.step.parts, {}, report.step.overlap);
  constexpr auto right = Table::Column::right;
  Table table({{"bytes", right}, {"computed after us", right}, {"reduced from us", right}, {"until us", right}});
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Part& part = report.step.parts[i];
    if (part.reduces())
      table.add({grouped(std::llround(part.reduced_bytes())), fixed(alone[i].begin, 1), fixed(spans[i].begin, 1), fixed(spans[i].end, 1)});
  }
  out << "\nwhat is reduced in a step of " << processes << " processes\n";
  table.print(out);
}

}  // namespace

void ScalingOptions::add_to(CLI::App& command) {
  const char* const name = "--scaling";
  const auto take = [this, name](const std::string& text) {
    processes.clear();
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t comma = std::min(text.find(',', begin), text.size());
      const auto count = parse_number<int>(std::string_view(text).substr(begin, comma - begin));
      if (!count || *count < 1 || *count > most_processes)
        refuse(name, concat("expected numbers of processes such as 8,64,1024, got \"", printable(text), '"'));
      processes.push_back(*count);
      begin = comma + 1;
    }
  };
  add_option(command, name, take,
             "Predict the training step of so many processes from one measured by itself and from the links, which the processes that were "
             "started measure")
      .type_name("N,N,...");
  add_number<int>(command, "--per-machine", per_machine, 1, most_processes, "Of --scaling: processes of a machine; the default is 8");
  const auto add = [&](const char* option, std::optional<double>& value, double least, const char* description) {
    add_number<double>(command, option, value, least, most_number, description);
  };
  constexpr double least_rate = 1e-6;
  add("--link-latency", link_latency, 0,
      "Of --scaling: from one process to another of its machine, in microseconds, in place of what is measured");
  add("--link-bandwidth", link_bandwidth, least_rate, "Likewise: the bandwidth of the bus, in GB/s");
  add("--network-latency", network_latency, 0, "Of --scaling: from one machine to another, in microseconds; the default is 20");
  add("--network-bandwidth", network_bandwidth, least_rate, "Likewise: of all network cards of a machine, in Gbit/s; the default is 400");
}

void ScalingOptions::check(const Communicator* communicator) const {
  if (!asked()) {
    const bool given = per_machine || link_latency || link_bandwidth || network_latency || network_bandwidth;
    require(!given, "--per-machine, --link-... and --network-... go with --scaling");
    return;
  }
  const bool within = per_machine.value_or(default_per_machine) > 1 && *std::max_element(processes.begin(), processes.end()) > 1;
  require(communicator != nullptr || !within || (link_latency && link_bandwidth),
          "--scaling: one process measures no link: start several of a machine (mpirun, srun, torchrun, --gpus), or say what their link is "
          "(--link-latency, --link-bandwidth)");
}

Cluster ScalingOptions::cluster(const std::optional<CallCost>& all_reduce, int measured, int machines) const {
  const bool over_network = machines > 1;
  Cluster cluster{.per_machine = per_machine.value_or(over_network ? std::max(1, measured / machines) : default_per_machine),
                  .machine = {},
                  .network = {default_network_latency, default_network_bandwidth / 8}};
  if (all_reduce && over_network) cluster.network = {link_of(*all_reduce, machines).latency, link_of(*all_reduce, measured).bandwidth};
  if (all_reduce) cluster.machine = over_network ? Link{0, cluster.network.bandwidth} : link_of(*all_reduce, measured);
  if (link_latency) cluster.machine.latency = *link_latency;
  if (link_bandwidth) cluster.machine.bandwidth = *link_bandwidth;
  if (network_latency) cluster.network.latency = *network_latency;
  if (network_bandwidth) cluster.network.bandwidth = *network_bandwidth / 8;
  return cluster;
}

ScalingReport measure_scaling(const ScalingOptions& options, const Subject& subject, const Benchmark& bench, double together) {
  ScalingReport report;
  Benchmark alone{bench.device, bench.dtype, bench.precision, bench.warmup, bench.repeats};
  alone.communicator = Communicator::alone(bench.device);
  alone.inspect = [&](const graph::Executable& executable, const ModeTimes& times) {
    const auto examples = static_cast<double>(subject.input[0]);
    report.step = StepModel::of(executable, times.median, deviation_of(times), examples, bench.repeats);
  };
  if (bench.communicator) bench.communicator->barrier();
  (void)subject.measure("train", alone);
  int machines = 1;
  if (bench.communicator) {
    Communicator& all = *bench.communicator;
    average(report.step, all);
    report.measured_by = all.size();
    report.measured = all.sum({together})[0] / all.size();
    machines = all.machines();
    report.measured_mean = measured_cost(report.step, bench);
  }
  report.cluster = options.cluster(report.measured_mean, report.measured_by, machines);
  for (const int processes : options.processes) report.predictions.push_back(predict(report.step, report.cluster, processes));
  if (report.measured_by > 1) {
    Cluster started = report.cluster;
    started.per_machine = report.measured_by / machines;
    report.started = predict(report.step, started, report.measured_by);
  }
  return report;
}

void print_table(std::ostream& out, const ScalingReport& report) {
  const StepModel& step = report.step;
  out << "\na step by itself takes " << fixed(step.microseconds, 1) << " us (standard deviation " << fixed(step.deviation, 1) << "), and "
      << grouped(std::llround(step.reduced_bytes())) << " bytes of it are reduced"
      << (step.overlap ? ", next to what else is computed\n" : ", while nothing else is computed\n");
  if (report.measured_mean)
    out << "a mean over the " << report.measured_by << " processes takes about " << fixed(report.measured_mean->latency, 1)
        << " us, and its bytes at " << rate_text(1e-3 / report.measured_mean->per_byte) << " (mean deviation "
        << fixed(100 * report.measured_mean->deviation, 0) << " %)\n";
  out << "links: of " << report.cluster.per_machine << " processes of a machine " << link_text(report.cluster.machine) << "; of machines "
      << link_text(report.cluster.network) << "\n\n";
  constexpr auto right = Table::Column::right;
  Table table({{"processes", right},
               {"machines", right},
               {"predicted us", right},
               {"efficiency", right},
               {"examples/s", right},
               {"communication us", right},
               {"not hidden us", right},
               {"stragglers us", right},
               {"limited by"}});
  for (const Prediction& p : report.predictions)
    table.add({std::to_string(p.processes), std::to_string(p.machines), fixed(p.microseconds, 1), fixed(100 * p.efficiency(step), 1) + " %",
               fixed(p.examples_per_second(step), 1), fixed(p.communication, 1), fixed(p.by_latency + p.by_bytes, 1),
               fixed(p.stragglers, 1), name_of(p.limit)});
  table.print(out);
  print_means(out, report, report.predictions.back().processes);
  if (report.started)
    out << "\nmeasured with " << report.measured_by << " processes: " << fixed(report.measured, 1) << " us, efficiency "
        << fixed(100 * step.microseconds / report.measured, 1) << " %; predicted " << fixed(report.started->microseconds, 1) << " us, "
        << fixed(100 * report.started->efficiency(step), 1) << " %\n";
}

Json json_of(const ScalingReport& report) {
  const StepModel& step = report.step;
  const auto link_json = [](const Link& link) {
    return Json{{"latency_microseconds", link.latency}, {"gigabytes_per_second", link.bandwidth}};
  };
  const auto prediction_json = [&](const Prediction& p) {
    return Json{{"processes", p.processes},
                {"machines", p.machines},
                {"microseconds", p.microseconds},
                {"efficiency", p.efficiency(step)},
                {"examples_per_second", p.examples_per_second(step)},
                {"communication_microseconds", p.communication},
                {"not_hidden_microseconds", {{"latency", p.by_latency}, {"bytes", p.by_bytes}}},
                {"straggler_microseconds", p.stragglers},
                {"limited_by", name_of(p.limit)}};
  };
  Json json = {{"step_microseconds", step.microseconds},
               {"deviation_microseconds", step.deviation},
               {"reduced_bytes", step.reduced_bytes()},
               {"overlap", step.overlap},
               {"per_machine", report.cluster.per_machine},
               {"links", {{"machine", link_json(report.cluster.machine)}, {"network", link_json(report.cluster.network)}}}};
  for (const Prediction& p : report.predictions) json["predictions"].push_back(prediction_json(p));
  if (report.started) json["measured"] = {{"microseconds", report.measured}, {"predicted", prediction_json(*report.started)}};
  return json;
}

}  // namespace frit::apps
