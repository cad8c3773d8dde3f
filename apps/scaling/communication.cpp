#include "apps/scaling/communication.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <set>

#include "apps/common/table.h"
#include "apps/common/text.h"
#include "frit/core/text.h"
#include "frit/core/timer.h"
#include "frit/graph/program.h"
#include "frit/ops/communication/all_reduce.h"

namespace frit::apps {
namespace {

constexpr std::int64_t least_bytes = 4 << 10, most_bytes_of_cpus = 16 << 20, most_bytes_of_gpus = 256 << 20;

/// As many as fill the time of one large call, so that a piece of work is never too short to be timed.
int calls_in_a_row(std::int64_t bytes) { return static_cast<int>(std::clamp<std::int64_t>((64 << 20) / bytes, 4, 50)); }

CommunicationTime measure(const std::shared_ptr<Communicator>& communicator, DType dtype, std::int64_t bytes, int warmup, int repeats) {
  const Device device = communicator->device();
  const int calls = calls_in_a_row(bytes);
  const std::int64_t elements = bytes / static_cast<std::int64_t>(size_of(dtype));
  Graph graph;
  Value value = graph.input("tensor", {elements}, dtype);
  const std::map<std::string, TensorType> types = {{"tensor", value.type()}};
  for (int i = 0; i < calls; ++i) value = ops::all_reduce(std::span(&value, 1), *communicator)[0];
  graph.output("mean", value);
  Program program(std::move(graph), std::make_shared<State>(device));
  graph::Executable& executable = program.compile(types);
  executable.run({{"tensor", Tensor::zeros({elements}, dtype, device)}});
  for (int i = 0; i < warmup; ++i) executable.run();
  communicator->barrier();
  Timer timer(device);
  for (int i = 0; i < repeats; ++i) timer.time([&] { executable.run(); });
  const std::vector<double> times = timer.take();
  const double count = static_cast<double>(communicator->size()) * calls;
  const std::vector<double> sums = communicator->sum({quantile(times, 0.5), quantile(times, 0)});
  return {static_cast<double>(bytes), sums[0] / count, sums[1] / count};
}

/// GB/s of the tensor's bytes, and of those that each process passes on, which the number of processes does not change.
std::array<double, 2> bandwidths(const CommunicationTime& time, int processes) {
  const double bandwidth = time.bytes / (1e3 * time.median);
  return {bandwidth, bandwidth * 2 * (processes - 1) / processes};
}

}  // namespace

int count_machines(Communicator& communicator) {
  std::array<char, 256> name{};
  (void)gethostname(name.data(), name.size() - 1);
  const std::vector<std::string> names = communicator.all_gather(name.data());
  return static_cast<int>(std::set(names.begin(), names.end()).size());
}

CommunicationTimes measure_all_reduce(const std::shared_ptr<Communicator>& communicator, DType dtype, int warmup, int repeats) {
  const std::int64_t most = communicator->device().kind == DeviceKind::cuda ? most_bytes_of_gpus : most_bytes_of_cpus;
  CommunicationTimes times{.dtype = dtype, .sizes = {}, .cost = {}};
  std::vector<double> bytes, medians;
  for (std::int64_t size = least_bytes; size <= most; size *= 4) {
    times.sizes.push_back(measure(communicator, dtype, size, warmup, repeats));
    bytes.push_back(times.sizes.back().bytes);
    medians.push_back(times.sizes.back().median);
  }
  times.cost = fit_cost(bytes, medians);
  return times;
}

void print_table(std::ostream& out, const CommunicationReport& report) {
  out << "communication of " << report.processes << " processes on " << report.machines
      << (report.machines == 1 ? " machine; " : " machines; ") << report.device << "\n\n";
  constexpr auto right = Table::Column::right;
  Table table({{"call"}, {"dtype"}, {"size", right}, {"median us", right}, {"best us", right}, {"GB/s", right}, {"bus GB/s", right}});
  for (const CommunicationTimes& times : report.all_reduce) {
    for (const CommunicationTime& time : times.sizes) {
      const auto [bandwidth, bus] = bandwidths(time, report.processes);
      table.add({"all_reduce", std::string(name_of(times.dtype)), bytes_text(static_cast<std::size_t>(time.bytes)), fixed(time.median, 1),
                 fixed(time.best, 1), fixed(bandwidth, 2), fixed(bus, 2)});
    }
  }
  table.print(out);
  out << '\n';
  for (const CommunicationTimes& times : report.all_reduce) {
    out << "an all_reduce of " << times.dtype << " takes about " << fixed(times.cost.latency, 1) << " us and its bytes at "
        << fixed(link_of(times.cost, report.processes).bandwidth, 2) << " GB/s of the bus (mean deviation "
        << fixed(100 * times.cost.deviation, 0) << " %)\n";
  }
}

Json json_of(const CommunicationReport& report) {
  Json json = {{"device", report.device},
               {"processes", report.processes},
               {"machines", report.machines},
               {"repeats", report.repeats},
               {"results", Json::array()}};
  for (const CommunicationTimes& times : report.all_reduce) {
    const Link link = link_of(times.cost, report.processes);
    Json result = {{"call", "all_reduce"},
                   {"dtype", name_of(times.dtype)},
                   {"fit",
                    {{"latency_microseconds", times.cost.latency},
                     {"bus_gigabytes_per_second", link.bandwidth},
                     {"mean_deviation", times.cost.deviation}}}};
    for (const CommunicationTime& time : times.sizes) {
      const auto [bandwidth, bus] = bandwidths(time, report.processes);
      result["sizes"].push_back({{"bytes", static_cast<std::int64_t>(time.bytes)},
                                 {"microseconds", {{"median", time.median}, {"best", time.best}}},
                                 {"gigabytes_per_second", bandwidth},
                                 {"bus_gigabytes_per_second", bus}});
    }
    json["results"].push_back(std::move(result));
  }
  return json;
}

}  // namespace frit::apps
