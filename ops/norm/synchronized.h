#pragma once

#include <optional>

#include "frit/core/communication/communicator.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// What a call that takes statistics of a batch, as a batch norm in training does, becomes to take them over the batches of all processes
/// together, which have equal numbers of examples; none for other calls. The communicator must live as long as the graph runs, and all
/// processes compute such calls in the same order.
std::optional<OperatorCall> synchronized(const OperatorCall& call, const Communicator& communicator);

}  // namespace frit::ops
