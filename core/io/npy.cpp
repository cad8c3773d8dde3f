#include "frit/core/io/npy.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "frit/core/io/byte_order.h"
#include "frit/core/io/file.h"
#include "frit/core/text.h"

namespace frit {
namespace {

constexpr std::string_view magic("\x93NUMPY", 6);
constexpr std::uint64_t header_limit = 10'000;  // NumPy's own

struct NumpyType {
  std::string_view code;  ///< kind and bytes, without the byte order
  DType dtype;
};
constexpr NumpyType numpy_types[] = {{"f8", DType::f64}, {"f4", DType::f32}, {"f2", DType::f16}, {"i8", DType::i64},
                                     {"i4", DType::i32}, {"u1", DType::u8},  {"b1", DType::u8}};

struct Header {
  DType dtype = DType::f32;
  bool swapped = false;
  bool fortran_order = false;
  Shape shape;
};

/// The dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } in NumPy's spelling and what other writers make of it:
/// either quote, any order of the keys, spaces anywhere, the last comma left out, Python 2's 3L.
class HeaderParser {
 public:
  HeaderParser(const Input& input, std::string_view text, std::uint64_t begin) : input_(input), text_(text), begin_(begin) {}

  Header parse() {
    expect('{');
    while (!accept('}')) {
      read_entry();
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_blanks();
    if (at_ != text_.size()) bad("unexpected text after the header's closing brace");
    for (std::size_t i = 0; i < std::size(keys); ++i) {
      if (!seen_[i]) input_.bad("header key '", keys[i], "' is missing");
    }
    return header_;
  }

 private:
  static constexpr std::string_view keys[] = {"descr", "fortran_order", "shape"};

  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    input_.bad("header: ", parts..., " (byte ", begin_ + at_, ")");
  }

  void skip_blanks() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool accept(char wanted) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) bad("expected '", wanted, "', got ", next());
  }
  bool accept_word(std::string_view word) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  /// What stands there, for a message.
  std::string next() const { return at_ == text_.size() ? "the header's end" : '"' + printable(text_.substr(at_, 20)) + '"'; }

  std::string_view string() {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') bad("expected a string, got ", next());
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) bad("string without an end");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  void read_entry() {
    const std::string_view key = string();
    const auto known = static_cast<std::size_t>(std::find(std::begin(keys), std::end(keys), key) - std::begin(keys));
    if (known == std::size(keys)) bad("unknown key \"", printable(key), '"');
    if (std::exchange(seen_[known], true)) bad("key '", key, "' stands twice");
    expect(':');
    if (known == 0)
      read_dtype();
    else if (known == 1)
      read_order();
    else
      read_shape();
  }

  void read_dtype() {
    skip_blanks();
    if (accept('[')) bad("structured dtypes are not supported");
    const std::string_view code = string();
    const std::string_view kind = code.substr(std::min<std::size_t>(code.size(), 1));
    if (kind.starts_with('O')) bad("dtype '", printable(code), "': Python objects are not supported (would need unpickling)");
    for (const NumpyType& type : numpy_types) {
      if (kind != type.code) continue;
      if (code.front() != '<' && code.front() != '>' && (code.front() != '|' || size_of(type.dtype) != 1)) break;
      header_.dtype = type.dtype;
      header_.swapped = code.front() == '>';
      return;
    }
    bad("dtype '", printable(code), "' not supported; supported: <f8 <f4 <f2 <i8 <i4 |u1 |b1");
  }

  void read_order() {
    if (accept_word("True"))
      header_.fortran_order = true;
    else if (!accept_word("False"))
      bad("expected True or False, got ", next());
  }

  void read_shape() {
    expect('(');
    bool comma = false;
    while (!accept(')')) {
      if (header_.shape.rank() > 0 && !comma) bad("expected ',' or ')' in the shape, got ", next());
      read_size();
      comma = accept(',');
    }
    if (header_.shape.rank() == 1 && !comma) bad("shape must be a tuple: expected (", header_.shape[0], ",)");
  }

  void read_size() {
    skip_blanks();
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
    if (error == std::errc::result_out_of_range) bad("dimension out of range");
    if (error != std::errc() || size < 0) bad("dimension must be a non-negative integer, got ", next());
    if (header_.shape.rank() == Dims::max_rank) bad("rank over the limit of ", Dims::max_rank);
    header_.shape.push_back(size);
    at_ = static_cast<std::size_t>(end - text_.data());
    accept_word("L");
  }

