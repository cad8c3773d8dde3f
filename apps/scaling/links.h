#pragma once

#include <string>
#include <vector>

namespace frit::apps {

/// What a message takes from one process to the next.
struct Link {
  double latency = 0;    ///< microseconds
  double bandwidth = 0;  ///< GB/s
};

/// "281.23 GB/s"; of infinity, where more bytes took no longer: that too few were sent to tell.
std::string rate_text(double gigabytes_per_second);

/// What a call on several processes takes: a time of its own, and more for each byte.
struct CallCost {
  double latency = 0;    ///< microseconds
  double per_byte = 0;   ///< microseconds
  double deviation = 0;  ///< the mean difference between this and what was measured, relative to that

  double of(double bytes) const { return latency + per_byte * bytes; }
};

/// The cost with the least sum of relative differences from what was measured, so that calls of all sizes count alike, and one that was
/// disturbed for little. Throws ErrorKind::argument for fewer than two sizes or times that are not positive.
CallCost fit_cost(const std::vector<double>& bytes, const std::vector<double>& microseconds);

/// The cost with that latency by which calls of these sizes take as long together as was measured: of large tensors, which need not lie in
/// caches, most of it.
CallCost total_cost(double latency, const std::vector<double>& bytes, const std::vector<double>& microseconds);

/// How processes are connected: those of a machine with each other, and machines by what all their network cards do together.
struct Cluster {
  int per_machine = 1;
  Link machine = {}, network = {};

  int machines(int processes) const { return (processes + per_machine - 1) / per_machine; }
  /// Of the mean of a tensor over all processes. Its pieces travel around a ring twice, less the own one, as fast as the slowest link lets
  /// them; that it takes as many hops as there are processes is avoided by trees, whose depth is what the latencies are multiplied by.
  CallCost all_reduce(int processes) const;
};

/// The link that processes of one machine, or with one on each of several machines these, have if a mean over them costs that.
Link link_of(const CallCost& all_reduce, int processes);

}  // namespace frit::apps
