#include "frit/core/io/png.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/io/file.h"

namespace frit {
namespace {

using testing::expect_error;
using testing::TemporaryFolder;

std::string big_bytes(std::uint32_t number) {
  std::string bytes = testing::little_bytes(number, 4);
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

std::string chunk(const std::string& name, const std::string& data) {
  const std::string checked = name + data;
  return big_bytes(static_cast<std::uint32_t>(data.size())) + checked +
         big_bytes(
             static_cast<std::uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()))));
}

/// Rows begin with their filter, 0.
std::string png(std::uint32_t width, std::uint32_t height, char bits, char colour, const std::string& rows,
                const std::string& before = "") {
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", big_bytes(width) + big_bytes(height) + bits + colour + std::string(3, '\0')) + before +
         chunk("IDAT", testing::gzipped(rows, 15)) + chunk("IEND", "");
}

Tensor parse(const std::string& bytes) { return read_png(MemoryInput(std::as_bytes(std::span(bytes)), "image.png")); }

class Png : public ::testing::Test {
 protected:
  void SetUp() override { FRIT_SKIP_WITHOUT("libpng"); }
};

TEST_F(Png, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  const std::string path = folder / "image.png";
  const Tensor colours = Tensor::from<float>({0, 1, 0.2F, 0.4F, 0.6F, 0.8F, 1, 0, 0, 0, 1, 1}, {3, 2, 2});
  write_png(path, colours);
  EXPECT_EQ(read_png(path).to_vector<float>(), colours.to_vector<float>());
  EXPECT_EQ(read_png(path).shape(), (Shape{3, 2, 2}));
  const PngHeader header = read_png_header(path);
  EXPECT_EQ(header.channels, 3);
  write_png(path, Tensor::from<double>({-1, NAN, 0.5, 2, 0, 1}, {1, 2, 3}));
  EXPECT_EQ(read_png(path).to_vector<float>(), (std::vector<float>{0, 0, 128 / 255.0F, 1, 0, 1}));
  EXPECT_EQ(read_png_header(path).width, 3);
  expect_error(ErrorKind::argument, "needs a floating tensor (1 or 3, H, W)", [&] { write_png(path, Tensor::zeros({2, 3, 3})); });
  expect_error(ErrorKind::argument, "needs a floating tensor", [&] { write_png(path, Tensor::zeros({1, 3, 3}, DType::u8)); });
  EXPECT_EQ(folder.names().size(), 1u);
}

TEST_F(Png, ReadsOtherDepthsPalettesAndTransparency) {
  EXPECT_EQ(parse(png(2, 1, 16, 0, std::string("\0\x80\0\xff\xff", 5))).to_vector<float>(), (std::vector<float>{32768 / 65535.0F, 1}));
  EXPECT_EQ(parse(png(3, 1, 1, 0, std::string("\0\xa0", 2))).to_vector<float>(), (std::vector<float>{1, 0, 1}));
  EXPECT_EQ(parse(png(1, 1, 8, 4, std::string("\0\x33\x80", 3))).to_vector<float>(), (std::vector<float>{0.2F}));
  const Tensor colour = parse(png(2, 1, 8, 3, std::string("\0\1\0", 3), chunk("PLTE", std::string("\0\x33\xff\xff\0\0", 6))));
  EXPECT_EQ(colour.shape(), (Shape{3, 1, 2}));
  EXPECT_EQ(colour.to_vector<float>(), (std::vector<float>{1, 0, 0, 0.2F, 0, 1}));
}

TEST_F(Png, RefusesDamage) {
  const std::string good = png(4, 4, 8, 0, std::string(20, '\0'));
  EXPECT_EQ(parse(good).elements(), 16);
  for (std::size_t length = 0; length < good.size() - 12; ++length) {
    expect_error(ErrorKind::format, "image.png: ", [&] { parse(good.substr(0, length)); });
  }
  std::string damaged = good;
  damaged[45] = static_cast<char>(damaged[45] ^ 1);
  expect_error(ErrorKind::format, "image.png: PNG image: ", [&] { parse(damaged); });
  expect_error(ErrorKind::format, "not a PNG image", [&] { parse("GIF89a"); });
  expect_error(ErrorKind::format, "header declares 60000x60000 pixels, more than a file of", [&] { parse(png(60000, 60000, 8, 2, "")); });
}

}  // namespace
}  // namespace frit
