#include "frit/core/io/content.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <vector>

namespace frit {
namespace {

/// Whether gzip's magic number stands there.
bool begins_gzip(const Input& input, std::uint64_t position) {
  std::array<std::byte, 2> first{};
  if (position + first.size() > input.size()) return false;
  input.read(position, first);
  return first == std::array{std::byte{0x1f}, std::byte{0x8b}};
}

/// The content of a plain file, front to back.
class PlainContent : public Content {
 public:
  explicit PlainContent(const Input& input) : input_(input) {}

  std::size_t read(std::span<std::byte> into) override {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), input_.size() - position_));
    input_.read(position_, into.first(count));
    position_ += count;
    return count;
  }
  std::uint64_t limit() const override { return input_.size(); }
  void finish() override {
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

  std::uint64_t limit() const override { return input_.size() * deflate_limit; }

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
    if (status == Z_STREAM_END) {
      ended_ = !begins_gzip(input_, position_ - stream_.avail_in);  // another part may follow, as in bgzip's files
      if (!ended_) ::inflateReset(&stream_);
    }
    return room - stream_.avail_out;
  }

  std::vector<std::byte> buffer_;
  ::z_stream stream_{};
  bool ended_ = false;
};

}  // namespace

bool is_gzip(const Input& input) { return begins_gzip(input, 0); }

std::unique_ptr<Content> open_content(const Input& input) {
  if (is_gzip(input)) return std::make_unique<GzipContent>(input);
  return std::make_unique<PlainContent>(input);
}

}  // namespace frit
