#include "frit/core/io/safetensors_checksums.h"

#include "frit/core/io/checksum.h"
#include "frit/core/io/json.h"
#include "frit/core/text.h"

namespace frit {
namespace {

constexpr const char *of_tensors = "checksums", *of_metadata = "checksum";

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::string tensor_checksum(std::string_view name, const Tensor& tensor) {
  FRIT_CHECK(tensor.is_contiguous() && tensor.device() == Device::cpu());
  const std::string described = concat(name, '\0', tensor.dtype(), ' ', tensor.shape());
  const std::span data(static_cast<const std::byte*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes()));
  return checksum_text(checksum(data, checksum(bytes_of(described))));
}

std::string metadata_checksum(const Metadata& metadata) {
  std::uint64_t sum = 0;
  for (const auto& [key, value] : metadata) {
    if (key != of_metadata) sum = checksum(bytes_of(value), checksum(bytes_of(key), sum));
  }
  return checksum_text(sum);
}

}  // namespace

void add_checksums(const TensorMap& tensors, Metadata& metadata) {
  auto checksums = nlohmann::json::object();
  for (const auto& [name, tensor] : tensors) checksums[name] = tensor_checksum(name, tensor);
  metadata[of_tensors] = checksums.dump();
  metadata[of_metadata] = metadata_checksum(metadata);
}

bool verify_checksums(const TensorFile& file) {
  const auto damaged = [&](const auto&... what) {
    fail(ErrorKind::format, file.file(), ": ", what..., " does not have its checksum: the file is damaged");
  };
  const Metadata& metadata = file.metadata();
  const auto tensors = metadata.find(of_tensors), header = metadata.find(of_metadata);
  if (tensors == metadata.end() && header == metadata.end()) return false;
  if (tensors == metadata.end() || header == metadata.end() || header->second != metadata_checksum(metadata)) damaged("the metadata");
  const auto checksums = read_json(tensors->second, concat(file.file(), ": \"", of_tensors, '"'));
  if (!checksums.is_object() || checksums.size() != file.size()) damaged("the list of tensors");
  for (std::size_t i = 0; i < file.size(); ++i) {
    const std::string name(file.entry(i).name);
    if (checksums.value(name, nlohmann::json()) != tensor_checksum(name, file.tensor(i))) damaged("tensor \"", printable(name), '"');
  }
  return true;
}

}  // namespace frit
