#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "frit/core/io/shape_check.h"
#include "frit/core/tensor.h"

namespace frit {

class Input;

/// What an image's header says.
struct ImageHeader {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;  ///< 1: grey; 3: red, green, blue
};

/// Of an image that is read row by row: the header, which may be refused by throwing; then each row from the top, (channels, W) in [0, 1].
using ImageBegin = std::function<void(const ImageHeader& header)>;
using ImageRow = std::function<void(std::int64_t y, std::span<const float> samples)>;

/// A PNG or JPEG image, as its first bytes say, or else its name; see read_png and read_jpeg.
ImageHeader read_image_header(const std::string& path);
Tensor read_image(const std::string& path, const ShapeCheck& check = {});
Tensor read_image(const Input& input, const ShapeCheck& check = {});
void read_image_rows(const Input& input, const ImageBegin& begin, const ImageRow& take);

/// The whole image (channels, H, W) from what reads its rows.
using ReadImageRows = void (*)(const Input& input, const ImageBegin& begin, const ImageRow& take);
Tensor gather_image(ReadImageRows read, const Input& input, const ShapeCheck& check);

/// Whether the file is called as a JPEG image is, .jpg or .jpeg, or as either kind, .png too; in small or capital letters.
bool is_jpeg_name(std::string_view name);
bool is_image_name(std::string_view name);

}  // namespace frit
