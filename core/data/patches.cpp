#include "frit/core/data/patches.h"

#include <algorithm>
#include <utility>

namespace frit {
namespace {

/// The last `rank` sizes.
Shape last_axes(const Shape& shape, int rank) {
  Shape result;
  for (int axis = shape.rank() - rank; axis < shape.rank(); ++axis) result.push_back(shape[axis]);
  return result;
}

}  // namespace

PatchDataset::PatchDataset(const std::vector<TensorDataset::NamedTensor>& tensors, const PatchOptions& options) : options_(options) {
  const int rank = options.size.rank();
  require(!tensors.empty() && rank > 0, "PatchDataset: needs at least one tensor, and the size of a patch");
  require(options.stride.empty() || options.stride.rank() == rank, "PatchDataset: the patch has ", rank, " axes, the stride ",
          options.stride.rank());
  require(options.random >= 0, "PatchDataset: the number of random patches must not be negative, got ", options.random);
  if (options.stride.empty()) options_.stride = options.size;
  for (const auto& [name, tensor] : tensors) {
    require(tensor.defined() && tensor.rank() >= rank, "PatchDataset: \"", name, "\" needs ", rank, " axes to cut");
    const Shape extent = last_axes(tensor.shape(), rank);
    if (fields_.empty()) extent_ = extent;
    require(extent == extent_, "PatchDataset: \"", name, "\" is ", extent, ", \"", tensors.front().name, "\" is ", extent_);
    Shape shape = tensor.shape();
    std::copy(options.size.begin(), options.size.end(), shape.end() - rank);
    fields_.push_back({name, tensor.dtype(), shape});
    tensors_.push_back(tensor.to(Device::cpu()));
  }
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t size = options_.size[axis], stride = options_.stride[axis];
    require(size >= 1 && size <= extent_[axis], "PatchDataset: a patch of ", options_.size, " does not fit into ", extent_);
    require(stride >= 1, "PatchDataset: the stride must be at least 1, got ", options_.stride);
    counts_.push_back((extent_[axis] - size + stride - 1) / stride + 1);
  }
}

std::int64_t PatchDataset::size() const { return options_.random > 0 ? options_.random : element_count(counts_); }

Dims PatchDataset::position(std::int64_t index, const Epoch& epoch) const {
  FRIT_CHECK(index >= 0 && index < size());
  Dims position = Dims::filled(counts_.rank(), 0);
  std::int64_t left = index;
  for (int axis = counts_.rank(); axis-- > 0;) {
    const std::int64_t last = extent_[axis] - options_.size[axis];
    if (options_.random > 0) {
      position[axis] = epoch.below(last + 1, static_cast<std::uint64_t>(axis), index);
    } else {
      position[axis] = std::min(left % counts_[axis] * options_.stride[axis], last);
      left /= counts_[axis];
    }
  }
  return position;
}

void PatchDataset::read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch& epoch) const {
  FRIT_CHECK(batch.size() == tensors_.size());
  for (std::size_t row = 0; row < indices.size(); ++row) {
    const Dims begin = position(indices[row], epoch);
    for (std::size_t f = 0; f < tensors_.size(); ++f) {
      Tensor patch = tensors_[f];
      for (int axis = 0; axis < begin.rank(); ++axis) {
        patch = patch.slice(axis - begin.rank(), begin[axis], begin[axis] + options_.size[axis]);
      }
      const auto k = static_cast<std::int64_t>(row);
      copy(batch[f].slice(0, k, k + 1).reshape(patch.shape()), patch);
    }
  }
}

}  // namespace frit
