#include "frit/core/io/idx.h"

#include <gtest/gtest.h>

#include "core/io/image_files.h"
#include "frit/core/io/file.h"
#include "frit/core/memory/allocator.h"

namespace frit {
namespace {

Tensor parse_idx(const std::string& text) { return read_idx(MemoryInput(bytes_of(text), "memory")); }

void expect_bad(const std::string& fragment, const std::string& text) {
  expect_error(ErrorKind::format, fragment, [&] { parse_idx(text); });
}

std::string matrix(std::string_view data = "123456") { return std::string("\0\0\x08\2\0\0\0\2\0\0\0\3", 12) + std::string(data); }

TEST(Idx, ReadsPlainAndCompressedFiles) {
  for (const std::string& text : {matrix(), gzipped(matrix())}) {
    const Tensor tensor = parse_idx(text);
    EXPECT_EQ(tensor.dtype(), DType::u8);
    EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
    EXPECT_EQ(tensor.to_vector<double>(), (std::vector<double>{'1', '2', '3', '4', '5', '6'}));
  }
}

TEST(Idx, ReadsBigEndianNumbers) {
  EXPECT_EQ(parse_idx(std::string("\0\0\x0C\1\0\0\0\2\0\0\1\0\xff\xff\xff\xff", 16)).to_vector<double>(), (std::vector<double>{256, -1}));
  EXPECT_EQ(parse_idx(std::string("\0\0\x0D\1\0\0\0\1\x3f\xc0\0\0", 12)).item(), 1.5);
  EXPECT_EQ(parse_idx(std::string("\0\0\x0E\0\xc0\0\0\0\0\0\0\0", 12)).item(), -2);
  EXPECT_EQ(parse_idx(std::string("\0\0\x08\2\0\0\0\0\xff\xff\xff\xff", 12)).shape(), (Shape{0, 4294967295}));
}

TEST(Idx, RefusesDamagedCompression) {
  const std::string good = gzipped(matrix());
  for (std::size_t length = 2; length < good.size(); ++length)
    expect_bad("memory: gzip data ends early: truncated?", good.substr(0, length));
  std::string damaged = good;
  damaged[good.size() - 6] ^= 1;  // the checksum
  expect_bad("gzip data is damaged near byte", damaged);
  damaged = good;
  damaged[good.size() - 1] ^= 1;  // the length
  expect_bad("gzip data is damaged near byte", damaged);
  expect_bad("2 bytes after the end of the data", good + "xx");
  expect_bad("expected 6 bytes of data for u8 2x3, found 5", gzipped(matrix("12345")));
  expect_bad("more data than the header declares", gzipped(matrix("1234567")));
  expect_bad("too short for an IDX header", gzipped(""));
}

TEST(Idx, AGzipBombTakesNoMoreThanItsHeaderDeclares) {
  const std::string bomb = gzipped(matrix(std::string(100'000'000, 'x')));
  Allocator& allocator = allocator_of(Device::cpu());
  allocator.reset_peaks();
  const std::size_t before = allocator.statistics().in_use;
  expect_bad("more data than the header declares", bomb);
  EXPECT_LE(allocator.statistics().peak_in_use, before + 4096);
  // A small file cannot make a large claim either.
  expect_bad("more than a file of", gzipped(std::string("\0\0\x08\1\xff\xff\xff\xff", 8)));
}

}  // namespace
}  // namespace frit
