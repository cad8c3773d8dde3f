#pragma once

#include <string>

#include "frit/core/io/image.h"

namespace frit {

/// Three channels of a palette too. Transparency is not counted: it is dropped.
ImageHeader read_png_header(const Input& input);

/// An image as f32 (channels, H, W) in [0, 1], of 8 or 16 bits a sample, as it is stored: a gamma or colour profile is not applied. Throws
/// ErrorKind::format for what is damaged, or if frit was built without libpng; ErrorKind::file_system.
Tensor read_png(const std::string& path, const ShapeCheck& check = {});
Tensor read_png(const Input& input, const ShapeCheck& check = {});

/// The same row by row, for an image of which only a part, or a smaller one, is wanted. An interlaced image takes memory as a whole, and
/// has 64 million pixels at most.
void read_png_rows(const Input& input, const ImageBegin& begin, const ImageRow& take);

/// What is stored at each pixel, as i64 (H, W): the class of a mask, a grey value as a number or a place in the palette. Throws likewise, and
/// for an image in colours.
Tensor read_png_classes(const std::string& path, const ShapeCheck& check = {});

/// Writes an image of 8 bits a sample from a floating tensor (1, H, W), grey, or (3, H, W), red, green, blue; values are clipped to
/// [0, 1]. In one step (see AtomicFile). Throws ErrorKind::argument for another shape, ErrorKind::file_system.
void write_png(const std::string& path, const Tensor& image);

}  // namespace frit
