#pragma once

#include <functional>
#include <span>
#include <string>

#include "frit/core/io/shape_check.h"
#include "frit/core/tensor.h"

namespace frit {

class Input;

/// What a PNG image's header says.
struct PngHeader {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t channels = 0;  ///< 1: grey; 3: red, green, blue (a palette too). Transparency is not counted: it is dropped
};
PngHeader read_png_header(const std::string& path);

/// An image as f32 (channels, H, W) in [0, 1], of 8 or 16 bits a sample, as it is stored: a gamma or colour profile is not applied. Throws
/// ErrorKind::format for what is damaged, or if frit was built without libpng; ErrorKind::file_system.
Tensor read_png(const std::string& path, const ShapeCheck& check = {});
Tensor read_png(const Input& input, const ShapeCheck& check = {});

/// The same row by row, for an image of which only a part, or a smaller one, is wanted: `begin` is given the header and may throw, then
/// `take` each row from the top, (channels, W). An interlaced image takes memory as a whole, and has 64 million pixels at most.
using PngBegin = std::function<void(const PngHeader& header)>;
using PngRow = std::function<void(std::int64_t y, std::span<const float> samples)>;
void read_png_rows(const Input& input, const PngBegin& begin, const PngRow& take);

/// Writes an image of 8 bits a sample from a floating tensor (1, H, W), grey, or (3, H, W), red, green, blue; values are clipped to
/// [0, 1]. In one step (see AtomicFile). Throws ErrorKind::argument for another shape, ErrorKind::file_system.
void write_png(const std::string& path, const Tensor& image);

}  // namespace frit
