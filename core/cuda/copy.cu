// Copies: bytes between host and device, and elements of any strides and dtypes on the device.

#include <algorithm>

#include "frit/core/convert.h"
#include "frit/core/cuda/device.h"
#include "frit/core/cuda/launch.h"
#include "frit/core/cuda/strided.h"

namespace frit::cuda {
namespace {

/// One thread an element, in the order of the destination's memory. Reads and writes each element once.
template <class To, class From>
__global__ void convert_elements(To* to, const From* from, StridedIndex<2> index, std::int64_t count) {
  for (std::int64_t i = first_item(); i < count; i += item_step()) {
    std::int64_t offsets[2];
    index.offsets(i, offsets);
    to[offsets[0]] = convert<To>(from[offsets[1]]);
  }
}

/// The axes, the outermost in memory first.
Dims memory_order(const Tensor& tensor) {
  Dims axes;
  for (int axis = 0; axis < tensor.rank(); ++axis) axes.push_back(axis);
  std::stable_sort(axes.begin(), axes.end(), [&](std::int64_t a, std::int64_t b) {
    return tensor.strides()[static_cast<int>(a)] > tensor.strides()[static_cast<int>(b)];
  });
  return axes;
}

void copy_on_device(const Tensor& given_destination, const Tensor& given_source) {
  const Dims order = memory_order(given_destination);
  const Tensor destination = given_destination.permute(order), source = given_source.permute(order);
  const cudaStream_t stream = compute_stream(destination.device().index);
  const StridedIndex<2> index(source.shape(), {destination.strides(), source.strides()});
  if (destination.dtype() == source.dtype() && index.is_dense()) {
    if (destination.raw() == source.raw()) return;
    FRIT_CUDA_CALL(cudaMemcpyAsync(destination.raw(), source.raw(), static_cast<std::size_t>(source.bytes()), cudaMemcpyDefault, stream));
    return;
  }
  dispatch_all(destination.dtype(), [&]<class To>() {
    dispatch_all(source.dtype(), [&]<class From>() {
      launch(convert_elements<To, From>, loop_shape(source.elements()), stream, destination.data<To>(), source.data<From>(), index,
             source.elements());
    });
  });
}

bool is_pinned(const void* memory) {
  cudaPointerAttributes attributes;
  FRIT_CUDA_CALL(cudaPointerGetAttributes(&attributes, memory));
  return attributes.type == cudaMemoryTypeHost;
}

/// Both contiguous, of one dtype. The host's memory is the caller's again afterwards.
void copy_bytes(const Tensor& destination, const Tensor& source) {
  const bool to_host = destination.device() == Device::cpu();
  const int index = (to_host ? source : destination).device().index;
  FRIT_CUDA_CALL(
      cudaMemcpyAsync(destination.raw(), source.raw(), static_cast<std::size_t>(source.bytes()), cudaMemcpyDefault, compute_stream(index)));
  if (to_host || is_pinned(source.raw())) synchronize(index);
}

}  // namespace

void copy(const Tensor& destination, const Tensor& source) {
  if (source.elements() == 0) return;
  if (destination.device() == source.device()) return copy_on_device(destination, source);
  // The bytes travel as they are; what else there is to do is done on the destination's side.
  const Tensor dense = source.contiguous();
  if (destination.is_contiguous() && destination.dtype() == source.dtype()) return copy_bytes(destination, dense);
  const Tensor arrived = Tensor::empty(source.shape(), source.dtype(), destination.device());
  copy_bytes(arrived, dense);
  frit::copy(destination, arrived);
}

}  // namespace frit::cuda
