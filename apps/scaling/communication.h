#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "apps/common/json.h"
#include "apps/scaling/links.h"
#include "frit/core/communication/communicator.h"

namespace frit::apps {

/// Calls of one size.
struct CommunicationTime {
  double bytes;
  double median, best;  ///< microseconds of a call, the mean over the processes
};

/// What was measured of the mean of a tensor over all processes.
struct CommunicationTimes {
  DType dtype;
  std::vector<CommunicationTime> sizes;
  CallCost cost;  ///< that fits the medians
};

struct CommunicationReport {
  std::string device;
  int processes = 1, machines = 1, repeats = 1;
  std::vector<CommunicationTimes> all_reduce;
};

/// On how many machines the processes run.
int count_machines(Communicator& communicator);

/// All processes call it. A call is one of several in a row, which a GPU is given as one piece of work: what the host takes to start them
/// counts for nothing.
CommunicationTimes measure_all_reduce(const std::shared_ptr<Communicator>& communicator, DType dtype, int warmup, int repeats);

void print_table(std::ostream& out, const CommunicationReport& report);
Json json_of(const CommunicationReport& report);

}  // namespace frit::apps
