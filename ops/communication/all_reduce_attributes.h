#pragma once

#include "frit/core/communication/communicator.h"
#include "frit/ops/operator/kernel.h"
#include "frit/ops/operator/sample.h"

namespace frit::ops {

struct AllReduceAttributes {
  std::int64_t communicator = Communicator::no_id;

  void fields(FieldVisitor& v) { v.field("communicator", communicator); }
};

struct ReduceScatterAttributes {
  std::int64_t communicator = Communicator::no_id;
  std::int64_t rank = 0, processes = 1;  ///< of the communicator

  void fields(FieldVisitor& v) {
    v.field("communicator", communicator);
    v.field("rank", rank);
    v.field("processes", processes);
  }
};

// The kernels, on any device.
void mean_over_processes(const KernelContext& call);
void parts_of_mean_over_processes(const KernelContext& call);
void gather_parts_of_processes(const KernelContext& call);

/// For the types of tensors that one call takes.
void check_reduced(const InferContext& call);
/// Calls with these attributes, of tensors in several numbers and shapes.
std::vector<Sample> reduced_samples(const Attributes& attributes);

}  // namespace frit::ops
