#pragma once

#include <optional>

#include "frit/core/cuda/stream.h"
#include "frit/core/tensor.h"

namespace frit {

/// Brings a tensor's values to the host while the host goes on, and the device too:
///   readback.start(loss);  ...  double value = readback.get().item();
class Readback {
 public:
  Readback() = default;
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;

  /// The values are those that the tensor has after the work that its device was given so far. Allocates at the first call and at another
  /// shape or dtype.
  void start(const Tensor& source);
  /// Waits for them. Contiguous, on the CPU, overwritten by the next start.
  const Tensor& get() const;

 private:
  Tensor host_;
  std::optional<cuda::Event> arrived_;  // goes before the memory, and waits for the copy
};

}  // namespace frit
