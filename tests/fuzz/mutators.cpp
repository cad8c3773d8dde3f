#include "fuzz/mutators.h"

#include <zlib.h>

#include <algorithm>
#include <string_view>

#include "frit/core/io/byte_order.h"

namespace frit::fuzzing {
namespace {

std::string mutated(const std::string& bytes, std::size_t most, MutateBytes mutate) {
  std::string room = bytes;
  room.resize(std::max(most, bytes.size()));
  room.resize(mutate(reinterpret_cast<std::uint8_t*>(room.data()), bytes.size(), room.size()));
  return room;
}

std::string number_bytes(std::uint64_t number, std::size_t count, bool big) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(number >> 8 * (big ? count - 1 - i : i));
  return bytes;
}

std::uint64_t big_endian(std::string bytes) {
  std::reverse(bytes.begin(), bytes.end());
  return little_endian(bytes);
}

std::uint64_t crc32_of(std::string_view bytes) {
  return ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
}

/// Puts the right checksum after every chunk.
void mend_png(std::string& bytes) {
  for (std::size_t at = 8; at + 12 <= bytes.size();) {
    const std::uint64_t length = big_endian(bytes.substr(at, 4));
    if (length > bytes.size() - at - 12) return;
    bytes.replace(at + 8 + length, 4, number_bytes(crc32_of(std::string_view(bytes).substr(at + 4, 4 + length)), 4, true));
    at += 12 + length;
  }
}

/// Puts the right checksum into the headers of every stored entry.
void mend_zip(std::string& bytes) {
  constexpr std::string_view local("PK\3\4"), central("PK\1\2");
  for (std::size_t at = 0; (at = bytes.find(central, at)) != std::string::npos && at + 46 <= bytes.size(); at += central.size()) {
    const auto field = [&](std::size_t place, std::size_t count) { return little_endian(std::string_view(bytes).substr(place, count)); };
    const std::uint64_t size = field(at + 24, 4), entry = field(at + 42, 4);
    if (entry + 30 > bytes.size() || bytes.compare(entry, local.size(), local) != 0 || field(entry + 8, 2) != 0) continue;
    const std::uint64_t data = entry + 30 + field(entry + 26, 2) + field(entry + 28, 2);
    if (data + size > bytes.size()) continue;
    const std::string checksum = number_bytes(crc32_of(std::string_view(bytes).substr(data, size)), 4, false);
    bytes.replace(entry + 14, 4, checksum);
    bytes.replace(at + 16, 4, checksum);
  }
}

constexpr int gzip_window = 15 + 16;

/// Empty if the bytes are not all of a small gzip file.
std::string unfolded(const std::string& bytes) {
  std::string result(65536, '\0');
  ::z_stream stream{};
  if (::inflateInit2(&stream, gzip_window) != Z_OK) return {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  const int status = ::inflate(&stream, Z_FINISH);
  result.resize(status == Z_STREAM_END ? stream.total_out : 0);
  ::inflateEnd(&stream);
  return result;
}

std::string folded(const std::string& bytes) {
  ::z_stream stream{};
  if (::deflateInit2(&stream, 1, Z_DEFLATED, gzip_window, 8, Z_DEFAULT_STRATEGY) != Z_OK) return {};
  std::string result(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  ::deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  ::deflateEnd(&stream);
  return result;
}

}  // namespace

std::string mutate_png(const std::string& bytes, std::size_t most, unsigned seed, MutateBytes mutate) {
  std::string result = mutated(bytes, most, mutate);
  if (seed % 8 != 0) mend_png(result);
  return result;
}

std::string mutate_zip(const std::string& bytes, std::size_t most, unsigned seed, MutateBytes mutate) {
  std::string result = mutated(bytes, most, mutate);
  if (seed % 8 != 0) mend_zip(result);
  return result;
}

std::string mutate_gzip(const std::string& bytes, std::size_t most, unsigned seed, MutateBytes mutate) {
  const std::string content = seed % 4 == 0 ? "" : unfolded(bytes);
  return content.empty() ? mutated(bytes, most, mutate) : folded(mutated(content, 2 * most, mutate));
}

}  // namespace frit::fuzzing
