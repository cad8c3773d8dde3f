#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "frit/core/data/files.h"
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

/// The last axis of (rows, length) as the weights say, and as the first: (to, rows). Twice over, this is an image of another size.
Tensor resize_last(const Tensor& image, std::int64_t rows, std::int64_t length, std::int64_t to) {
  const Tensor result = Tensor::empty({to, rows});
  const float* const from = image.data<float>();
  float* out = result.data<float>();
  for (const Weights& place : weights(length, to)) {
    for (std::int64_t row = 0; row < rows; ++row) {
      float sum = 0;
      for (std::size_t k = 0; k < place.of.size(); ++k)
        sum += place.of[k] * from[row * length + place.begin + static_cast<std::int64_t>(k)];
      *out++ = sum;
    }
  }
  return result;
}

Tensor resized(const Tensor& image, std::int64_t height, std::int64_t width) {
  const std::int64_t channels = image.dim(0), old_height = image.dim(1), old_width = image.dim(2);
  if (old_height == height && old_width == width) return image;
  const Tensor columns = resize_last(image, channels * old_height, old_width, width);  // (width, channels, old height)
  const Tensor rows = resize_last(columns, width * channels, old_height, height);      // (height, width, channels)
  return rows.reshape({height, width, channels}).permute({2, 0, 1});
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
    Tensor image = read_png(path);
    if (resize_) image = resized(image, shape[1], shape[2]);
    if (image.dim(0) > shape[0] || image.dim(1) != shape[1] || image.dim(2) != shape[2]) {
      fail(ErrorKind::file_system, printable(path), ": changed while it was read: expected ", shape, ", got ", image.shape());
    }
    const auto k = static_cast<std::int64_t>(i);
    copy(batch[0].slice(0, k, k + 1).reshape(shape), image.expand(shape));
    batch[1].data<std::int64_t>()[i] = target;
  }
}

}  // namespace frit
