#include "frit/core/convert.h"
#include "frit/core/cuda/device.h"
#include "frit/core/strided_loop.h"
#include "frit/core/tensor.h"

namespace frit {

void copy(const Tensor& destination, const Tensor& source) {
  require(destination.defined() && source.defined(), "copy: a tensor is undefined");
  require(destination.shape() == source.shape(), "copy: destination is ", destination.shape(), ", source is ", source.shape());
  if (destination.device() != Device::cpu() || source.device() != Device::cpu()) return cuda::copy(destination, source);
  dispatch_all(destination.dtype(), [&]<class To>() {
    dispatch_all(source.dtype(), [&]<class From>() {
      To* const to = destination.data<To>();
      const From* const from = source.data<From>();
      strided_loop<2>(source.shape(), {destination.strides(), source.strides()},
                      [&](const auto& offsets, const auto& steps, std::int64_t count) {
                        To* const t = to + offsets[0];
                        const From* const f = from + offsets[1];
                        if (steps[0] == 1 && steps[1] == 1) {
                          for (std::int64_t i = 0; i < count; ++i) t[i] = convert<To>(f[i]);
                        } else {
                          for (std::int64_t i = 0; i < count; ++i) t[i * steps[0]] = convert<To>(f[i * steps[1]]);
                        }
                      });
    });
  });
}

void Tensor::fill(double value) const {
  if (elements_ == 0) return;
  const Tensor scalar = Tensor::over(&value, {}, DType::f64, Device::cpu(), nullptr);
  copy(*this, scalar.to(dtype_).to(device_).expand(shape_));
}

}  // namespace frit
