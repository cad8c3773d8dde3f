#pragma once

#include <optional>
#include <vector>

#include "frit/ops/operator/kernel.h"

namespace frit::ops {

/// The axis that a call of "concatenate" joins along, from 0 on.
int concatenation_axis(const Attributes& attributes, int rank);

/// What a call copies, in the order of the result's memory: of each row a stretch from each input that does not lie there already. All in
/// bytes.
struct JoinedRows {
  struct Part {
    const std::byte* data;
    std::int64_t step;           ///< from a row to the next
    std::int64_t begin, length;  ///< in the result's row
  };
  std::int64_t count, step, length;  ///< of the result's rows
  std::vector<Part> parts = {};

  /// Nothing where a tensor does not lie in such rows.
  static std::optional<JoinedRows> of(const KernelContext& call);
};

/// A call, one copy an input: of tensors that lie in any way.
void concatenate_in_turn(const KernelContext& call);

}  // namespace frit::ops
