#pragma once

#include <optional>
#include <string>

#include "frit/core/io/shape_check.h"
#include "frit/core/io/stored_array.h"
#include "frit/core/tensor.h"

namespace frit {

class Input;

/// Reads an IDX file, the format of the MNIST sets: plain or compressed by gzip, of u8, i32, f32 or f64. The memory it takes is what the
/// IDX header declares, whatever a compressed stream would unfold to. Throws ErrorKind::format, ErrorKind::file_system.
Tensor read_idx(const std::string& path, const ShapeCheck& check = {});
Tensor read_idx(const Input& input, const ShapeCheck& check = {});
/// The same checks, without reading any data; nothing for a compressed file.
std::optional<StoredArray> find_idx_array(const Input& input);

}  // namespace frit