  const Input& input_;
  std::string_view text_;
  std::uint64_t begin_;
  std::size_t at_ = 0;
  bool seen_[3] = {};
  Header header_;
};

/// What a file without the magic number seems to be; to follow a message.
std::string_view seems_to_be(std::string_view first) {
  if (first.starts_with("PK")) return ": looks like a zip (npz): extract the .npy";
  if (first.starts_with("\x89PNG")) return ": looks like a PNG image";
  return "";
}

std::string read_bytes(const Input& input, std::uint64_t offset, std::uint64_t count) {
  std::string bytes(static_cast<std::size_t>(std::min(count, input.size() - std::min(offset, input.size()))), '\0');
  input.read(offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

/// Magic, version and the header's length: gives the offsets of the header's text and of the data.
std::pair<std::uint64_t, std::uint64_t> read_preamble(const Input& input) {
  const std::string first = read_bytes(input, 0, 12);
  if (!first.starts_with(magic)) {
    input.bad("bad magic: expected \\x93NUMPY, got \"", printable(std::string_view(first).substr(0, magic.size())), '"',
              seems_to_be(first));
  }
  if (first.size() < 8) input.bad("too short for an npy header: ", first.size(), " bytes");
  const int major = static_cast<unsigned char>(first[6]), minor = static_cast<unsigned char>(first[7]);
  if (major < 1 || major > 3 || minor != 0) input.bad("version ", major, '.', minor, " not supported; supported: 1.0, 2.0, 3.0");
  const std::size_t begin = major == 1 ? 10 : 12;
  if (first.size() < begin) input.bad("too short for an npy header: ", first.size(), " bytes");
  const std::uint64_t length = little_endian(std::string_view(first).substr(8, begin - 8));
  if (length > header_limit) input.bad("header of ", length, " bytes, limit 10,000");
  if (length > input.size() - begin) input.bad("header claims ", length, " bytes, file has ", input.size() - begin, ": truncated?");
  return {begin, begin + length};
}

/// The bytes that the shape needs, or nothing if they are more than 64 bits can count.
std::optional<std::uint64_t> bytes_of(const Header& header) {
  std::uint64_t bytes = size_of(header.dtype);
  for (const std::int64_t size : header.shape) {
    if (size == 0) return 0;
  }
  for (const std::int64_t size : header.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) return std::nullopt;
  }
  return bytes;
}

struct StoredHeader : Header {
  std::uint64_t data_begin;
};

/// The header, which must fit the number of bytes after it.
StoredHeader read_header(const Input& input, bool is_file) {
  const auto [header_begin, data_begin] = read_preamble(input);
  const std::string text = read_bytes(input, header_begin, data_begin - header_begin);
  const Header header = HeaderParser(input, text, header_begin).parse();
  const std::optional<std::uint64_t> bytes = bytes_of(header);
  if (!bytes) input.bad("shape ", header.shape, " times dtype ", header.dtype, " overflows 64 bits");
  const std::uint64_t found = input.size() - data_begin;
  if (is_file && *bytes != found) input.bad("expected ", *bytes, " bytes of data for ", header.dtype, ' ', header.shape, ", found ", found);
  return {header, data_begin};
}

Dims reversed(const Dims& dims) {
  Dims result = dims;
  std::reverse(result.begin(), result.end());
  return result;
}

std::string header_text(const Tensor& tensor) {
  require(tensor.defined(), "npy: the tensor is undefined");
  require(tensor.dtype() != DType::bf16, "npy: NumPy has no bf16; convert the tensor to f32");
  const auto* const type = std::find_if(std::begin(numpy_types), std::end(numpy_types),
                                        [&](const NumpyType& candidate) { return candidate.dtype == tensor.dtype(); });
  std::string sizes;
  for (const std::int64_t size : tensor.shape()) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
  if (tensor.rank() == 1) sizes += ',';
  std::string text(magic);
  text += concat(std::string_view("\x01\x00\x00\x00", 4), "{'descr': '", tensor.dtype() == DType::u8 ? '|' : '<', type->code,
                 "', 'fortran_order': False, 'shape': (", sizes, "), }");
  text.resize((text.size() + 64) / 64 * 64, ' ');  // NumPy aligns the data to 64 bytes
  text.back() = '\n';
  const std::size_t length = text.size() - 10;
  text[8] = static_cast<char>(length);
  text[9] = static_cast<char>(length >> 8);
  return text;
}

/// The header and the data of the tensor's array file.
struct ArrayFile {
  explicit ArrayFile(const Tensor& tensor) : header(header_text(tensor)), dense(tensor.to(Device::cpu()).contiguous()) {}
  std::span<const std::byte> data() const { return {static_cast<const std::byte*>(dense.raw()), static_cast<std::size_t>(dense.bytes())}; }

  std::string header;
  Tensor dense;
};

/// The array at the front of an input; where that is a file, all of it.
Tensor read_array(const Input& input, bool is_file, const ShapeCheck& check) {
  const StoredHeader header = read_header(input, is_file);
  if (check) check(header.shape);
  const Tensor tensor = Tensor::empty(header.fortran_order ? reversed(header.shape) : header.shape, header.dtype);
  const std::span<std::byte> memory(static_cast<std::byte*>(tensor.raw()), static_cast<std::size_t>(tensor.bytes()));
  input.read(header.data_begin, memory);
  if (header.swapped) swap_bytes(memory, size_of(header.dtype));
  if (!header.fortran_order) return tensor;
  Dims axes;
  for (int axis = tensor.rank(); axis-- > 0;) axes.push_back(axis);
  return tensor.permute(axes);
}

/// An array of a stream. What was read of the header can be read again.
class StreamedArray final : public Input {
 public:
  StreamedArray(const NpyStream::Read& stream, std::string name)
      : Input(std::move(name), std::numeric_limits<std::uint64_t>::max()), stream_(stream) {}

  bool at_end() const {
    if (head_.empty()) extend(1);
    return head_.empty();
  }

  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    if (offset + into.size() <= kept) extend(static_cast<std::size_t>(offset) + into.size());
    const std::size_t known = std::min(into.size(), head_.size() - std::min<std::size_t>(head_.size(), offset));
    std::copy_n(head_.begin() + static_cast<std::ptrdiff_t>(offset), known, into.begin());
    const std::size_t rest = into.size() - known;
    if (rest > 0 && (offset + into.size() <= kept || stream_(into.subspan(known)) < rest)) bad("the stream ends inside of an array");
  }

 private:
  static constexpr std::size_t kept = header_limit + 12;

  void extend(std::size_t count) const {
    if (count <= head_.size()) return;
    const std::size_t before = head_.size();
    head_.resize(count);
    head_.resize(before + stream_(std::span(head_).subspan(before)));
  }

  const NpyStream::Read& stream_;
  mutable std::vector<std::byte> head_;
};

}  // namespace

