#include <array>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "frit/core/data/files.h"
#include "frit/core/data/stored_dataset.h"
#include "frit/core/io/content.h"
#include "frit/core/io/folder.h"
#include "frit/core/io/image.h"
#include "frit/core/io/nifti.h"
#include "frit/core/io/npy.h"
#include "frit/core/io/npz.h"
#include "frit/core/text.h"

namespace frit {
namespace {

enum class ExampleFormat { npy, idx, image, nifti };

std::optional<ExampleFormat> format_of_name(std::string_view name) {
  constexpr std::pair<std::string_view, ExampleFormat> suffixes[] = {
      {".npy", ExampleFormat::npy},       {".nii", ExampleFormat::nifti},        {".nii.gz", ExampleFormat::nifti},
      {"idx3-ubyte", ExampleFormat::idx}, {"idx3-ubyte.gz", ExampleFormat::idx},
  };
  if (is_image_name(name)) return ExampleFormat::image;
  for (const auto& [suffix, format] : suffixes) {
    if (name.ends_with(suffix)) return format;
  }
  return std::nullopt;
}

/// By the first four bytes, decompressed. A NIfTI file begins with its header's size in either byte order, an IDX file with two zeros and
/// its element type.
std::optional<ExampleFormat> format_of_content(const std::string& path) {
  const FileInput input(path, "a .npy, IDX, PNG, JPEG or NIfTI file");
  std::array<std::uint8_t, 4> first{};
  if (open_content(input)->read(std::as_writable_bytes(std::span(first))) != first.size()) return std::nullopt;
  std::uint32_t big = 0, little = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    big = big << 8 | first[i];
    little |= std::uint32_t{first[i]} << (8 * i);
  }
  if (big == 0x934e554d) return ExampleFormat::npy;       // \x93NUM
  if (big == 0x89504e47) return ExampleFormat::image;     // \x89PNG
  if (big >> 8 == 0xffd8ff) return ExampleFormat::image;  // a JPEG image
  for (const std::uint32_t header : {348U, 540U}) {
    if (big == header || little == header) return ExampleFormat::nifti;
  }
  if (big >= 0x0800 && big < 0x0f00) return ExampleFormat::idx;
  return std::nullopt;
}

/// All that training would read of an IDX file, in one batch.
Tensor read_idx_images(const std::string& path, const ShapeCheck& check) {
  const StoredDataset dataset({stored_idx_images("input", path, check)});
  const Dataset::Field& field = dataset.fields().front();
  Shape shape = field.shape;
  shape.insert(0, dataset.size());
  const Tensor images = Tensor::empty(shape, field.dtype);
  std::vector<std::int64_t> all(static_cast<std::size_t>(dataset.size()));
  std::iota(all.begin(), all.end(), 0);
  dataset.read(all, {&images, 1}, {});
  return images;
}

Shape of_one_example(Shape shape) {
  shape.insert(0, 1);
  return shape;
}

Tensor as_one_example(const Tensor& example) { return example.reshape(of_one_example(example.shape())); }

}  // namespace

Tensor read_examples(const std::string& path, const ShapeCheck& check) {
  std::optional<ExampleFormat> format = format_of_content(path);
  if (!format) format = format_of_name(path);
  const auto check_example = [&](const Shape& shape) {
    if (check) check(of_one_example(shape));
  };
  switch (format.value_or(ExampleFormat::npy)) {
    case ExampleFormat::idx: return read_idx_images(path, check);
    case ExampleFormat::image: return as_one_example(read_image(path, check_example));
    case ExampleFormat::nifti: return as_one_example(read_nifti(path, check_example).channels());
    default: return read_npy(path, check);
  }
}

std::optional<TensorMap> read_named_arrays(const std::string& path) {
  if (is_zip(FileInput(path, "an array, an image or a volume"))) return read_npz(path);
  if (path.ends_with(".safetensors")) return read_safetensors(path).tensors();
  return std::nullopt;
}

std::vector<std::string> example_files(const std::string& folder) {
  std::vector<std::string> files = names_in(folder, [](const std::string& path) { return format_of_name(path).has_value(); });
  if (files.empty()) fail(ErrorKind::file_system, printable(folder), ": there are no .npy, .png, .jpg, .nii or IDX files in this folder");
  for (std::string& file : files) file = (std::filesystem::path(folder) / file).string();
  return files;
}

}  // namespace frit
