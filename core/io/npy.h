#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frit/core/io/shape_check.h"
#include "frit/core/io/stored_array.h"
#include "frit/core/tensor.h"

namespace frit {

class Input;

/// Reads a NumPy array file, versions 1.0 to 3.0. The header is matched against its fixed grammar and never evaluated. Bool is read as u8,
/// big-endian numbers are swapped, and an array in Fortran order gives a transposed view. Throws ErrorKind::format, ErrorKind::file_system.
Tensor read_npy(const std::string& path, const ShapeCheck& check = {});
Tensor read_npy(const Input& input, const ShapeCheck& check = {});
/// The same checks, without reading any data; nothing for an array in Fortran order.
std::optional<StoredArray> find_npy_array(const Input& input);
/// From memory; `name` stands in the messages.
Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name);

/// Several arrays one after another, as numpy.save appends them to an open file or pipe.
class NpyStream {
 public:
  /// Fills a buffer as far as the stream goes; returns the count of bytes.
  using Read = std::function<std::size_t(std::span<std::byte>)>;

  /// `name` stands in the messages.
  NpyStream(Read read, std::string name) : read_(std::move(read)), name_(std::move(name)) {}
  /// None at the end of the stream. Throws ErrorKind::format, counting the arrays from 1.
  std::optional<Tensor> next(const ShapeCheck& check = {});

 private:
  Read read_;
  std::string name_;
  std::int64_t count_ = 0;
};

/// Writes version 1.0 in one step (see AtomicFile). Throws ErrorKind::argument for bf16, which NumPy lacks, ErrorKind::file_system.
void write_npy(const std::string& path, const Tensor& tensor);
std::vector<std::byte> serialize_npy(const Tensor& tensor);

}  // namespace frit
