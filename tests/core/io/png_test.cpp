#include "frit/core/io/png.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/io/file.h"

namespace frit {
namespace {

/// Rows begin with their filter, 0.
std::string png(std::uint32_t width, std::uint32_t height, int bits, int colour, const std::string& rows, const std::string& before = "",
                bool interlaced = false) {
  return png_file(width, height, bits, colour, gzipped(rows, 15), before, interlaced);
}

/// White pixels of one bit: a thousand of them in a byte of the file.
std::string white(std::uint32_t size) {
  std::string row(1 + size / 8, '\xff'), rows;
  row[0] = 0;
  for (std::uint32_t y = 0; y < size; ++y) rows += row;
  return png(size, size, 1, 0, rows);
}

constexpr std::size_t little_memory = std::size_t{sanitized ? 64 : 8} << 20;

Tensor parse_png(const std::string& bytes) { return read_png(MemoryInput(bytes_of(bytes), "image.png")); }

class Png : public testing::Test {
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
  const ImageHeader header = read_image_header(path);
  EXPECT_EQ(header.channels, 3);
  write_png(path, Tensor::from<double>({-1, NAN, 0.5, 2, 0, 1}, {1, 2, 3}));
  EXPECT_EQ(read_png(path).to_vector<float>(), (std::vector<float>{0, 0, 128 / 255.0F, 1, 0, 1}));
  EXPECT_EQ(read_image_header(path).width, 3);
  expect_error(ErrorKind::argument, "needs a floating tensor (1 or 3, H, W)", [&] { write_png(path, Tensor::zeros({2, 3, 3})); });
  expect_error(ErrorKind::argument, "needs a floating tensor", [&] { write_png(path, Tensor::zeros({1, 3, 3}, DType::u8)); });
  EXPECT_EQ(folder.names().size(), 1u);
}

TEST_F(Png, ReadsOtherDepthsPalettesAndTransparency) {
  EXPECT_EQ(parse_png(png(2, 1, 16, 0, std::string("\0\x80\0\xff\xff", 5))).to_vector<float>(), (std::vector<float>{32768 / 65535.0F, 1}));
  EXPECT_EQ(parse_png(png(3, 1, 1, 0, std::string("\0\xa0", 2))).to_vector<float>(), (std::vector<float>{1, 0, 1}));
  EXPECT_EQ(parse_png(png(1, 1, 8, 4, std::string("\0\x33\x80", 3))).to_vector<float>(), (std::vector<float>{0.2F}));
  const Tensor colour = parse_png(png(2, 1, 8, 3, std::string("\0\1\0", 3), png_chunk("PLTE", std::string("\0\x33\xff\xff\0\0", 6))));
  EXPECT_EQ(colour.shape(), (Shape{3, 1, 2}));
  EXPECT_EQ(colour.to_vector<float>(), (std::vector<float>{1, 0, 0, 0.2F, 0, 1}));
}

TEST_F(Png, RefusesDamage) {
  const std::string good = png(4, 4, 8, 0, std::string(20, '\0'));
  EXPECT_EQ(parse_png(good).elements(), 16);
  for (std::size_t length = 0; length < good.size() - 12; ++length) {
    expect_error(ErrorKind::format, "image.png: ", [&] { parse_png(good.substr(0, length)); });
  }
  std::string damaged = good;
  damaged[45] = static_cast<char>(damaged[45] ^ 1);
  expect_error(ErrorKind::format, "image.png: PNG image: ", [&] { parse_png(damaged); });
  expect_error(ErrorKind::format, "not a PNG image", [&] { parse_png("GIF89a"); });
  expect_error(ErrorKind::format, "header declares 60000x60000 pixels, more than a file of",
               [&] { parse_png(png(60000, 60000, 8, 2, "")); });
}

/// The samples of `bytes` each, in the order of Adam7's seven passes.
std::string passes(const std::string& samples, std::size_t width, std::size_t height, std::size_t bytes) {
  constexpr std::array<std::array<std::size_t, 4>, 7> grids = {
      // first column and row, steps
      {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}}};
  std::string rows;
  for (const auto& [column, row, step, row_step] : grids) {
    for (std::size_t y = row; y < height && column < width; y += row_step) {
      rows += '\0';
      for (std::size_t x = column; x < width; x += step) rows += samples.substr((y * width + x) * bytes, bytes);
    }
  }
  return rows;
}

TEST_F(Png, InterlacedImagesAreReadAsOthers) {
  for (const auto& [width, height] : {std::array{1, 1}, {2, 3}, {5, 1}, {1, 5}, {9, 10}, {16, 8}, {33, 17}}) {
    for (const auto& [colour, bits, bytes] : {std::array{0, 8, 1}, {2, 16, 6}, {6, 8, 4}}) {
      const auto w = static_cast<std::size_t>(width), h = static_cast<std::size_t>(height), size = static_cast<std::size_t>(bytes);
      std::string samples, rows;
      for (std::size_t i = 0; i < w * h * size; ++i) samples += static_cast<char>(i * 37);
      for (std::size_t y = 0; y < h; ++y) rows += '\0' + samples.substr(y * w * size, w * size);
      const auto file = [&, depth = bits, kind = colour](const std::string& data, bool interlaced) {
        return png(static_cast<std::uint32_t>(w), static_cast<std::uint32_t>(h), depth, kind, data, "", interlaced);
      };
      const Tensor plain = parse_png(file(rows, false)), interlaced = parse_png(file(passes(samples, w, h, size), true));
      EXPECT_EQ(interlaced.shape(), plain.shape());
      EXPECT_EQ(interlaced.to_vector<float>(), plain.to_vector<float>()) << width << 'x' << height << ' ' << colour;
    }
  }
  expect_error(ErrorKind::format, "an interlaced image of 10000x10000 pixels, limit 67108864",
               [] { parse_png(png(10000, 10000, 1, 0, std::string(13'000'000, '\0'), "", true)); });
}

TEST_F(Png, MemoryIsTakenForWhatIsThereAndWanted) {
  const std::string good = white(8000);  // 256 MB as f32
  const MemoryInput input(std::as_bytes(std::span(good)), "white.png");
  std::int64_t rows = 0;
  double sum = 0;
  const auto take = [&](std::int64_t y, std::span<const float> row) {
    EXPECT_EQ(y, rows++);
    sum += row[7999];
  };
  EXPECT_LT(peak_memory([&] {
              read_png_rows(
                  input, [](const ImageHeader& h) { EXPECT_EQ(h.width, 8000); }, take);
            }),
            little_memory);
  EXPECT_EQ(sum, 8000);
  const auto refuse = [](const Shape& shape) { fail(ErrorKind::format, "not ", shape); };
  EXPECT_LT(peak_memory([&] { expect_error(ErrorKind::format, "not 1x8000x8000", [&] { read_png(input, refuse); }); }), little_memory);
  for (const std::size_t cut : {good.size() - 1, good.size() / 2}) {
    const auto read_cut = [&] {
      expect_error(ErrorKind::format, "the file ends early: truncated?", [&] { parse_png(good.substr(0, cut)); });
    };
    EXPECT_LT(peak_memory(read_cut), little_memory);
  }
}

/// Texts and colour profiles are compressed too, and are not looked at.
TEST_F(Png, ChunksThatSayNothingOfThePixelsTakeNoMemory) {
  std::string texts;
  for (int i = 0; i < 100; ++i) texts += png_chunk("zTXt", std::string("a\0\0", 3) + gzipped(std::string(4'000'000, 'x'), 15));
  const std::string file = png(1, 1, 8, 0, std::string("\0\xff", 2), texts);
  EXPECT_LT(peak_memory([&] { EXPECT_EQ(parse_png(file).item(), 1); }), little_memory);
}

}  // namespace
}  // namespace frit
