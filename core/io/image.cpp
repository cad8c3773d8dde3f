#include "frit/core/io/image.h"

#include <algorithm>
#include <array>

#include "frit/core/io/file.h"
#include "frit/core/io/jpeg.h"
#include "frit/core/io/png.h"

namespace frit {
namespace {

constexpr const char* image_formats = "a PNG or JPEG image";

bool is_jpeg(const Input& input) {
  std::array<std::byte, 2> first{};
  if (input.size() >= first.size()) input.read(0, first);
  if (first == std::array{std::byte{0xff}, std::byte{0xd8}}) return true;
  return first != std::array{std::byte{0x89}, std::byte{'P'}} && is_jpeg_name(input.name());
}

bool ends_with(std::string_view name, std::string_view ending) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  return name.size() >= ending.size() && std::equal(ending.begin(), ending.end(), name.end() - std::ssize(ending),
                                                    [&](char wanted, char found) { return same(found, wanted); });
}

}  // namespace

bool is_jpeg_name(std::string_view name) { return ends_with(name, ".jpg") || ends_with(name, ".jpeg"); }
bool is_image_name(std::string_view name) { return ends_with(name, ".png") || is_jpeg_name(name); }

ImageHeader read_image_header(const std::string& path) {
  const FileInput input(path, image_formats);
  return is_jpeg(input) ? read_jpeg_header(input) : read_png_header(input);
}

void read_image_rows(const Input& input, const ImageBegin& begin, const ImageRow& take) {
  (is_jpeg(input) ? read_jpeg_rows : read_png_rows)(input, begin, take);
}

Tensor read_image(const Input& input, const ShapeCheck& check) { return gather_image(read_image_rows, input, check); }

Tensor read_image(const std::string& path, const ShapeCheck& check) { return read_image(FileInput(path, image_formats), check); }

Tensor gather_image(ReadImageRows read, const Input& input, const ShapeCheck& check) {
  Tensor image;
  const auto begin = [&](const ImageHeader& header) {
    const Shape shape{header.channels, header.height, header.width};
    if (check) check(shape);
    image = Tensor::empty(shape);
  };
  read(input, begin, [&](std::int64_t y, std::span<const float> samples) {
    const std::int64_t width = image.dim(2);
    for (std::int64_t c = 0; c < image.dim(0); ++c) {
      std::copy_n(samples.begin() + c * width, width, image.data<float>() + (c * image.dim(1) + y) * width);
    }
  });
  return image;
}

}  // namespace frit
