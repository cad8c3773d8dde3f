#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "frit/core/io/byte_order.h"
#include "frit/core/io/file.h"
#include "frit/core/io/json.h"
#include "frit/core/io/safetensors.h"
#include "frit/core/io/safetensors_format.h"
#include "frit/core/io/safetensors_text.h"
#include "frit/core/text.h"

namespace frit {
namespace {

namespace format = safetensors_format;
using nlohmann::json;

std::string in_quotes(std::string_view text) { return '"' + printable(text) + '"'; }

/// What a file that is no safetensors file seems to be, from its first bytes; to follow a message.
std::string_view other_format(std::string_view first) {
  if (first.starts_with("version ")) return ": this is a Git LFS pointer, fetch the real file";
  if (first.starts_with("PK") || first.starts_with("\x80")) return ": looks like a PyTorch pickle or zip, convert it to safetensors";
  return "";
}

}  // namespace

/// Takes the events of the JSON parser. The first fault is kept while the rest of the text is only followed for its depth.
class SafetensorsHeaderParser final : public nlohmann::json_sax<json> {
 public:
  SafetensorsHeaderParser(const Input& input, SafetensorsHeader& header) : input_(input), header_(header) {}

  void parse() {
    const std::uint64_t length = read_length();
    header_.file_ = input_.name();
    header_.data_begin_ = format::length_bytes + length;
    // What the shortest entry takes: pages that stay untouched cost nothing, a growing copy would.
    header_.records_.reserve(static_cast<std::size_t>(length / 50));
    header_.names_.reserve(static_cast<std::size_t>(length));
    format::HeaderText text(input_, format::length_bytes, header_.data_begin_);
    text_ = &text;
    while (!text.at_end() && std::strchr(" \t\r\n", text.front()) != nullptr) text.pop();
    if (text.at_end() || text.front() != '{') input_.bad("invalid header: expected a JSON object", other_format(first_bytes()));
    json::sax_parse(format::HeaderIterator(&text), format::HeaderIterator(nullptr), this);
    if (!fault_.empty()) input_.bad(fault_);
    sort_by_name();
    check_data_is_covered();
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return unexpected(value == 0 ? "-0" : std::to_string(value)); }  // negative
  bool number_unsigned(number_unsigned_t value) override {
    if (!fault_.empty()) return true;
    if (place_ == Place::shape) return add_size(value);
    if (place_ != Place::offsets) return unexpected(std::to_string(value));
    if (offset_count_ < 2) offsets_[offset_count_] = value;
    ++offset_count_;
    return true;
  }
  bool number_float(number_float_t, const string_t& text) override { return too_large_or_no_integer(text); }
  bool binary(binary_t&) override { return unexpected("bytes"); }

  bool string(string_t& text) override {
    if (!fault_.empty()) return true;
    if (place_ == Place::metadata) return add_metadata(text);
    if (place_ != Place::tensor || field_ != Field::dtype) return unexpected(in_quotes(text));
    for (const DType dtype : all_dtypes) {
      if (format::dtype_text(dtype) == text) return set_dtype(dtype);
    }
    return text == "BOOL" ? set_dtype(DType::u8) : unsupported_dtype(text);
  }

  bool start_object(std::size_t) override {
    enter();
    if (!fault_.empty()) return true;
    if (place_ == Place::outside) {
      place_ = Place::tensors;
    } else if (place_ == Place::tensors) {
      place_ = name_ == format::metadata_key ? Place::metadata : Place::tensor;
      seen_ = 0;
      shape_ = Shape();
      offset_count_ = 0;
    } else {
      return unexpected("an object");
    }
    return true;
  }
  bool key(string_t& text) override {
    if (!fault_.empty()) return true;
    if (place_ == Place::metadata) {
      metadata_name_ = std::move(text);
    } else if (place_ == Place::tensor) {
      const auto* const known = std::find(std::begin(field_names), std::end(field_names), text);
      if (known == std::end(field_names)) return fault(subject(), "unknown key ", in_quotes(text));
      field_ = static_cast<Field>(known - std::begin(field_names));
      const unsigned bit = 1u << static_cast<unsigned>(field_);
      if ((seen_ & bit) != 0) return fault(subject(), "duplicate key ", in_quotes(text));
      seen_ |= bit;
    } else {
      name_ = std::move(text);
      if (name_ == format::metadata_key && std::exchange(metadata_seen_, true)) return fault("duplicate key ", in_quotes(name_));
    }
    return true;
  }
  bool end_object() override {
    --depth_;
    if (!fault_.empty()) return true;
    const bool ends_tensor = place_ == Place::tensor;
    place_ = place_ == Place::tensors ? Place::outside : Place::tensors;
    return !ends_tensor || add_tensor();
  }

