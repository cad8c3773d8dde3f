#include <gtest/gtest.h>

#include <filesystem>

#include "core/data/dataset_testing.h"
#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/data/files.h"
#include "frit/core/data/transform.h"
#include "frit/core/io/png.h"

namespace frit {
namespace {

/// A grey PNG image of 8 bits a sample, whose samples are these.
std::string grey(std::uint32_t width, std::uint32_t height, const std::vector<int>& samples) {
  std::string rows;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (i % width == 0) rows += '\0';
    rows += static_cast<char>(samples[i]);
  }
  return png_file(width, height, 8, 0, gzipped(rows, 15));
}

class MaskDataset : public testing::Test {
 protected:
  void SetUp() override {
    FRIT_SKIP_WITHOUT("libpng");
    for (const char* const name : {"images", "masks"}) std::filesystem::create_directory(folder / name);
  }
  void write(const std::string& name, const std::string& bytes) { write_text(folder / name, bytes); }

  const TemporaryFolder folder;
};

TEST_F(MaskDataset, ReadsPairsOfOneName) {
  write("images/b.png", grey(3, 2, {0, 51, 102, 153, 204, 255}));
  write("masks/b.png", grey(3, 2, {0, 1, 2, 0, 7, 255}));
  write("images/a.PNG", grey(3, 2, std::vector<int>(6, 255)));
  // With a palette, of two bits a pixel: 3 2 1 and 0 1 2.
  write("masks/a.png", png_file(3, 2, 2, 3, gzipped(std::string("\0\xe4\0\x18", 4), 15), png_chunk("PLTE", std::string(12, 'x'))));
  write("masks/of-nothing.png", "");
  const std::shared_ptr<Dataset> dataset = read_dataset(folder.path());
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->fields()[0].shape, (Shape{1, 2, 3}));
  EXPECT_EQ(dataset->fields()[1].shape, (Shape{2, 3}));
  EXPECT_EQ(dataset->fields()[1].dtype, DType::i64);
  const std::vector<Tensor> batch = read(*dataset, {1, 0});
  EXPECT_EQ(batch[0].slice(0, 0, 1).to_vector<float>(), (std::vector<float>{0, 0.2F, 0.4F, 0.6F, 0.8F, 1}));
  EXPECT_EQ(batch[1].to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 1, 2, 0, 7, 255, 3, 2, 1, 0, 1, 2}));
  EXPECT_EQ(dataset_files(folder.path()).size(), 5u);
  EXPECT_TRUE(class_names(folder.path()).empty());
}

TEST_F(MaskDataset, ResizesAMaskToTheNearestClass) {
  write("images/1.png", grey(4, 2, {0, 0, 255, 255, 0, 0, 255, 255}));
  write("masks/1.png", grey(4, 2, {0, 3, 5, 9, 1, 3, 5, 9}));
  const std::shared_ptr<Dataset> halved = read_dataset(folder.path(), Split::train, {.image_size = {1, 2}});
  EXPECT_EQ(read(*halved, {0})[1].to_vector<std::int64_t>(), (std::vector<std::int64_t>{3, 9}));
  const std::shared_ptr<Dataset> doubled = read_dataset(folder.path(), Split::train, {.image_size = {2, 8}});
  EXPECT_EQ(read(*doubled, {0})[1].slice(1, 0, 1).to_vector<std::int64_t>(), (std::vector<std::int64_t>{0, 0, 3, 3, 5, 5, 9, 9}));
  write("images/2.png", grey(1, 1, {255}));
  write("masks/2.png", grey(1, 1, {4}));
  expect_error(ErrorKind::format, "images/2.png: expected 2x4 pixels as in ", [&] { read_dataset(folder.path()); });
  const std::shared_ptr<Dataset> both = read_dataset(folder.path(), Split::train, {.image_size = {1, 2}});
  EXPECT_EQ(read(*both, {1})[1].to_vector<std::int64_t>(), (std::vector<std::int64_t>{4, 4}));
}

