#include "frit/core/io/idx.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "frit/core/io/byte_order.h"
#include "frit/core/io/content.h"
#include "frit/core/io/file.h"

namespace frit {
namespace {

std::optional<DType> dtype_of_code(unsigned code) {
  switch (code) {
    case 0x08: return DType::u8;
    case 0x0C: return DType::i32;
    case 0x0D: return DType::f32;
    case 0x0E: return DType::f64;
    default: return std::nullopt;
  }
}

std::uint32_t read_word(const Input& input, Content& content) {
  std::array<std::byte, 4> bytes;
  if (content.read(bytes) != bytes.size()) input.bad("too short for an IDX header");
  swap_bytes(bytes, bytes.size());
  return std::bit_cast<std::uint32_t>(bytes);
}

StoredArray read_header(const Input& input, Content& content) {
  const std::uint32_t magic = read_word(input, content);
  const std::uint32_t rank = magic & 0xff;
  if (magic >> 16 != 0) input.bad("not an IDX file: expected two zero bytes at the start");
  const std::optional<DType> dtype = dtype_of_code(magic >> 8);
  if (!dtype) input.bad("IDX element type ", magic >> 8, " not supported; supported: 8 (u8), 12 (i32), 13 (f32), 14 (f64)");
  if (rank > Dims::max_rank) input.bad("rank ", rank, " is over the limit of ", Dims::max_rank);
  StoredArray array{.dtype = *dtype, .offset = 4 + 4 * rank, .swapped = true};
  for (std::uint32_t axis = 0; axis < rank; ++axis) array.shape.push_back(read_word(input, content));
  return array;
}

/// The bytes that the shape needs, which must not be more than `limit`.
std::uint64_t checked_bytes(const Input& input, const StoredArray& array, std::uint64_t limit) {
  std::uint64_t bytes = std::count(array.shape.begin(), array.shape.end(), 0) != 0 ? 0 : size_of(array.dtype);
  for (const std::int64_t size : array.shape) {
    // Checked axis by axis, so that the product cannot overflow.
    if (bytes != 0 && static_cast<std::uint64_t>(size) > limit / bytes) {
      input.bad("header declares ", array.dtype, ' ', array.shape, ", more than a file of ", input.size(), " bytes can hold: truncated?");
    }
    bytes *= static_cast<std::uint64_t>(size);
  }
  return bytes;
}

[[noreturn]] void cut_short(const Input& input, const StoredArray& array, std::uint64_t bytes, std::uint64_t found) {
  input.bad("expected ", bytes, " bytes of data for ", array.dtype, ' ', array.shape, ", found ", found);
}

}  // namespace

Tensor read_idx(const Input& input, const ShapeCheck& check) {
  const std::unique_ptr<Content> content = open_content(input);
  const StoredArray array = read_header(input, *content);
  const std::uint64_t bytes = checked_bytes(input, array, content->limit());
  if (check) check(array.shape);
  const Tensor tensor = Tensor::empty(array.shape, array.dtype);
  const std::span<std::byte> memory(static_cast<std::byte*>(tensor.raw()), static_cast<std::size_t>(bytes));
  const std::size_t found = content->read(memory);
  if (found != bytes) cut_short(input, array, bytes, found);
  content->finish();
  swap_bytes(memory, size_of(array.dtype));
  return tensor;
}

std::optional<StoredArray> find_idx_array(const Input& input) {
  if (is_gzip(input)) return std::nullopt;
  const std::unique_ptr<Content> content = open_content(input);
  const StoredArray array = read_header(input, *content);
  const std::uint64_t bytes = checked_bytes(input, array, content->limit()), found = input.size() - array.offset;
  if (found < bytes) cut_short(input, array, bytes, found);
  if (found > bytes) input.bad(found - bytes, " bytes after the end of the data");
  return array;
}

Tensor read_idx(const std::string& path, const ShapeCheck& check) { return read_idx(FileInput(path, "an IDX file"), check); }

}  // namespace frit
