#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "apps/common/json.h"
#include "apps/scaling/links.h"
#include "frit/core/communication/communicator.h"
#include "frit/ops/operator/value.h"

namespace frit::apps {

/// A call on some tensors, of so many bytes together.
struct CommunicationTime {
  double bytes;
  double median, best;  ///< microseconds of a call, the mean over the processes
};

/// What was measured of one kind of call.
struct CommunicationTimes {
  std::string call;
  DType dtype;
  double passes;  ///< how often each process passes on what others have of a tensor
  std::vector<CommunicationTime> sizes = {};
  CallCost cost = {};  ///< that fits the medians
};

struct CommunicationReport {
  std::string device;
  int processes = 1, machines = 1, repeats = 1;
  std::vector<CommunicationTimes> calls;
};

/// All processes call these, with the same arguments. A call is one of several in a row, which a GPU is given as one piece of work: what
/// the host takes to start them counts for nothing.
CommunicationTime measure_mean(Communicator& communicator, const std::vector<TensorType>& tensors, int warmup, int repeats);
/// Of one tensor, of 4 KiB, four times as much and so on up to `most_bytes`: its mean, and the two halves of that.
std::vector<CommunicationTimes> measure_communication(Communicator& communicator, DType dtype, std::int64_t most_bytes, int warmup,
                                                      int repeats);
/// From where on larger tensors tell nothing new.
std::int64_t most_communicated(Device device);

void print_table(std::ostream& out, const CommunicationReport& report);
Json json_of(const CommunicationReport& report);

}  // namespace frit::apps