  bool start_array(std::size_t) override {
    enter();
    if (!fault_.empty()) return true;
    if (place_ != Place::tensor || field_ == Field::dtype) return unexpected("an array");
    place_ = field_ == Field::shape ? Place::shape : Place::offsets;
    return true;
  }
  bool end_array() override {
    --depth_;
    if (fault_.empty()) place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t, const std::string& token, const json::exception& error) override {
    if (!fault_.empty()) return false;
    if (error.id == 406) {  // an integer beyond the range of double
      too_large_or_no_integer(token);
      return false;
    }
    fault_ = concat("header is not valid UTF-8/JSON at byte ", text_->position() - 1, ": ", json_fault(error));
    return false;
  }

 private:
  enum class Place { outside, tensors, metadata, tensor, shape, offsets };
  enum class Field { dtype, shape, offsets };
  static constexpr std::string_view field_names[] = {"dtype", "shape", "data_offsets"};

  std::string first_bytes() const {
    std::string bytes(format::length_bytes, '\0');
    input_.read(0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

  std::uint64_t read_length() const {
    if (input_.size() < format::length_bytes) input_.bad("too short for a safetensors header: ", input_.size(), " bytes");
    const std::string first = first_bytes();
    const std::uint64_t length = little_endian(first);
    if (length > format::header_limit) {
      input_.bad("header too large: claims ", length, " bytes, limit 100,000,000", other_format(first));
    }
    if (length > input_.size() - format::length_bytes) {
      const std::string_view hint = other_format(first);
      input_.bad("header claims ", length, " bytes, file has ", input_.size() - format::length_bytes, hint.empty() ? ": truncated?" : hint);
    }
    return length;
  }

  template <class... Parts>
  bool fault(const Parts&... parts) {
    if (fault_.empty()) fault_ = concat(parts..., " (byte ", text_->position() - 1, ")");
    return true;
  }

  void enter() {
    if (++depth_ > json_depth_limit) input_.bad("nested too deeply at byte ", text_->position() - 1, " (limit ", json_depth_limit, ")");
  }

  std::string subject() const { return "tensor " + in_quotes(name_) + ": "; }

  bool unexpected(std::string_view got) {
    const bool in_metadata = place_ == Place::metadata || (place_ == Place::tensors && name_ == format::metadata_key);
    if (in_metadata) return fault("metadata must map strings to strings, got ", got);
    switch (place_) {
      case Place::shape: return fault(subject(), "dimension must be a non-negative integer, got ", got);
      case Place::offsets: return fault(subject(), "data_offsets must be two non-negative integers, got ", got);
      case Place::tensor:
        return fault(subject(), "key \"", field_names[static_cast<std::size_t>(field_)], "\": expected ",
                     field_ == Field::dtype ? "a string" : "an array of integers", ", got ", got);
      default: return fault(subject(), "expected an object, got ", got);
    }
  }

  /// A number that the JSON parser could not keep as an integer.
  bool too_large_or_no_integer(const std::string& text) {
    const bool in_array = place_ == Place::shape || place_ == Place::offsets;
    if (!in_array || text.find_first_not_of("0123456789") != std::string::npos) return unexpected(printable(text));
    return fault(subject(), place_ == Place::shape ? "dimension" : "data_offsets", " out of range, got ", printable(text));
  }

  bool add_size(std::uint64_t size) {
    if (size > std::numeric_limits<std::int64_t>::max()) return fault(subject(), "dimension out of range, got ", size);
    if (shape_.rank() == Dims::max_rank) return fault(subject(), "rank over the limit of ", Dims::max_rank);
    shape_.push_back(static_cast<std::int64_t>(size));
    return true;
  }

  bool add_metadata(std::string& value) {
    if (header_.metadata_.size() == format::metadata_limit) return fault("more than ", format::metadata_limit, " metadata entries");
    const auto [place, fresh] = header_.metadata_.try_emplace(metadata_name_, std::move(value));
    return fresh || fault("metadata: duplicate key ", in_quotes(metadata_name_));
  }

  bool set_dtype(DType dtype) {
    dtype_ = dtype;
    return true;
  }

  bool unsupported_dtype(std::string_view text) {
    std::string supported;
    for (const DType dtype : all_dtypes) supported += format::dtype_text(dtype) + ", ";
    return fault(subject(), "dtype ", in_quotes(text), " not supported; supported: ", supported, "BOOL");
  }

  bool add_tensor() {
    for (std::size_t i = 0; i < std::size(field_names); ++i) {
      if ((seen_ & (1u << i)) == 0) return fault(subject(), "key \"", field_names[i], "\" is missing");
    }
    if (offset_count_ != 2) return fault(subject(), "data_offsets must be two non-negative integers, got ", offset_count_, " of them");
    const auto [begin, end] = offsets_;
    const auto range = [&, first = begin, last = end] { return concat("data_offsets [", first, ", ", last, "]"); };
    const std::uint64_t available = input_.size() - header_.data_begin_;
    if (begin > end) return fault(subject(), range(), " are reversed");
    if (end > available) return fault(subject(), range(), " end beyond the ", available, " bytes of data");
    std::uint64_t bytes = size_of(dtype_);
    for (const std::int64_t size : shape_) {
      if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
        return fault(subject(), "shape ", shape_, " times dtype ", format::dtype_text(dtype_), " overflows 64 bits");
      }
    }
    if (end - begin != bytes) {
      return fault(subject(), "expected ", bytes, " bytes for ", format::dtype_text(dtype_), ' ', shape_, ", got ", range(), " of ",
                   end - begin);
    }
    header_.records_.push_back({.position = begin,
                                .name_begin = static_cast<std::uint32_t>(header_.names_.size()),
                                .name_length = static_cast<std::uint32_t>(name_.size()),
                                .shape_begin = static_cast<std::uint32_t>(header_.sizes_.size()),
                                .rank = static_cast<std::uint8_t>(shape_.rank()),
                                .dtype = dtype_});
    header_.names_ += name_;
    header_.sizes_.insert(header_.sizes_.end(), shape_.begin(), shape_.end());
    return true;
  }

  /// Leaves the records in the order of their data, with the names' order next to them.
  void sort_by_name() {
    using Record = SafetensorsHeader::Record;
    std::vector<Record>& records = header_.records_;
    const auto by_data = [&](const Record& a, const Record& b) {
      return a.position != b.position ? a.position < b.position : header_.bytes_of(a) < header_.bytes_of(b);
    };
    if (!std::is_sorted(records.begin(), records.end(), by_data)) std::sort(records.begin(), records.end(), by_data);
    std::vector<std::uint32_t>& order = header_.by_name_;
    order.resize(records.size());
    std::iota(order.begin(), order.end(), 0u);
    const auto name = [&](std::uint32_t index) { return header_.name_of(records[index]); };
    const auto by_name = [&](std::uint32_t a, std::uint32_t b) { return name(a) < name(b); };
    if (!std::is_sorted(order.begin(), order.end(), by_name)) std::sort(order.begin(), order.end(), by_name);
    const auto twin = std::adjacent_find(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return name(a) == name(b); });
    if (twin != order.end()) input_.bad("duplicate key ", in_quotes(name(*twin)));
  }

