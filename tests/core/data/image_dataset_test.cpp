#include <gtest/gtest.h>

#include <filesystem>

#include "core/data/dataset_testing.h"
#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/data/files.h"
#include "frit/core/io/png.h"

namespace frit {
namespace {

void write(const TemporaryFolder& folder, const std::string& name, double value, const Shape& shape = {1, 2, 2}) {
  std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
  write_png(folder / name, Tensor::full(shape, value));
}

TEST(ImageDataset, ClassesAreFoldersInTheOrderOfTheirNames) {
  FRIT_SKIP_WITHOUT("libpng");
  const TemporaryFolder folder;
  write(folder, "dog/1.png", 0.2);
  write(folder, "cat/b.png", 0.4);
  write(folder, "cat/a.PNG", 0.6);
  write(folder, "Zebra/1.png", 1);
  write_text(folder / "cat/readme.txt", "not an image");
  std::filesystem::create_directory(folder / ".cache");
  const std::shared_ptr<Dataset> dataset = read_dataset(folder.path());
  EXPECT_EQ(dynamic_cast<const ImageDataset&>(*dataset).classes(), (std::vector<std::string>{"Zebra", "cat", "dog"}));
  EXPECT_EQ(dataset->size(), 4);
  EXPECT_EQ(dataset->fields()[0].shape, (Shape{1, 2, 2}));
  const std::vector<Tensor> batch = read(*dataset, {3, 0, 1, 2});
  EXPECT_EQ(batch[1].to_vector<double>(), (std::vector<double>{2, 0, 1, 1}));
  EXPECT_EQ(batch[0].slice(1, 0, 1).slice(2, 0, 1).slice(3, 0, 1).to_vector<float>(), (std::vector<float>{0.2F, 1, 0.6F, 0.4F}));
}

TEST(ImageDataset, GreyImagesAmongColouredOnesHaveThreeChannels) {
  FRIT_SKIP_WITHOUT("libpng");
  const TemporaryFolder folder;
  write(folder, "a/grey.png", 0.2);
  write(folder, "b/colour.png", 0.4, {3, 2, 2});
  const ImageDataset dataset(folder.path());
  EXPECT_EQ(dataset.fields()[0].shape, (Shape{3, 2, 2}));
  EXPECT_EQ(read(dataset, {0})[0].to_vector<float>(), std::vector<float>(12, 0.2F));
}

TEST(ImageDataset, ResizesByTheMeanOfWhatAPixelCovers) {
  FRIT_SKIP_WITHOUT("libpng");
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "a");
  write_png(folder / "a/1.png", Tensor::from<float>({0, 0, 1, 1, 0, 0, 1, 1}, {1, 2, 4}));
  write(folder, "a/2.png", 0.4, {1, 5, 3});
  expect_error(ErrorKind::format, "a/2.png: expected 2x4 pixels as in ", [&] { ImageDataset(folder.path()); });
  const ImageDataset halved(folder.path(), {1, 2});
  // A triangle of two source pixels to either side of the centre, cut off at the edge: weights 3/8 3/8 1/8 of 7/8.
  EXPECT_NEAR(read(halved, {0})[0].to_vector<float>()[0], 1.0 / 7, 1e-6);
  EXPECT_NEAR(read(halved, {0})[0].to_vector<float>()[1], 6.0 / 7, 1e-6);
  EXPECT_NEAR(read(halved, {1})[0].to_vector<float>()[1], 0.4, 1e-6);
  const ImageDataset doubled(folder.path(), {4, 8});
  const std::vector<float> row = {0, 0, 0, 0.25F, 0.75F, 1, 1, 1};
  std::vector<float> rows;
  for (int i = 0; i < 4; ++i) rows.insert(rows.end(), row.begin(), row.end());
  EXPECT_EQ(read(doubled, {0})[0].to_vector<float>(), rows);
}

TEST(ImageDataset, AnImageIsNotInMemoryAsAWholeToBecomeASmallOne) {
  FRIT_SKIP_WITHOUT("libpng");
  const TemporaryFolder folder;
  write(folder, "a/1.png", 0.4, {3, 3000, 3000});  // 108 MB as f32
  const ImageDataset dataset(folder.path(), {2, 3});
  EXPECT_LT(peak_memory([&] {
              for (const float value : read(dataset, {0})[0].to_vector<float>()) EXPECT_NEAR(value, 0.4, 1e-5);
            }),
            std::size_t{sanitized ? 64 : 16} << 20);
}

TEST(ImageDataset, BothSplitsNumberTheClassesAlike) {
  FRIT_SKIP_WITHOUT("libpng");
  const TemporaryFolder folder;
  write(folder, "train/a/1.png", 0);
  write(folder, "train/b/1.png", 0);
  write(folder, "test/b/1.png", 0);
  EXPECT_TRUE(has_test_split(folder.path()));
  EXPECT_EQ(read_dataset(folder.path(), Split::train)->size(), 2);
  EXPECT_EQ(read(*read_dataset(folder.path(), Split::test), {0})[1].item(), 1) << "the test set lacks class a";
  EXPECT_EQ(class_names(folder.path()), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(read(*read_dataset(folder / "test", Split::test, {.classes = class_names(folder.path())}), {0})[1].item(), 1) << "or elsewhere";
  write(folder, "test/bb/1.png", 0);
  expect_error(ErrorKind::format, "test/bb: is a class that the training data do not have",
               [&] { read_dataset(folder.path(), Split::test); });
}

TEST(ImageDataset, HasPngAndJpegSideBySide) {
  FRIT_SKIP_WITHOUT("libpng");
  FRIT_SKIP_WITHOUT("libjpeg");
  const TemporaryFolder folder;
  write(folder, "a/1.png", 0.2, {3, 19, 21});
  for (const char* const name : {"a/2.jpg", "a/3.JPEG", "b/called.png"}) {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    write_text(folder / name, jpeg_file("halved"));
  }
  const ImageDataset dataset(folder.path());
  EXPECT_EQ(dataset.size(), 4);
  const std::vector<Tensor> batch = read(dataset, {0, 1, 2, 3});
  EXPECT_EQ(batch[1].to_vector<double>(), (std::vector<double>{0, 0, 0, 1}));
  EXPECT_EQ(batch[0].slice(0, 0, 1).to_vector<float>(), std::vector<float>(3 * 19 * 21, 0.2F));
  for (std::int64_t i = 1; i < 4; ++i) {
    EXPECT_EQ(batch[0].slice(0, i, i + 1).to_vector<float>(), jpeg_pixels("halved").to_vector<float>()) << i;
  }
  EXPECT_EQ(read(ImageDataset(folder.path(), {4, 5}), {1})[0].shape(), (Shape{1, 3, 4, 5}));
  EXPECT_EQ(dataset_files(folder.path()).size(), 4u);
  write_text(folder / "b/called.png", jpeg_file("halved").substr(0, 600));
  expect_error(ErrorKind::format, "b/called.png: JPEG image: the file ends early: truncated?", [&] { read(dataset, {3}); });
}

TEST(ImageDataset, RefusesEmptyClassesAndDamage) {
  FRIT_SKIP_WITHOUT("libpng");
  const TemporaryFolder folder;
  expect_error(ErrorKind::format, "expected one folder of PNG or JPEG images a class, got no folder", [&] { ImageDataset(folder.path()); });
  write(folder, "a/1.png", 0.5, {1, 20, 20});
  std::filesystem::create_directory(folder / "b");
  expect_error(ErrorKind::format, "/b: has no .png or .jpg files", [&] { ImageDataset(folder.path()); });
  write_text(folder / "b/1.png", "GIF89a");
  expect_error(ErrorKind::format, "/b/1.png: not a PNG image", [&] { ImageDataset(folder.path()); });
  const std::string good = content_of(folder / "a/1.png");
  write_text(folder / "b/1.png", good.substr(0, good.size() - 20));
  const ImageDataset dataset(folder.path());
  expect_error(ErrorKind::format, "/b/1.png: PNG image: the file ends early: truncated?", [&] { read(dataset, {1}); });
  expect_error(ErrorKind::argument, "the size of an image is two numbers", [&] { ImageDataset(folder.path(), {3}); });
}

}  // namespace
}  // namespace frit
