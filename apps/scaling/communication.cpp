#include "apps/scaling/communication.h"

#include <algorithm>
#include <array>
#include <functional>
#include <ostream>

#include "apps/common/table.h"
#include "apps/common/text.h"
#include "frit/core/communication/parts.h"
#include "frit/core/cuda/captured_work.h"
#include "frit/core/text.h"
#include "frit/core/timer.h"

namespace frit::apps {
namespace {

constexpr std::int64_t least_bytes = 4 << 10;

/// As many as fill the time of one large call, so that a piece of work is never too short to be timed.
int calls_in_a_row(std::int64_t bytes, Device device) {
  const bool gpu = device.kind == DeviceKind::cuda;
  const std::int64_t filled = gpu ? 64 << 20 : 1 << 20, least = gpu ? 4 : 1, most = gpu ? 50 : 8;
  return static_cast<int>(std::clamp(filled / std::max<std::int64_t>(bytes, 1), least, most));
}

CommunicationTime measure(Communicator& communicator, std::int64_t bytes, const std::function<void()>& call, int warmup, int repeats) {
  const Device device = communicator.device();
  const int calls = calls_in_a_row(bytes, device);
  const auto call_each = [&](int) {
    for (int i = 0; i < calls; ++i) call();
  };
  cuda::CapturedWork captured;
  const auto run = [&] { captured.recorded() ? captured.launch() : call_each(0); };
  run();
  if (device.kind == DeviceKind::cuda) captured.record(device.index, {{}}, call_each);
  for (int i = 0; i < warmup; ++i) run();
  communicator.barrier();
  Timer timer(device);
  for (int i = 0; i < repeats; ++i) timer.time(run);
  const std::vector<double> times = timer.take();
  const double count = static_cast<double>(communicator.size()) * calls;
  const std::vector<double> sums = communicator.sum({quantile(times, 0.5), quantile(times, 0)});
  return {static_cast<double>(bytes), sums[0] / count, sums[1] / count};
}

/// GB/s of so many of the tensor's bytes a microsecond, and of those that each process passes on, on which their number has no influence.
std::array<double, 2> bandwidths(const CommunicationTimes& times, double bytes_per_microsecond, int processes) {
  const double bandwidth = bytes_per_microsecond / 1e3;
  return {bandwidth, bandwidth * times.passes * (processes - 1) / processes};
}

}  // namespace

CommunicationTime measure_mean(Communicator& communicator, const std::vector<TensorType>& types, int warmup, int repeats) {
  std::vector<Tensor> tensors;
  std::int64_t bytes = 0;
  for (const TensorType& type : types) {
    tensors.push_back(Tensor::zeros(type.shape, type.dtype, communicator.device()));
    bytes += type.bytes();
  }
  return measure(
      communicator, bytes, [&] { communicator.mean(tensors, tensors); }, warmup, repeats);
}

std::vector<CommunicationTimes> measure_communication(Communicator& communicator, DType dtype, std::int64_t most_bytes, int warmup,
                                                      int repeats) {
  const Device device = communicator.device();
  std::vector<CommunicationTimes> all = {{"all_reduce", dtype, 2}, {"reduce_scatter", dtype, 1}, {"all_gather", dtype, 1}};
  for (std::int64_t bytes = least_bytes; bytes <= most_bytes; bytes *= 4) {
    const Tensor tensor = Tensor::zeros({bytes / static_cast<std::int64_t>(size_of(dtype))}, dtype, device);
    const Parts parts = communicator.parts(tensor.elements());
    const int rank = communicator.rank();
    const Tensor part = Tensor::over(address_of(tensor, parts.begin(rank)), {parts.size(rank)}, dtype, device, nullptr);
    const std::span whole(&tensor, 1), own(&part, 1);
    const std::array<std::function<void()>, 3> calls = {[&] { communicator.mean(whole, whole); },
                                                        [&] { communicator.reduce_scatter(whole, own); },
                                                        [&] { communicator.all_gather(own, whole); }};
    for (std::size_t i = 0; i < calls.size(); ++i) all[i].sizes.push_back(measure(communicator, bytes, calls[i], warmup, repeats));
  }
  for (CommunicationTimes& times : all) {
    std::vector<double> bytes, medians;
    for (const CommunicationTime& time : times.sizes) {
      bytes.push_back(time.bytes);
      medians.push_back(time.median);
    }
    times.cost = fit_cost(bytes, medians);
  }
  return all;
}

std::int64_t most_communicated(Device device) { return device.kind == DeviceKind::cuda ? 256 << 20 : 16 << 20; }

void print_table(std::ostream& out, const CommunicationReport& report) {
  out << "communication of " << report.processes << " processes on " << report.machines
      << (report.machines == 1 ? " machine; " : " machines; ") << report.device << "\n\n";
  constexpr auto right = Table::Column::right;
  Table table({{"call"}, {"dtype"}, {"size", right}, {"median us", right}, {"best us", right}, {"GB/s", right}, {"bus GB/s", right}});
  for (const CommunicationTimes& times : report.calls) {
    for (const CommunicationTime& time : times.sizes) {
      const auto [bandwidth, bus] = bandwidths(times, time.bytes / time.median, report.processes);
      table.add({times.call, std::string(name_of(times.dtype)), bytes_text(static_cast<std::size_t>(time.bytes)), fixed(time.median, 1),
                 fixed(time.best, 1), fixed(bandwidth, 2), fixed(bus, 2)});
    }
  }
  table.print(out);
  out << '\n';
  for (const CommunicationTimes& times : report.calls) {
    out << times.call << " of " << times.dtype << " takes about " << fixed(times.cost.latency, 1) << " us and its bytes at "
        << rate_text(bandwidths(times, 1 / times.cost.per_byte, report.processes)[1]) << " of the bus (mean deviation "
        << fixed(100 * times.cost.deviation, 0) << " %)\n";
  }
}

Json json_of(const CommunicationReport& report) {
  Json json = {{"device", report.device},
               {"processes", report.processes},
               {"machines", report.machines},
               {"repeats", report.repeats},
               {"results", Json::array()}};
  for (const CommunicationTimes& times : report.calls) {
    const double fitted = bandwidths(times, 1 / times.cost.per_byte, report.processes)[1];
    Json result = {
        {"call", times.call},
        {"dtype", name_of(times.dtype)},
        {"fit",
         {{"latency_microseconds", times.cost.latency}, {"bus_gigabytes_per_second", fitted}, {"mean_deviation", times.cost.deviation}}}};
    for (const CommunicationTime& time : times.sizes) {
      const auto [bandwidth, bus] = bandwidths(times, time.bytes / time.median, report.processes);
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
