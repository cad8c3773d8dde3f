#pragma once

#include <vector>

#include "frit/core/data/dataset.h"

namespace frit {

struct PatchOptions {
  Shape size = {};          ///< of the last axes of every tensor
  Strides stride = {};      ///< from one patch to the next; none: the size. The last patch of an axis ends where the axis does
  std::int64_t random = 0;  ///< above 0: so many patches an epoch, at random places, others in every epoch
};

/// Patches of tensors in memory that lie over one another, such as a volume (1, D, H, W) and what is true of its voxels (D, H, W).
class PatchDataset final : public Dataset {
 public:
  /// Throws ErrorKind::argument if a tensor's last axes differ from the others', or are shorter than the patch.
  PatchDataset(const std::vector<TensorDataset::NamedTensor>& tensors, const PatchOptions& options);

  std::int64_t size() const override;
  const std::vector<Field>& fields() const override { return fields_; }
  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch& epoch) const override;
  /// Where a patch begins, on each of the axes.
  Dims position(std::int64_t index, const Epoch& epoch = {}) const;

 private:
  PatchOptions options_;
  Shape extent_;  ///< of the axes that are cut
  Dims counts_;   ///< patches on each of them
  std::vector<Field> fields_;
  std::vector<Tensor> tensors_;
};

}  // namespace frit
