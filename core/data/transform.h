#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frit/core/data/dataset.h"

namespace frit {

/// What the values of each channel of a dataset's first field are: (C, image axes...).
struct ChannelStatistics {
  std::vector<double> mean, deviation, least, largest;
};
/// Goes through all examples once. Throws ErrorKind::argument if there are none, or the first field has no channel axis.
ChannelStatistics channel_statistics(const Dataset& dataset);

struct TransformOptions {
  /// Channel c becomes (x - subtract[c]) / divide[c], as f32; both empty: no change.
  std::vector<double> subtract = {}, divide = {};
  /// Zeros before and after the image, one number an image axis or none: for a crop to move in.
  Dims padding = {};
  /// The size of the part to take of the image axes; none: all.
  Shape crop = {};
  /// The image axes to turn around, each in half of the examples: 0 is the first, D or H.
  Dims flip = {};
  /// Fields that stay as they are, whatever sizes they have.
  std::vector<std::string> still = {};
  /// Where to crop and what to flip is drawn again in every epoch; otherwise the middle is taken, and nothing is flipped.
  bool random = true;
};

/// Changes the first field of each example, its image (C, D.., H, W); padding, crops and flips also every other field that ends in the same
/// image axes, such as what is true of each voxel, but those that are to stay. What is random depends on the loader's seed, the epoch and
/// the example alone.
class TransformDataset final : public Dataset {
 public:
  /// Throws ErrorKind::argument for options that do not fit the dataset.
  TransformDataset(std::shared_ptr<const Dataset> source, const TransformOptions& options);

  std::int64_t size() const override { return source_->size(); }
  const std::vector<Field>& fields() const override { return fields_; }
  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch& epoch) const override;

 private:
  /// Which element of the source stands at each place of each image axis; -1: a zero.
  std::vector<std::vector<std::int64_t>> places(std::int64_t example, const Epoch& epoch) const;

  std::shared_ptr<const Dataset> source_;
  TransformOptions options_;
  std::vector<bool> moves_;  ///< by field
  Shape before_, after_;     ///< the image axes
  std::vector<Field> fields_;
};

}  // namespace frit
