#include "apps/scaling/links.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "apps/common/text.h"
#include "frit/core/error.h"

namespace frit::apps {
namespace {

constexpr double bytes_per_microsecond = 1e3;  // of a GB/s

/// Up a tree of so many, and down again.
double hops(int count) { return 2.0 * std::bit_width(static_cast<unsigned>(count - 1)); }

/// How often each process passes on the bytes of a tensor, all pieces together.
double travels(int processes) { return 2.0 * (processes - 1) / processes; }

double relative_difference(const CallCost& cost, double bytes, double microseconds) { return cost.of(bytes) / microseconds - 1; }

/// Weighted least squares of the relative differences, by both normal equations.
CallCost weighted_fit(const std::vector<double>& bytes, const std::vector<double>& microseconds, const std::vector<double>& weights) {
  double ones = 0, x = 0, xx = 0, y = 0, xy = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double weight = weights[i] / (microseconds[i] * microseconds[i]);
    ones += weight;
    x += weight * bytes[i];
    xx += weight * bytes[i] * bytes[i];
    y += weight * microseconds[i];
    xy += weight * bytes[i] * microseconds[i];
  }
  const double determinant = ones * xx - x * x;
  const CallCost cost{(xx * y - x * xy) / determinant, (ones * xy - x * y) / determinant};
  if (cost.latency < 0) return {0, xy / xx};
  return cost.per_byte < 0 ? CallCost{y / ones, 0} : cost;
}

}  // namespace

CallCost fit_cost(const std::vector<double>& bytes, const std::vector<double>& microseconds) {
  FRIT_CHECK(bytes.size() == microseconds.size());
  const auto distinct = [&](double size) { return size != bytes[0]; };
  require(std::any_of(bytes.begin(), bytes.end(), distinct), "fit_cost: expected calls of two sizes or more");
  require(*std::min_element(microseconds.begin(), microseconds.end()) > 0, "fit_cost: a call took no time");
  // The least sum of absolute values is one of squares whose weights are the values' inverses.
  constexpr double least = 1e-6;
  std::vector<double> weights(bytes.size(), 1);
  CallCost cost;
  for (int iteration = 0; iteration < 100; ++iteration) {
    cost = weighted_fit(bytes, microseconds, weights);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      weights[i] = 1 / std::max(std::abs(relative_difference(cost, bytes[i], microseconds[i])), least);
  }
  for (std::size_t i = 0; i < bytes.size(); ++i)
    cost.deviation += std::abs(relative_difference(cost, bytes[i], microseconds[i])) / static_cast<double>(bytes.size());
  return cost;
}

std::string rate_text(double gigabytes_per_second) {
  return std::isfinite(gigabytes_per_second) ? fixed(gigabytes_per_second, 2) + " GB/s" : "more GB/s than so few bytes tell";
}

CallCost total_cost(double latency, const std::vector<double>& bytes, const std::vector<double>& microseconds) {
  FRIT_CHECK(bytes.size() == microseconds.size());
  const double all_bytes = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  const double all_time = std::accumulate(microseconds.begin(), microseconds.end(), 0.0), calls = static_cast<double>(bytes.size());
  CallCost cost{std::min(latency, all_time / calls)};
  cost.per_byte = (all_time - calls * cost.latency) / all_bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) cost.deviation += std::abs(cost.of(bytes[i]) - microseconds[i]) / all_time;
  return cost;
}

CallCost Cluster::all_reduce(int processes) const {
  const int of_machine = std::min(per_machine, processes), count = machines(processes);
  double latency = 0, slowest = std::numeric_limits<double>::infinity();
  const auto pass = [&](const Link& link, int ends) {
    if (ends == 1) return;
    latency += hops(ends) * link.latency;
    slowest = std::min(slowest, link.bandwidth);
  };
  pass(machine, of_machine);
  pass(network, count);
  return {latency, travels(processes) / (bytes_per_microsecond * slowest)};
}

Link link_of(const CallCost& all_reduce, int processes) {
  FRIT_CHECK(processes > 1);
  return {all_reduce.latency / hops(processes), travels(processes) / (bytes_per_microsecond * all_reduce.per_byte)};
}

}  // namespace frit::apps