TEST_F(MaskDataset, CropsAndFlipsMoveBoth) {
  std::vector<int> samples(30);
  for (int i = 0; i < 30; ++i) samples[static_cast<std::size_t>(i)] = i + 1;
  write("images/1.png", grey(6, 5, samples));
  write("masks/1.png", grey(6, 5, samples));
  const TransformDataset moved(read_dataset(folder.path()), {.padding = {2}, .crop = {4, 3}, .flip = {0, 1}});
  EXPECT_EQ(moved.fields()[1].shape, (Shape{4, 3}));
  std::vector<std::vector<std::int64_t>> seen;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    const std::vector<Tensor> batch = read(moved, {0}, {1, epoch});
    const std::vector<std::int64_t> mask = batch[1].to_vector<std::int64_t>();
    const std::vector<float> image = batch[0].to_vector<float>();
    for (std::size_t i = 0; i < mask.size(); ++i) ASSERT_EQ(image[i], static_cast<float>(mask[i]) / 255.0F);
    if (std::find(seen.begin(), seen.end(), mask) == seen.end()) seen.push_back(mask);
  }
  EXPECT_GT(seen.size(), 30u);
}

TEST_F(MaskDataset, RefusesWhatDoesNotFit) {
  expect_error(ErrorKind::format, "/images: has no .png or .jpg files", [&] { read_dataset(folder.path()); });
  write("images/1.png", grey(3, 2, std::vector<int>(6, 0)));
  expect_error(ErrorKind::file_system, "/masks/1.png: no such file, for ", [&] { read_dataset(folder.path()); });
  write("masks/1.png", grey(2, 3, std::vector<int>(6, 0)));
  expect_error(ErrorKind::format, concat("/masks/1.png: expected the size of ", folder / "images/1.png", ", 2x3, got 3x2"),
               [&] { read_dataset(folder.path()); });
  write_png(folder / "masks/1.png", Tensor::zeros({3, 2, 3}));
  const std::shared_ptr<Dataset> coloured = read_dataset(folder.path());
  expect_error(ErrorKind::format, "/masks/1.png: PNG image: expected a class a pixel, grey or of a palette, got colours",
               [&] { read(*coloured, {0}); });
  write("masks/1.png", grey(3, 2, std::vector<int>(6, 0)).substr(0, 50));
  expect_error(ErrorKind::format, "/masks/1.png: PNG image: the file ends early: truncated?", [&] { read(*coloured, {0}); });
  expect_error(ErrorKind::argument, "the size of an image is two numbers", [&] { read_mask_dataset(folder.path(), {3}); });
  expect_error(ErrorKind::argument, "patches are taken of NIfTI volumes", [&] {
    read_dataset(folder.path(), Split::train, {.patches = {.size = {2, 2}}});
  });
}

TEST_F(MaskDataset, ReadsClassesOfEveryDepth) {
  const auto classes = [&](const std::string& bytes) {
    write("mask.png", bytes);
    return read_png_classes(folder / "mask.png").to_vector<std::int64_t>();
  };
  using Classes = std::vector<std::int64_t>;
  EXPECT_EQ(classes(png_file(3, 1, 1, 0, gzipped(std::string("\0\xa0", 2), 15))), (Classes{1, 0, 1}));
  EXPECT_EQ(classes(png_file(3, 1, 4, 0, gzipped(std::string("\0\x1f\x20", 3), 15))), (Classes{1, 15, 2}));
  EXPECT_EQ(classes(png_file(2, 1, 16, 0, gzipped(std::string("\0\x01\x00\xff\xff", 5), 15))), (Classes{256, 65535}));
  const std::string alpha = png_file(1, 1, 8, 4, gzipped(std::string("\0\x33\x80", 3), 15));
  expect_error(ErrorKind::format, "mask.png: PNG image: expected a class a pixel, grey or of a palette, got grey and alpha",
               [&] { classes(alpha); });
}

}  // namespace
}  // namespace frit
