#include "frit/core/io/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "frit/core/io/byte_order.h"
#include "frit/core/io/file.h"

namespace frit {
namespace {

/// The content of a plain file, front to back.
class PlainContent {
 public:
  explicit PlainContent(const Input& input) : input_(input) {}
  virtual ~PlainContent() = default;

  /// Fills `into` from the front; returns how many bytes there were.
  virtual std::size_t read(std::span<std::byte> into) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), input_.size() - position_));
    input_.read(position_, into.first(count));
    position_ += count;
    return count;
  }
  /// The most bytes that the content can have.
  virtual std::uint64_t limit() const { return input_.size(); }
  /// Throws unless everything has been read.
  virtual void finish() {
    if (position_ != input_.size()) input_.bad(input_.size() - position_, " bytes after the end of the data");
  }

 protected:
  const Input& input_;
  std::uint64_t position_ = 0;
};

/// The content of a file that gzip compressed, unfolded as it is asked for.
class GzipContent final : public PlainContent {
 public:
  explicit GzipContent(const Input& input) : PlainContent(input), buffer_(65536) {
    constexpr int gzip_window = 15 + 16;
    if (::inflateInit2(&stream_, gzip_window) != Z_OK) fail(ErrorKind::out_of_memory, input.name(), ": no memory to decompress");
  }
  ~GzipContent() override { ::inflateEnd(&stream_); }

  std::size_t read(std::span<std::byte> into) override {
    std::size_t count = 0;
    while (count < into.size() && !ended_) count += inflate(into.subspan(count));
    return count;
  }

  /// Deflate makes at most 1032 bytes of one.
  std::uint64_t limit() const override { return input_.size() * 1032; }

  void finish() override {
    std::byte more;
    if (read({&more, 1}) != 0) input_.bad("more data than the header declares");
    position_ -= stream_.avail_in;
    PlainContent::finish();
  }

 private:
  std::size_t inflate(std::span<std::byte> into) {
    if (stream_.avail_in == 0) {
      const std::size_t filled = PlainContent::read(buffer_);
      if (filled == 0) input_.bad("gzip data ends early: truncated?");
      stream_.next_in = reinterpret_cast<Bytef*>(buffer_.data());
      stream_.avail_in = static_cast<uInt>(filled);
    }
    const auto room = static_cast<uInt>(std::min<std::size_t>(into.size(), 1u << 30));
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = room;
    const int status = ::inflate(&stream_, Z_NO_FLUSH);
    if (status == Z_MEM_ERROR) fail(ErrorKind::out_of_memory, input_.name(), ": no memory to decompress");
    if (status != Z_OK && status != Z_STREAM_END) {
      input_.bad("gzip data is damaged near byte ", position_ - stream_.avail_in, ": ",
                 stream_.msg != nullptr ? stream_.msg : "bad stream");
    }
    ended_ = status == Z_STREAM_END;
    return room - stream_.avail_out;
  }

  std::vector<std::byte> buffer_;
  ::z_stream stream_{};
  bool ended_ = false;
};

std::unique_ptr<PlainContent> open_content(const Input& input) {
  std::array<std::byte, 2> first{};
  input.read(0, std::span(first).first(static_cast<std::size_t>(std::min<std::uint64_t>(2, input.size()))));
  if (first == std::array{std::byte{0x1f}, std::byte{0x8b}}) return std::make_unique<GzipContent>(input);
  return std::make_unique<PlainContent>(input);
}

std::optional<DType> dtype_of_code(unsigned code) {
  switch (code) {
    case 0x08: return DType::u8;
    case 0x0C: return DType::i32;
    case 0x0D: return DType::f32;
    case 0x0E: return DType::f64;
    default: return std::nullopt;
  }
}

std::uint32_t read_word(const Input& input, PlainContent& content) {
  std::array<std::byte, 4> bytes;
  if (content.read(bytes) != bytes.size()) input.bad("too short for an IDX header");
  swap_bytes(bytes, bytes.size());
  return std::bit_cast<std::uint32_t>(bytes);
}

}  // namespace

Tensor read_idx(const Input& input) {
  const std::unique_ptr<PlainContent> content = open_content(input);
  const std::uint32_t magic = read_word(input, *content);
  const std::uint32_t rank = magic & 0xff;
  if (magic >> 16 != 0) input.bad("not an IDX file: expected two zero bytes at the start");
  const std::optional<DType> dtype = dtype_of_code(magic >> 8);
  if (!dtype) input.bad("IDX element type ", magic >> 8, " not supported; supported: 8 (u8), 12 (i32), 13 (f32), 14 (f64)");
  if (rank > Dims::max_rank) input.bad("rank ", rank, " is over the limit of ", Dims::max_rank);

  Shape shape;
  for (std::uint32_t axis = 0; axis < rank; ++axis) shape.push_back(read_word(input, *content));
  std::uint64_t bytes = std::count(shape.begin(), shape.end(), 0) != 0 ? 0 : size_of(*dtype);
  for (const std::int64_t size : shape) {
    // Checked axis by axis, so that the product cannot overflow.
    if (bytes != 0 && static_cast<std::uint64_t>(size) > content->limit() / bytes) {
      input.bad("header declares ", *dtype, ' ', shape, ", more than a file of ", input.size(), " bytes can hold: truncated?");
    }
    bytes *= static_cast<std::uint64_t>(size);
  }

  const Tensor tensor = Tensor::empty(shape, *dtype);
  const std::span<std::byte> memory(static_cast<std::byte*>(tensor.raw()), static_cast<std::size_t>(bytes));
  const std::size_t found = content->read(memory);
  if (found != bytes) input.bad("expected ", bytes, " bytes of data for ", *dtype, ' ', shape, ", found ", found);
  content->finish();
  swap_bytes(memory, size_of(*dtype));
  return tensor;
}

Tensor read_idx(const std::string& path) { return read_idx(FileInput(path, "an IDX file")); }

}  // namespace frit
