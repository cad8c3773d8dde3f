#pragma once

#include "frit/core/communication/communicator.h"
#include "frit/ops/operator/attributes.h"

namespace frit::ops {

struct InstanceNormAttributes {
  double eps = 1e-5;

  void fields(FieldVisitor& v) { v.field("eps", eps); }
};

struct GroupNormAttributes {
  std::int64_t num_groups = 1;
  double eps = 1e-5;

  void fields(FieldVisitor& v) {
    v.field("num_groups", num_groups);
    v.field("eps", eps);
  }
};

struct LayerNormAttributes {
  std::int64_t normalized_rank = 1;  ///< the number of last axes that are normalised together
  double eps = 1e-5;

  void fields(FieldVisitor& v) {
    v.field("normalized_rank", normalized_rank);
    v.field("eps", eps);
  }
};

struct BatchNormAttributes {
  double eps = 1e-5;
  double momentum = 0.1;
  bool training = true;  ///< false: the running statistics are used, and not updated
  /// Of a synchronized batch norm: the id of the processes whose examples the statistics are over. No file has it.
  std::int64_t communicator = Communicator::no_id;

  void fields(FieldVisitor& v) {
    v.field("eps", eps);
    v.field("momentum", momentum);
    v.field("training", training);
    if (communicator != Communicator::no_id) v.field("communicator", communicator);
  }
};

}  // namespace frit::ops
