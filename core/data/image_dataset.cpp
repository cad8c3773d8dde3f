#include <algorithm>

#include "frit/core/data/files.h"
#include "frit/core/data/resized_image.h"
#include "frit/core/io/folder.h"
#include "frit/core/text.h"

namespace frit {
std::vector<std::string> ImageDataset::classes_in(const std::string& folder) { return names_in(folder, is_folder); }

ImageDataset::ImageDataset(const std::string& folder, const Shape& image_size, std::vector<std::string> classes)
    : resize_(!image_size.empty()), classes_(std::move(classes)) {
  require(image_size.empty() || (image_size.rank() == 2 && image_size[0] > 0 && image_size[1] > 0),
          "the size of an image is two numbers, height and width, got ", image_size);
  const std::vector<std::string> found = classes_in(folder);
  if (classes_.empty()) classes_ = found;
  if (classes_.empty()) fail(ErrorKind::format, printable(folder), ": expected one folder of PNG or JPEG images a class, got no folder");
  for (const std::string& name : found) {
    if (std::find(classes_.begin(), classes_.end(), name) == classes_.end()) {
      fail(ErrorKind::format, printable(folder + '/' + name), ": is a class that the training data do not have",
           did_you_mean(name, classes_));
    }
  }
  ImageHeader common{0, 0, 1};
  for (std::size_t target = 0; target < classes_.size(); ++target) {
    if (std::find(found.begin(), found.end(), classes_[target]) == found.end()) continue;  // of a test set that lacks a class
    const std::string class_folder = folder + '/' + classes_[target];
    const std::vector<std::string> images = names_in(class_folder, is_image_name);
    if (images.empty()) fail(ErrorKind::format, printable(class_folder), ": has no .png or .jpg files");
    for (const std::string& image : images) {
      files_.push_back({class_folder + '/' + image, static_cast<std::int64_t>(target)});
      const std::string& path = files_.back().path;
      const ImageHeader header = read_image_header(path);
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

void ImageDataset::read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch&) const {
  FRIT_CHECK(batch.size() == 2);
  const Shape& shape = fields_[0].shape;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    FRIT_CHECK(indices[i] >= 0 && indices[i] < size());
    const auto& [path, target] = files_[static_cast<std::size_t>(indices[i])];
    const auto check = [&, &file = path](const Shape& found) {
      if (found[0] <= shape[0] && found[1] == shape[1] && found[2] == shape[2]) return;
      fail(ErrorKind::file_system, printable(file), ": changed while it was read: expected ", shape, ", got ", found);
    };
    const Tensor image = resize_ ? read_resized_image(path, shape[1], shape[2], check) : read_image(path, check);
    const auto k = static_cast<std::int64_t>(i);
    copy(batch[0].slice(0, k, k + 1).reshape(shape), image.expand(shape));
    batch[1].data<std::int64_t>()[i] = target;
  }
}

}  // namespace frit
