#include "frit/core/readback.h"

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/pinned.h"

namespace frit {

void Readback::start(const Tensor& source) {
  const bool on_device = source.device().kind == DeviceKind::cuda;
  if (arrived_) arrived_->wait();
  if (!host_.defined() || !(host_.shape() == source.shape()) || host_.dtype() != source.dtype() || arrived_.has_value() != on_device) {
    arrived_.reset();
    if (on_device) arrived_.emplace(source.device().index);
    host_ = on_device ? cuda::pinned_tensor(source.shape(), source.dtype()) : Tensor::empty(source.shape(), source.dtype());
  }
  if (!on_device) return copy(host_, source);
  const auto stream = cuda::compute_stream(source.device().index);
  cuda::copy_async(host_, source.contiguous(), stream);
  arrived_->record(stream);
}

const Tensor& Readback::get() const {
  FRIT_CHECK(host_.defined());
  if (arrived_) arrived_->wait();
  return host_;
}

}  // namespace frit