  /// Every byte of the data belongs to exactly one tensor: nothing can hide in the file, and no tensor shows another's data.
  void check_data_is_covered() const {
    std::uint64_t covered = 0;
    const SafetensorsHeader::Record* previous = nullptr;
    const auto check_no_hole = [&](std::uint64_t next) {
      if (next != covered) input_.bad("unindexed bytes at ", header_.data_begin_ + covered, "..", header_.data_begin_ + next);
    };
    for (const SafetensorsHeader::Record& record : header_.records_) {
      if (record.position < covered) {
        input_.bad("tensors ", in_quotes(header_.name_of(*previous)), " and ", in_quotes(header_.name_of(record)), " overlap");
      }
      check_no_hole(record.position);
      covered += header_.bytes_of(record);
      previous = &record;
    }
    check_no_hole(input_.size() - header_.data_begin_);
  }

  const Input& input_;
  SafetensorsHeader& header_;
  format::HeaderText* text_ = nullptr;
  std::string fault_;
  int depth_ = 0;
  Place place_ = Place::outside;
  bool metadata_seen_ = false;
  std::string metadata_name_;

  // The tensor being read.
  std::string name_;
  Field field_ = Field::dtype;
  unsigned seen_ = 0;  ///< bit i: field i
  DType dtype_ = DType::f32;
  Shape shape_;
  std::array<std::uint64_t, 2> offsets_{};
  std::size_t offset_count_ = 0;
};

Shape SafetensorsHeader::shape_of(const Record& record) const { return Shape(std::span(sizes_).subspan(record.shape_begin, record.rank)); }

std::uint64_t SafetensorsHeader::bytes_of(const Record& record) const {
  std::uint64_t bytes = size_of(record.dtype);
  for (const std::int64_t size : shape_of(record)) bytes *= static_cast<std::uint64_t>(size);  // the parser checked the product
  return bytes;
}

SafetensorsHeader::Entry SafetensorsHeader::entry(std::size_t index) const {
  FRIT_CHECK(index < size());
  const Record& record = records_[by_name_[index]];
  return {name_of(record), record.dtype, shape_of(record), data_begin_ + record.position};
}

std::optional<std::size_t> SafetensorsHeader::find(std::string_view name) const {
  const auto place = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [this](std::uint32_t index, std::string_view wanted) { return name_of(records_[index]) < wanted; });
  if (place == by_name_.end() || name_of(records_[*place]) != name) return std::nullopt;
  return static_cast<std::size_t>(place - by_name_.begin());
}

SafetensorsHeader read_safetensors_header(const Input& input) {
  SafetensorsHeader header;
  SafetensorsHeaderParser(input, header).parse();
  return header;
}

SafetensorsHeader read_safetensors_header(const std::string& path) {
  return read_safetensors_header(FileInput(path, "a .safetensors file"));
}

}  // namespace frit
