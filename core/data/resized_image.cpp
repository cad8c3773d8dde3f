#include "frit/core/data/resized_image.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "frit/core/io/file.h"

namespace frit {
namespace {

/// How much of each of `from` places goes into each of `to` places: a triangle as wide as the coarser of both grids.
struct Weights {
  std::int64_t begin;
  std::vector<float> of;
};
std::vector<Weights> weights(std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), reach = std::max(scale, 1.0);
  std::vector<Weights> result;
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale - 0.5;
    const auto begin = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(centre - reach)) + 1);
    const auto end = std::min(from, static_cast<std::int64_t>(std::ceil(centre + reach)));
    std::vector<double> shares;
    double sum = 0;
    for (std::int64_t k = begin; k < end; ++k) sum += shares.emplace_back(1 - std::fabs(static_cast<double>(k) - centre) / reach);
    Weights& place = result.emplace_back(Weights{begin, {}});
    for (const double share : shares) place.of.push_back(static_cast<float>(share / sum));
  }
  return result;
}

/// An image brought to another size row by row, so that it is nowhere as a whole.
class Resizing {
 public:
  /// `to` (channels, H, W).
  Resizing(const ImageHeader& from, const Tensor& to)
      : columns_(weights(from.width, to.dim(2))), rows_(weights(from.height, to.dim(1))), width_(from.width), to_(to) {
    to.fill(0);
  }

  /// The row y (channels, W) of the image.
  void add(std::int64_t y, std::span<const float> samples) {
    values_.clear();
    for (std::int64_t c = 0; c < to_.dim(0); ++c) {
      for (const Weights& place : columns_) values_.push_back(sum(place, samples.data() + c * width_ + place.begin));
    }
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      const std::int64_t k = y - rows_[row].begin;
      if (k >= 0 && k < static_cast<std::int64_t>(rows_[row].of.size())) add_to(row, rows_[row].of[static_cast<std::size_t>(k)]);
    }
  }

 private:
  static float sum(const Weights& place, const float* from) {
    float sum = 0;
    for (std::size_t k = 0; k < place.of.size(); ++k) sum += place.of[k] * from[k];
    return sum;
  }
  void add_to(std::size_t row, float weight) {
    const std::size_t width = columns_.size();
    for (std::size_t c = 0; c * width < values_.size(); ++c) {
      float* const to = to_.data<float>() + (c * rows_.size() + row) * width;
      for (std::size_t x = 0; x < width; ++x) to[x] += weight * values_[c * width + x];
    }
  }

  std::vector<Weights> columns_, rows_;
  std::int64_t width_;
  Tensor to_;
  std::vector<float> values_;  ///< a row, (channels, W) of the other width
};

}  // namespace

Tensor read_resized_image(const std::string& path, std::int64_t height, std::int64_t width, const ShapeCheck& check) {
  Tensor image;
  std::optional<Resizing> resizing;
  const auto begin = [&](const ImageHeader& header) {
    const Shape shape{header.channels, height, width};
    check(shape);
    image = Tensor::empty(shape);
    resizing.emplace(header, image);
  };
  read_image_rows(FileInput(path, "a PNG or JPEG image"), begin,
                  [&](std::int64_t y, std::span<const float> samples) { resizing->add(y, samples); });
  return image;
}

}  // namespace frit
