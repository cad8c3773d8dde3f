#include "frit/models/onnx/tensor_data.h"

#include <charconv>
#include <cstring>
#include <filesystem>

#include "frit/core/io/byte_order.h"
#include "frit/core/io/file.h"
#include "frit/core/text.h"
#include "frit/ops/operator/value.h"

namespace frit::onnx {
namespace {

namespace fs = std::filesystem;

struct Element {
  const char* name;
  std::optional<DType> dtype;
};

/// By ONNX's numbers.
constexpr Element elements[] = {
    {"undefined", {}},       {"float", DType::f32},     {"uint8", DType::u8},  {"int8", {}},   {"uint16", {}},
    {"int16", {}},           {"int32", DType::i32},     {"int64", DType::i64}, {"string", {}}, {"bool", DType::u8},
    {"float16", DType::f16}, {"double", DType::f64},    {"uint32", {}},        {"uint64", {}}, {"complex64", {}},
    {"complex128", {}},      {"bfloat16", DType::bf16},
};

template <class... Parts>
[[noreturn]] void bad(const TensorProto& tensor, const Parts&... parts) {
  fail(ErrorKind::format, "tensor \"", printable(tensor.name()), "\": ", parts...);
}

/// The file below the folder that a relative path names.
fs::path inside(const TensorProto& tensor, const std::string& folder, const std::string& location) {
  const fs::path relative(location);
  bool leads_out = location.empty() || location.find('\0') != std::string::npos || relative.is_absolute();
  for (const fs::path& part : relative) leads_out = leads_out || part == "..";
  if (leads_out) bad(tensor, "its data is said to lie in \"", printable(location), "\": expected a path below the model's folder");
  std::error_code error;
  const fs::path root = fs::canonical(folder.empty() ? "." : folder, error);
  const fs::path file = error ? fs::path() : fs::canonical(root / relative, error);
  if (error)
    fail(ErrorKind::file_system, "tensor \"", printable(tensor.name()), "\": ", printable((root / relative).string()), ": ",
         reason(error.value()));
  const fs::path below = file.lexically_relative(root);
  if (below.empty() || *below.begin() == "..") {
    bad(tensor, "its data is said to lie in \"", printable(location), "\", which a link leads out of the model's folder");
  }
  return file;
}

std::uint64_t number(const TensorProto& tensor, const std::string& key, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    bad(tensor, "its data's ", key, " is \"", printable(text), "\", not a number");
  return value;
}

Tensor read_external(const TensorProto& tensor, const TensorType& type, const std::string& folder) {
  if (folder.empty()) bad(tensor, "its data is said to lie in a file of its own: a model in memory has none");
  std::string location;
  std::uint64_t offset = 0;
  const auto bytes = static_cast<std::uint64_t>(type.bytes());
  std::uint64_t length = bytes;
  for (const StringStringEntryProto& entry : tensor.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = number(tensor, "offset", entry.value());
    if (entry.key() == "length") length = number(tensor, "length", entry.value());
  }
  const FileInput file(inside(tensor, folder, location).string(), "external data of an ONNX model");
  if (length != bytes) bad(tensor, "its data is said to have ", length, " bytes, its shape needs ", bytes);
  if (offset > file.size() || file.size() - offset < bytes) {
    bad(tensor, "its data is said to be ", bytes, " bytes from ", offset, " on in ", file.name(), ", which has ", file.size());
  }
  const Tensor result = Tensor::empty(type.shape, type.dtype);
  file.read(offset, std::span(static_cast<std::byte*>(result.raw()), static_cast<std::size_t>(bytes)));
  return result;
}

/// From the repeated field that holds an element type where raw_data does not.
template <class T, class Field>
Tensor read_field(const TensorProto& tensor, const Shape& shape, const Field& field) {
  const std::int64_t count = element_count(shape);
  if (field.size() != count) bad(tensor, "it has ", field.size(), " elements, its shape ", shape, " needs ", count);
  Tensor result = Tensor::empty(shape, dtype_of<T>());
  T* place = result.data<T>();
  for (const auto value : field) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      const auto bits = static_cast<std::uint16_t>(value);
      (place++)->bits = bits;
    } else {
      *place++ = static_cast<T>(value);
    }
  }
  return result;
}

Tensor read_typed(const TensorProto& tensor, const TensorType& type) {
  switch (type.dtype) {
    case DType::f32: return read_field<float>(tensor, type.shape, tensor.float_data());
    case DType::f64: return read_field<double>(tensor, type.shape, tensor.double_data());
    case DType::i64: return read_field<std::int64_t>(tensor, type.shape, tensor.int64_data());
    case DType::i32: return read_field<std::int32_t>(tensor, type.shape, tensor.int32_data());
    case DType::u8: return read_field<std::uint8_t>(tensor, type.shape, tensor.int32_data());
    case DType::f16: return read_field<Half>(tensor, type.shape, tensor.int32_data());
    case DType::bf16: return read_field<BFloat16>(tensor, type.shape, tensor.int32_data());
  }
  fail(ErrorKind::bug, "read_typed: ", type.dtype);
}

}  // namespace

std::optional<DType> dtype_of_element(std::int64_t element_type) {
  const bool known = element_type >= 0 && element_type < static_cast<std::int64_t>(std::size(elements));
  return known ? elements[element_type].dtype : std::nullopt;
}

std::string element_name(std::int64_t element_type) {
  const bool known = element_type >= 0 && element_type < static_cast<std::int64_t>(std::size(elements));
  return known ? elements[element_type].name : concat("element type ", element_type);
}

Tensor read_tensor(const TensorProto& tensor, const std::string& folder) {
  const std::optional<DType> dtype = dtype_of_element(tensor.data_type());
  if (!dtype) bad(tensor, "elements of type ", element_name(tensor.data_type()), " are not supported");
  if (tensor.dims_size() > Dims::max_rank) bad(tensor, "it has rank ", tensor.dims_size(), ", more than ", Dims::max_rank);
  TensorType type{*dtype, {}};
  for (const std::int64_t size : tensor.dims()) type.shape.push_back(size);
  std::int64_t bytes = 0;
  try {
    bytes = type.bytes();
  } catch (const Error& error) {
    bad(tensor, error.what());
  }
  if (tensor.data_location() == TensorProto::EXTERNAL) return read_external(tensor, type, folder);
  if (!tensor.has_raw_data()) return read_typed(tensor, type);
  const std::string& raw = tensor.raw_data();
  if (static_cast<std::int64_t>(raw.size()) != bytes)
    bad(tensor, "it has ", raw.size(), " bytes, its shape ", type.shape, " needs ", bytes);
  const Tensor result = Tensor::empty(type.shape, type.dtype);
  if (bytes > 0) std::memcpy(result.raw(), raw.data(), raw.size());
  return result;
}

}  // namespace frit::onnx
