#include <filesystem>
#include <utility>

#include "frit/core/data/files.h"
#include "frit/core/data/resized_image.h"
#include "frit/core/io/folder.h"
#include "frit/core/io/png.h"
#include "frit/core/text.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

/// Throws for a mask of another size than its image.
void check_mask_size(const std::string& mask, const std::string& image, const Shape& wanted, const Shape& found) {
  if (found == wanted) return;
  fail(ErrorKind::format, printable(mask), ": expected the size of ", printable(image), ", ", wanted, ", got ", found);
}

/// The mask with this height and width: each pixel has the class of the place under its centre.
Tensor resized_mask(const Tensor& mask, std::int64_t height, std::int64_t width) {
  const Tensor result = Tensor::empty({height, width}, DType::i64);
  const auto place = [](std::int64_t i, std::int64_t from, std::int64_t to) { return (2 * i + 1) * from / (2 * to); };
  for (std::int64_t y = 0; y < height; ++y) {
    const std::int64_t* const row = mask.data<std::int64_t>() + place(y, mask.dim(0), height) * mask.dim(1);
    for (std::int64_t x = 0; x < width; ++x) result.data<std::int64_t>()[y * width + x] = row[place(x, mask.dim(1), width)];
  }
  return result;
}

class MaskDataset final : public Dataset {
 public:
  MaskDataset(const std::string& folder, const Shape& image_size) : resize_(!image_size.empty()) {
    require(image_size.empty() || (image_size.rank() == 2 && image_size[0] > 0 && image_size[1] > 0),
            "the size of an image is two numbers, height and width, got ", image_size);
    find_pairs(folder);
    if (pairs_.empty()) fail(ErrorKind::format, printable(folder + "/images"), ": has no .png or .jpg files");
    ImageHeader common{0, 0, 1};
    for (const auto& [image, mask] : pairs_) {
      const ImageHeader header = read_image_header(image);
      common.channels = std::max(common.channels, header.channels);
      if (common.height == 0) common.height = header.height, common.width = header.width;
      if (!resize_ && (header.height != common.height || header.width != common.width)) {
        fail(ErrorKind::format, printable(image), ": expected ", common.height, 'x', common.width, " pixels as in ",
             printable(pairs_.front().first), ", got ", header.height, 'x', header.width,
             "; hint: with an image size given (--image-size) all are brought to it");
      }
      const ImageHeader of_mask = read_image_header(mask);
      check_mask_size(mask, image, {header.height, header.width}, {of_mask.height, of_mask.width});
    }
    if (resize_) common.height = image_size[0], common.width = image_size[1];
    const Shape size{common.height, common.width};
    fields_ = {{"input", DType::f32, {common.channels, size[0], size[1]}}, {"target", DType::i64, size}};
  }

  std::int64_t size() const override { return std::ssize(pairs_); }
  const std::vector<Field>& fields() const override { return fields_; }
  void read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch&) const override {
    FRIT_CHECK(batch.size() == 2);
    const Shape &shape = fields_[0].shape, &size = fields_[1].shape;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      FRIT_CHECK(indices[i] >= 0 && indices[i] < this->size());
      const auto& [path, mask] = pairs_[static_cast<std::size_t>(indices[i])];
      const auto check = [&, &file = path](const Shape& found) {
        if (found[0] <= shape[0] && found[1] == shape[1] && found[2] == shape[2]) return;
        fail(ErrorKind::file_system, printable(file), ": changed while it was read: expected ", shape, ", got ", found);
      };
      const auto k = static_cast<std::int64_t>(i);
      const Tensor image = resize_ ? read_resized_image(path, shape[1], shape[2], check) : read_image(path, check);
      copy(batch[0].slice(0, k, k + 1).reshape(shape), image.expand(shape));
      const auto check_size = [&, &file = mask, &of = path](const Shape& found) { check_mask_size(file, of, size, found); };
      const Tensor classes = resize_ ? resized_mask(read_png_classes(mask), size[0], size[1]) : read_png_classes(mask, check_size);
      copy(batch[1].slice(0, k, k + 1).reshape(size), classes);
    }
  }

 private:
  void find_pairs(const std::string& folder) {
    std::error_code error;
    for (const std::string& name : names_in(folder + "/images", is_image_name)) {
      const std::string image = folder + "/images/" + name;
      const std::string mask = folder + "/masks/" + fs::path(name).replace_extension(".png").string();
      if (!fs::exists(mask, error)) fail(ErrorKind::file_system, printable(mask), ": no such file, for ", printable(image));
      pairs_.emplace_back(image, mask);
    }
  }

  bool resize_;
  std::vector<std::pair<std::string, std::string>> pairs_;  ///< an image and its mask
  std::vector<Field> fields_;
};

}  // namespace

std::shared_ptr<Dataset> read_mask_dataset(const std::string& folder, const Shape& image_size) {
  return std::make_shared<MaskDataset>(folder, image_size);
}

bool has_mask_files(const std::string& folder) { return is_folder(folder + "/images") && is_folder(folder + "/masks"); }

}  // namespace frit
