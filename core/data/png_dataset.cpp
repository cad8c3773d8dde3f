#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "frit/core/data/files.h"
#include "frit/core/io/file.h"
#include "frit/core/io/png.h"
#include "frit/core/text.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

/// What stands in a folder and is wanted, in the order of the names' bytes.
template <class Wanted>
std::vector<std::string> names_in(const std::string& folder, const Wanted& wanted) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && wanted(*entry)) names.push_back(std::move(name));
  }
  if (error) fail(ErrorKind::file_system, printable(folder), ": ", error.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_directory(error);
}

bool is_image(const fs::directory_entry& entry) {
  const std::string suffix = entry.path().extension().string();
  return suffix == ".png" || suffix == ".PNG";
}

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
  Resizing(const PngHeader& from, const Tensor& to)
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

/// The image at the path with this height and width.
Tensor read_resized(const std::string& path, std::int64_t height, std::int64_t width, const ShapeCheck& check) {
  Tensor image;
  std::optional<Resizing> resizing;
  const auto begin = [&](const PngHeader& header) {
    const Shape shape{header.channels, height, width};
    check(shape);
    image = Tensor::empty(shape);
    resizing.emplace(header, image);
  };
  read_png_rows(FileInput(path, "a PNG image"), begin, [&](std::int64_t y, std::span<const float> samples) { resizing->add(y, samples); });
  return image;
}

}  // namespace

std::vector<std::string> PngDataset::classes_in(const std::string& folder) { return names_in(folder, is_folder); }

PngDataset::PngDataset(const std::string& folder, const Shape& image_size, std::vector<std::string> classes)
    : resize_(!image_size.empty()), classes_(std::move(classes)) {
  require(image_size.empty() || (image_size.rank() == 2 && image_size[0] > 0 && image_size[1] > 0),
          "the size of an image is two numbers, height and width, got ", image_size);
  const std::vector<std::string> found = classes_in(folder);
  if (classes_.empty()) classes_ = found;
  if (classes_.empty()) fail(ErrorKind::format, printable(folder), ": expected one folder of PNG images a class, got no folder");
  for (const std::string& name : found) {
    if (std::find(classes_.begin(), classes_.end(), name) == classes_.end()) {
      fail(ErrorKind::format, printable(folder + '/' + name), ": is a class that the training data do not have",
           did_you_mean(name, classes_));
    }
  }
  PngHeader common{0, 0, 1};
  for (std::size_t target = 0; target < classes_.size(); ++target) {
    if (std::find(found.begin(), found.end(), classes_[target]) == found.end()) continue;  // of a test set that lacks a class
    const std::string class_folder = folder + '/' + classes_[target];
    const std::vector<std::string> images = names_in(class_folder, is_image);
    if (images.empty()) fail(ErrorKind::format, printable(class_folder), ": has no .png files");
    for (const std::string& image : images) {
      files_.push_back({class_folder + '/' + image, static_cast<std::int64_t>(target)});
      const std::string& path = files_.back().path;
      const PngHeader header = read_png_header(path);
      common.channels = std::max(common.channels, header.channels);
      if (files_.size() == 1) common.height = header.height, common.width = header.width;
      if (!resize_ && (header.height != common.height || header.width != common.width)) {
        fail(ErrorKind::format, printable(path), ": expected ", common.height, 'x', common.width, " pixels as in ",
             printable(files_.front().path), ", got ", header.height, 'x', header.width,
             "; hint: with an image size given (--image-size) all are brought to it");
      }
    }
  }
  if (resize_) common.height = image_size[0], common.width = image_size[1];
  fields_ = {{"input", DType::f32, {common.channels, common.height, common.width}}, {"target", DType::i64, {}}};
}

void PngDataset::read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch&) const {
  FRIT_CHECK(batch.size() == 2);
  const Shape& shape = fields_[0].shape;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    FRIT_CHECK(indices[i] >= 0 && indices[i] < size());
    const auto& [path, target] = files_[static_cast<std::size_t>(indices[i])];
    const auto check = [&, &file = path](const Shape& found) {
      if (found[0] <= shape[0] && found[1] == shape[1] && found[2] == shape[2]) return;
      fail(ErrorKind::file_system, printable(file), ": changed while it was read: expected ", shape, ", got ", found);
    };
    const Tensor image = resize_ ? read_resized(path, shape[1], shape[2], check) : read_png(path, check);
    const auto k = static_cast<std::int64_t>(i);
    copy(batch[0].slice(0, k, k + 1).reshape(shape), image.expand(shape));
    batch[1].data<std::int64_t>()[i] = target;
  }
}

}  // namespace frit
