#pragma once

// Files of formats that frit does not write, made by hand.

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/io/file_testing.h"
#include "frit/core/io/file.h"
#include "frit/core/io/safetensors.h"

namespace frit {

inline std::string little_bytes(std::uint64_t number, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

struct NiftiHeader {
  std::vector<std::int16_t> dim;  ///< x, y, z, ...
  std::int16_t type = 16;         ///< f32
  std::int16_t bits = 32;
  float slope = 0, intercept = 0, offset = 352;
  std::string magic = std::string("n+1\0", 4);
};

/// A NIfTI-1 file in this machine's byte order.
inline std::string nifti_file(const NiftiHeader& h, const std::string& voxels) {
  std::string bytes(352, '\0');
  const auto put = [&](std::size_t at, const auto& value) { std::memcpy(bytes.data() + at, &value, sizeof value); };
  put(0, std::int32_t{348});
  put(40, static_cast<std::int16_t>(h.dim.size()));
  for (std::size_t i = 0; i < h.dim.size() && i < 7; ++i) put(42 + 2 * i, h.dim[i]);
  put(70, h.type);
  put(72, h.bits);
  for (std::size_t i = 0; i < 4; ++i) put(76 + 4 * i, 0.5F * static_cast<float>(i + 1));
  put(108, h.offset);
  put(112, h.slope);
  put(116, h.intercept);
  bytes.replace(344, 4, h.magic);
  return bytes + voxels;
}

inline std::string gzipped(const std::string& text, int window_bits = 15 + 16) {
  ::z_stream stream{};
  ::deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY);
  std::string out(::deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  ::deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

struct ZipEntry {
  std::string name, content;
  bool deflated = false;
  int method = -1;                 ///< -1: as `deflated` says
  std::int64_t claimed_size = -1;  ///< -1: the content's
  std::uint16_t flags = 0;         ///< 1: encrypted
};

inline std::string zip_file(const std::vector<ZipEntry>& entries) {
  std::string file, directory;
  for (const ZipEntry& e : entries) {
    const std::string data = e.deflated ? gzipped(e.content, -15) : e.content;
    const auto checksum = ::crc32(0, reinterpret_cast<const Bytef*>(e.content.data()), static_cast<uInt>(e.content.size()));
    const std::uint64_t size = e.claimed_size < 0 ? e.content.size() : static_cast<std::uint64_t>(e.claimed_size);
    const auto method = static_cast<std::uint64_t>(e.method < 0 ? (e.deflated ? 8 : 0) : e.method);
    const std::string common = little_bytes(20, 2) + little_bytes(e.flags, 2) + little_bytes(method, 2) + little_bytes(0x21u << 16, 4) +
                               little_bytes(checksum, 4) + little_bytes(data.size(), 4) + little_bytes(size, 4) +
                               little_bytes(e.name.size(), 2) + little_bytes(0, 2);
    directory += "PK\x01\x02" + little_bytes(20, 2) + common + std::string(10, '\0') + little_bytes(file.size(), 4) + e.name;
    file += "PK\x03\x04" + common + e.name + data;
  }
  const std::string end = std::string("PK\x05\x06", 4) + std::string(4, '\0') + little_bytes(entries.size(), 2) +
                          little_bytes(entries.size(), 2) + little_bytes(directory.size(), 4) + little_bytes(file.size(), 4) +
                          std::string(2, '\0');
  return file + directory + end;
}

inline std::string png_chunk(const std::string& name, const std::string& data) {
  const auto big_bytes = [](std::uint64_t number) {
    std::string bytes = little_bytes(number, 4);
    std::reverse(bytes.begin(), bytes.end());
    return bytes;
  };
  const std::string checked = name + data;
  const auto checksum = ::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return big_bytes(data.size()) + checked + big_bytes(checksum);
}

/// `data` is what a program for PNG images would have compressed; `before` are chunks.
inline std::string png_file(std::uint32_t width, std::uint32_t height, int bits, int colour, const std::string& data,
                            const std::string& before = "", bool interlaced = false) {
  std::string header;
  for (const std::uint32_t size : {width, height}) {
    for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(size >> shift);
  }
  for (const int byte : {bits, colour, 0, 0, static_cast<int>(interlaced)}) header += static_cast<char>(byte);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + before + png_chunk("IDAT", data) + png_chunk("IEND", "");
}

/// One of golden/jpeg.safetensors: "grey", "colour", "halved", "progressive", "restarts", "cmyk"; and as what Pillow decodes it to, in [0,
/// 1].
inline std::string jpeg_file(const std::string& name) {
  const Tensor bytes = read_safetensors(FRIT_SOURCE_DIR "/tests/golden/jpeg.safetensors").at(name + ".file");
  return {static_cast<const char*>(bytes.raw()), static_cast<std::size_t>(bytes.bytes())};
}
inline Tensor jpeg_pixels(const std::string& name) {
  const Tensor pixels = read_safetensors(FRIT_SOURCE_DIR "/tests/golden/jpeg.safetensors").at(name + ".pixels").to(DType::f32);
  for (float& sample : pixels.span<float>()) sample /= 255;
  return pixels;
}

inline std::string content_of(const std::string& path) { return read_text(path, std::uint64_t{1} << 30); }

}  // namespace frit
