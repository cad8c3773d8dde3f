#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frit/core/io/stored_array.h"
#include "frit/core/tensor.h"

namespace frit {

class Input;

/// Reads a NumPy array file, versions 1.0 to 3.0. The header is matched against its fixed grammar and never evaluated. Bool is read as u8,
/// big-endian numbers are swapped, and an array in Fortran order gives a transposed view. Throws ErrorKind::format, ErrorKind::file_system.
Tensor read_npy(const std::string& path);
Tensor read_npy(const Input& input);
/// The same checks, without reading any data; nothing for an array in Fortran order.
std::optional<StoredArray> find_npy_array(const Input& input);
/// From memory; `name` stands in the messages.
Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name);

/// Writes version 1.0 in one step (see AtomicFile). Throws ErrorKind::argument for bf16, which NumPy lacks, ErrorKind::file_system.
void write_npy(const std::string& path, const Tensor& tensor);
std::vector<std::byte> serialize_npy(const Tensor& tensor);

}  // namespace frit