Tensor read_npy(const Input& input, const ShapeCheck& check) { return read_array(input, /*is_file=*/true, check); }

std::optional<Tensor> NpyStream::next(const ShapeCheck& check) {
  const StreamedArray array(read_, concat(name_, ": array ", ++count_));
  if (array.at_end()) return std::nullopt;
  return read_array(array, /*is_file=*/false, check);
}

std::optional<StoredArray> find_npy_array(const Input& input) {
  const StoredHeader header = read_header(input, /*is_file=*/true);
  if (header.fortran_order) return std::nullopt;
  return StoredArray{header.dtype, header.shape, header.data_begin, header.swapped};
}

Tensor read_npy(const std::string& path, const ShapeCheck& check) { return read_npy(FileInput(path, "a .npy file"), check); }

Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name) { return read_npy(MemoryInput(bytes, name)); }

void write_npy(const std::string& path, const Tensor& tensor) {
  const ArrayFile array(tensor);
  AtomicFile file(path, array.header.size() + array.data().size());
  file.write(array.header);
  file.write(array.data());
  file.commit();
}

std::vector<std::byte> serialize_npy(const Tensor& tensor) {
  const ArrayFile array(tensor);
  const auto header = std::as_bytes(std::span(array.header));
  std::vector<std::byte> bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), array.data().begin(), array.data().end());
  return bytes;
}

}  // namespace frit
