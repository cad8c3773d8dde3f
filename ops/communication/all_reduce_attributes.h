#pragma once

#include "frit/ops/operator/operator.h"

namespace frit::ops {

struct AllReduceAttributes {
  static constexpr std::int64_t alone = 0;  ///< no communicator's id: there is one process, whose tensors are the means
  std::int64_t communicator = alone;

  void fields(FieldVisitor& v) { v.field("communicator", communicator); }
};

/// The kernel on any device.
void mean_over_processes(const KernelContext& call);

}  // namespace frit::ops
