#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "frit/core/tensor.h"

namespace frit {

class Input;
class TensorFile;

/// Tensors by name.
using TensorMap = std::map<std::string, Tensor, std::less<>>;
/// Free text that a safetensors file carries along.
using Metadata = std::map<std::string, std::string, std::less<>>;

/// What the header of a safetensors file says, checked in full: the tensors in ascending order of their names, and the metadata. It takes
/// less memory than the header's own text, so that a file's claims cannot cost more than the file.
class SafetensorsHeader {
 public:
  struct Entry {
    std::string_view name;  ///< any UTF-8 text: fit to print only through printable()
    DType dtype;
    Shape shape;
    std::uint64_t offset;  ///< of its first byte in the file
  };

  const std::string& file() const { return file_; }  ///< fit to print
  std::size_t size() const { return by_name_.size(); }
  Entry entry(std::size_t index) const;
  std::optional<std::size_t> find(std::string_view name) const;
  const Metadata& metadata() const { return metadata_; }

 protected:
  friend class SafetensorsHeaderParser;
  friend TensorFile read_safetensors(const Input& input);

  struct Record {
    std::uint64_t position = 0;  ///< of its first byte in the data
    std::uint32_t name_begin = 0;
    std::uint32_t name_length = 0;
    std::uint32_t shape_begin = 0;
    std::uint8_t rank = 0;
    DType dtype = DType::f32;
  };
  std::string_view name_of(const Record& record) const { return std::string_view(names_).substr(record.name_begin, record.name_length); }
  Shape shape_of(const Record& record) const;
  std::uint64_t bytes_of(const Record& record) const;

  std::string file_;
  std::uint64_t data_begin_ = 0;        ///< in the file
  std::vector<Record> records_;         ///< in the order of their data
  std::vector<std::uint32_t> by_name_;  ///< positions in records_
  std::string names_;
  std::vector<std::int64_t> sizes_;
  Metadata metadata_;
};

/// A safetensors file in memory. All tensors share one allocation, which lives as long as any of them.
class TensorFile : public SafetensorsHeader {
 public:
  Tensor tensor(std::size_t index) const;
  /// Throws ErrorKind::format if there is no such tensor.
  Tensor at(std::string_view name) const;
  TensorMap tensors() const;

 private:
  friend TensorFile read_safetensors(const Input& input);

  std::shared_ptr<Tensor> data_;  ///< bytes; every tensor starts at a multiple of its element size
};

/// Checks what the reference implementation checks, and more: no duplicate names, rank 8 at most, no unknown keys, 65,536 metadata
/// entries at most, and a dtype that frit has (BOOL is read as u8). Throws ErrorKind::format for what breaks these rules,
/// ErrorKind::file_system for what cannot be read.
TensorFile read_safetensors(const std::string& path);
TensorFile read_safetensors(const Input& input);
/// From memory; `name` stands in the messages.
TensorFile parse_safetensors(std::span<const std::byte> bytes, std::string_view name);

/// The same checks, without reading any data.
SafetensorsHeader read_safetensors_header(const std::string& path);
SafetensorsHeader read_safetensors_header(const Input& input);

/// Writes the file in one step (see AtomicFile). Tensors may have any strides; equal tensors and metadata give equal bytes. Throws
/// ErrorKind::argument for an undefined tensor or a name that is not UTF-8, ErrorKind::file_system.
void write_safetensors(const std::string& path, const TensorMap& tensors, const Metadata& metadata = {});
std::vector<std::byte> serialize_safetensors(const TensorMap& tensors, const Metadata& metadata = {});

}  // namespace frit
