#include "frit/core/io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "frit/core/io/file.h"
#include "frit/core/io/safetensors_format.h"
#include "frit/core/text.h"

namespace frit {
namespace {

namespace format = safetensors_format;

std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// The text as a JSON string.
std::string json_text(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::argument, "safetensors: \"", printable(text), "\" is not valid UTF-8");
  }
}

using NamedTensor = TensorMap::value_type;

/// The widest elements first: with a header of a multiple of eight bytes, every tensor is aligned in the file.
std::vector<const NamedTensor*> file_order(const TensorMap& tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) {
    require(tensor.second.defined(), "safetensors: tensor \"", printable(tensor.first), "\" is undefined");
    require(tensor.first != format::metadata_key, "safetensors: a tensor cannot be named ", format::metadata_key);
    order.push_back(&tensor);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const NamedTensor* a, const NamedTensor* b) { return size_of(a->second.dtype()) > size_of(b->second.dtype()); });
  return order;
}

std::string metadata_text(const Metadata& metadata) {
  require(metadata.size() <= format::metadata_limit, "safetensors: more than ", format::metadata_limit, " metadata entries");
  std::string text;
  for (const auto& [key, value] : metadata) text += (text.empty() ? "" : ",") + json_text(key) + ':' + json_text(value);
  return json_text(format::metadata_key) + ":{" + text + '}';
}

std::string entry_text(const NamedTensor& tensor, std::uint64_t begin) {
  std::string sizes;
  for (const std::int64_t size : tensor.second.shape()) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
  const std::uint64_t end = begin + static_cast<std::uint64_t>(tensor.second.bytes());
  return json_text(tensor.first) + ":{\"dtype\":\"" + format::dtype_text(tensor.second.dtype()) + "\",\"shape\":[" + sizes +
         "],\"data_offsets\":[" + std::to_string(begin) + ',' + std::to_string(end) + "]}";
}

/// The header with its length before it.
std::string header_text(const std::vector<const NamedTensor*>& tensors, const Metadata& metadata) {
  std::string text(format::length_bytes, '\0');
  text += '{';
  if (!metadata.empty()) text += metadata_text(metadata);
  std::uint64_t position = 0;
  for (const NamedTensor* tensor : tensors) {
    if (text.back() == '}') text += ',';
    text += entry_text(*tensor, position);
    position += static_cast<std::uint64_t>(tensor->second.bytes());
  }
  text += '}';
  text.resize(round_up(text.size(), 8), ' ');
  const std::uint64_t length = text.size() - format::length_bytes;
  require(length <= format::header_limit, "safetensors: header of ", length, " bytes, limit 100,000,000");
  for (std::size_t i = 0; i < format::length_bytes; ++i) text[i] = static_cast<char>(length >> (8 * i));
  return text;
}

using Sink = std::function<void(std::span<const std::byte>)>;

/// Calls open(total bytes), which gives the sink that the file's bytes then go to.
template <class Open>
void emit_safetensors(const TensorMap& tensors, const Metadata& metadata, const Open& open) {
  const std::vector<const NamedTensor*> order = file_order(tensors);
  const std::string header = header_text(order, metadata);
  std::uint64_t total = header.size();
  for (const NamedTensor* tensor : order) total += static_cast<std::uint64_t>(tensor->second.bytes());
  const Sink sink = open(total);
  sink(std::as_bytes(std::span(header)));
  for (const NamedTensor* tensor : order) {
    const Tensor dense = tensor->second.to(Device::cpu()).contiguous();
    sink({static_cast<const std::byte*>(dense.raw()), static_cast<std::size_t>(dense.bytes())});
  }
}

}  // namespace

Tensor TensorFile::tensor(std::size_t index) const {
  const Entry described = entry(index);
  std::byte* const memory = static_cast<std::byte*>(data_->raw()) + records_[by_name_[index]].position;
  return Tensor::over(memory, described.shape, described.dtype, Device::cpu(), data_);
}

Tensor TensorFile::at(std::string_view name) const {
  const std::optional<std::size_t> index = find(name);
  if (!index) fail(ErrorKind::format, file(), ": no tensor \"", printable(name), '"');
  return tensor(*index);
}

TensorMap TensorFile::tensors() const {
  TensorMap tensors;
  for (std::size_t i = 0; i < size(); ++i) tensors.emplace_hint(tensors.end(), entry(i).name, tensor(i));
  return tensors;
}

TensorFile read_safetensors(const Input& input) {
  TensorFile file;
  static_cast<SafetensorsHeader&>(file) = read_safetensors_header(input);
  const auto aligned = [](std::uint64_t position, const SafetensorsHeader::Record& record) {
    return round_up(position, size_of(record.dtype));
  };

  std::uint64_t total = 0;
  for (const auto& record : file.records_) total = aligned(total, record) + file.bytes_of(record);
  file.data_ = std::make_shared<Tensor>(Tensor::empty({static_cast<std::int64_t>(total)}, DType::u8));
  std::byte* const memory = static_cast<std::byte*>(file.data_->raw());

  // The data comes in at the end of the memory; tensors that are not aligned there move down to where they are.
  const std::uint64_t bytes = input.size() - file.data_begin_;
  const std::uint64_t shift = total - bytes;
  input.read(file.data_begin_, {memory + shift, static_cast<std::size_t>(bytes)});
  std::uint64_t position = 0;
  for (auto& record : file.records_) {
    const std::uint64_t size = file.bytes_of(record);
    position = aligned(position, record);
    if (size != 0 && position != record.position + shift) std::memmove(memory + position, memory + record.position + shift, size);
    record.position = position;
    position += size;
  }
  return file;
}

TensorFile read_safetensors(const std::string& path) { return read_safetensors(FileInput(path, "a .safetensors file")); }

TensorFile parse_safetensors(std::span<const std::byte> bytes, std::string_view name) { return read_safetensors(MemoryInput(bytes, name)); }

void write_safetensors(const std::string& path, const TensorMap& tensors, const Metadata& metadata) {
  std::unique_ptr<AtomicFile> file;
  emit_safetensors(tensors, metadata, [&](std::uint64_t total) -> Sink {
    file = std::make_unique<AtomicFile>(path, total);
    return [&](std::span<const std::byte> bytes) { file->write(bytes); };
  });
  file->commit();
}

std::vector<std::byte> serialize_safetensors(const TensorMap& tensors, const Metadata& metadata) {
  std::vector<std::byte> result;
  emit_safetensors(tensors, metadata, [&](std::uint64_t total) -> Sink {
    result.reserve(total);
    return [&](std::span<const std::byte> bytes) { result.insert(result.end(), bytes.begin(), bytes.end()); };
  });
  return result;
}

}  // namespace frit
