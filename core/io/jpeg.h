#pragma once

#include <string>

#include "frit/core/io/image.h"

namespace frit {

ImageHeader read_jpeg_header(const Input& input);

/// An image as f32 (channels, H, W) in [0, 1], grey or in colour, of 8 bits a sample, as it is stored: a colour profile or an orientation
/// that a camera noted is not applied. Throws ErrorKind::format for what is damaged, also where a viewer would make up what is missing, for
/// CMYK and arithmetic coding, or if frit was built without libjpeg; ErrorKind::file_system.
Tensor read_jpeg(const std::string& path, const ShapeCheck& check = {});
Tensor read_jpeg(const Input& input, const ShapeCheck& check = {});

/// The same row by row, for an image of which only a part, or a smaller one, is wanted. An image in several scans (a progressive one) takes
/// memory as a whole, and has 64 million pixels and 100 scans at most.
void read_jpeg_rows(const Input& input, const ImageBegin& begin, const ImageRow& take);

}  // namespace frit
