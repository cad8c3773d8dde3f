// What `frit infer` reads: the examples of a file, and the files of a folder.

#include <gtest/gtest.h>

#include <filesystem>

#include "core/data/dataset_testing.h"
#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/data/files.h"
#include "frit/core/io/file.h"
#include "frit/core/io/npy.h"
#include "frit/core/io/png.h"

namespace frit {
namespace {

const std::string idx_images("\0\0\x08\3\0\0\0\2\0\0\0\1\0\0\0\3\0\xff\x33\x80\x07\x63", 22);

void expect_same(const Tensor& found, const Tensor& expected) {
  EXPECT_EQ(found.shape(), expected.shape());
  EXPECT_EQ(found.dtype(), expected.dtype());
  EXPECT_EQ(serialize_npy(found), serialize_npy(expected));
}

TEST(ReadExamples, IdxImagesAreWhatTrainingReads) {
  const TemporaryFolder folder;
  write_text(folder / "images-idx3-ubyte", idx_images);
  write_text(folder / "images-idx3-ubyte.gz", gzipped(idx_images));
  write_text(folder / "labels-idx1-ubyte", std::string("\0\0\x08\1\0\0\0\2\3\1", 10));
  const std::shared_ptr<Dataset> dataset = read_idx_dataset(folder / "images-idx3-ubyte", folder / "labels-idx1-ubyte");
  const Tensor expected = read(*dataset, {0, 1})[0];
  EXPECT_EQ(expected.shape(), (Shape{2, 1, 1, 3}));
  expect_same(read_examples(folder / "images-idx3-ubyte"), expected);
  expect_same(read_examples(folder / "images-idx3-ubyte.gz"), expected);
  write_text(folder / "none", std::string("\0\0\x08\3\0\0\0\0\0\0\0\1\0\0\0\3", 16));
  EXPECT_EQ(read_examples(folder / "none").shape(), (Shape{0, 1, 1, 3}));
  expect_error(ErrorKind::format, "labels-idx1-ubyte: expected u8 images (N,H,W), got u8 2",
               [&] { read_examples(folder / "labels-idx1-ubyte"); });
}

TEST(ReadExamples, ArraysAreAsTheyAre) {
  const TemporaryFolder folder;
  const Tensor array = Tensor::from<double>({1, 2, 3, 4}, {2, 2});
  write_npy(folder / "x.npy", array);
  expect_same(read_examples(folder / "x.npy"), array);
}

TEST(ReadExamples, PngImagesAreWhatTrainingReads) {
  FRIT_SKIP_WITHOUT("libpng");
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "class");
  for (const std::int64_t channels : {1, 3}) {
    Tensor image = counting({channels, 3, 4});
    for (float& sample : image.span<float>()) sample *= 7 / 255.0F;
    write_png(folder / "class/image.png", image);
    expect_same(read_examples(folder / "class/image.png"), read(ImageDataset(folder.path()), {0})[0]);
  }
  write_text(folder / "text.png", "not an image");
  expect_error(ErrorKind::format, "text.png: not a PNG image", [&] { read_examples(folder / "text.png"); });
}

TEST(ReadExamples, JpegImagesAreWhatTrainingReads) {
  FRIT_SKIP_WITHOUT("libjpeg");
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "class");
  for (const char* const name : {"grey", "halved"}) {
    write_text(folder / "class/image.jpg", jpeg_file(name));
    expect_same(read_examples(folder / "class/image.jpg"), read(ImageDataset(folder.path()), {0})[0]);
  }
  write_text(folder / "text.jpeg", "not an image");
  expect_error(ErrorKind::format, "text.jpeg: not a JPEG image: expected \\xff\\xd8 at the start",
               [&] { read_examples(folder / "text.jpeg"); });
}

TEST(ReadExamples, VolumesAreWhatTrainingReads) {
  FRIT_SKIP_WITHOUT("libnifti2");
  const TemporaryFolder folder;
  const std::string voxels = bytes_of(counting({48}).to_vector<float>());
  write_text(folder / "targets.nii", nifti_file({.dim = {4, 3, 2}}, voxels.substr(0, 96)));
  for (const auto volumes : std::initializer_list<std::int16_t>{1, 2}) {
    write_text(folder / "inputs.nii.gz",
               gzipped(nifti_file({.dim = {4, 3, 2, volumes}}, voxels.substr(0, static_cast<std::size_t>(96 * volumes)))));
    const Tensor expected = read(*read_nifti_dataset(folder.path()), {0})[0];
    EXPECT_EQ(expected.shape(), (Shape{1, volumes, 2, 3, 4}));
    expect_same(read_examples(folder / "inputs.nii.gz"), expected);
  }
  write_text(folder / "text.nii", "not a volume");
  expect_error(ErrorKind::format, "text.nii: not a NIfTI file", [&] { read_examples(folder / "text.nii"); });
}

TEST(ReadExamples, ContentCountsMoreThanTheName) {
  const TemporaryFolder folder;
  write_npy(folder / "array.png", Tensor::zeros({2, 2}));
  EXPECT_EQ(read_examples(folder / "array.png").shape(), (Shape{2, 2}));
  write_text(folder / "images.npy", idx_images);
  EXPECT_EQ(read_examples(folder / "images.npy").shape(), (Shape{2, 1, 1, 3}));
}

TEST(ReadExamples, RefusesWhatIsNoneOfThem) {
  const TemporaryFolder folder;
  const auto refused = [&](const char* name, const std::string& content, const std::string& message) {
    write_text(folder / name, content);
    expect_error(ErrorKind::format, name + (": " + message), [&] { read_examples(folder / name); });
  };
  refused("table.csv", "1,2,3\n4,5,6\n", "bad magic: expected \\x93NUMPY");
  refused("archive", "PK\x03\x04 and so on", "bad magic: expected \\x93NUMPY, got \"PK\\x03\\x04 a\": looks like a zip (npz)");
  refused("empty.npy", "", "bad magic");
  refused("train-images-idx3-ubyte", "hello world", "not an IDX file");
  refused("cut-idx3-ubyte", idx_images.substr(0, 20), "expected 6 bytes of data for u8 2x1x3, found 4");
  refused("damaged-idx3-ubyte.gz", gzipped(idx_images).substr(0, 12), "gzip data ends early: truncated?");
  expect_error(ErrorKind::file_system, "nowhere.npy: no such file", [&] { read_examples(folder / "nowhere.npy"); });
  expect_error(ErrorKind::file_system, "is a directory, expected a .npy, IDX, PNG, JPEG or NIfTI file",
               [&] { read_examples(folder.path()); });
}

TEST(ReadExamples, AShapeThatIsNotWantedIsRefusedBeforeMemoryIsTaken) {
  const TemporaryFolder folder;
  const std::string idx = std::string("\0\0\x08\3\0\0\0\x40\0\0\x04\0\0\0\x04\0", 16) + std::string(64 << 20, '\0');
  std::vector<std::pair<std::string, Shape>> files = {{"x.npy", {2, 1, 3}}, {"a-idx3-ubyte.gz", {64, 1, 1024, 1024}}};
  write_npy(folder / "x.npy", Tensor::zeros({2, 1, 3}));
  write_text(folder / "a-idx3-ubyte.gz", gzipped(idx));
  if (!is_missing("libpng")) {
    files.emplace_back("b.png", Shape{1, 3, 2000, 3000});
    write_png(folder / "b.png", Tensor::full({3, 2000, 3000}, 1));
  }
  if (!is_missing("libnifti2")) {
    files.emplace_back("c.nii.gz", Shape{1, 1, 16, 1024, 1024});
    write_text(folder / "c.nii.gz", gzipped(nifti_file({.dim = {1024, 1024, 16}}, std::string(64 << 20, '\0'))));
  }
  for (const auto& [name, shape] : files) {
    const auto read = [&, &file = name, &wanted = shape] {
      expect_error(ErrorKind::format, concat("not ", wanted),
                   [&] { read_examples(folder / file, [](const Shape& found) { fail(ErrorKind::format, "not ", found); }); });
    };
    EXPECT_LT(peak_memory(read), std::size_t{sanitized ? 64 : 8} << 20) << name;
  }
}

TEST(ReadNamedArrays, TakesWhatHasNames) {
  const TemporaryFolder folder;
  write_npy(folder / "x.npy", Tensor::zeros({2}));
  EXPECT_FALSE(read_named_arrays(folder / "x.npy"));
  write_safetensors(folder / "x.safetensors", {{"input", Tensor::zeros({2, 3})}, {"age", Tensor::zeros({2})}});
  EXPECT_EQ(read_named_arrays(folder / "x.safetensors")->at("input").shape(), (Shape{2, 3}));
  expect_error(ErrorKind::file_system, "nowhere: no such file", [&] { read_named_arrays(folder / "nowhere"); });
  FRIT_SKIP_WITHOUT("libzip");
  const std::vector<std::byte> bytes = serialize_npy(Tensor::full({1}, 4));
  write_text(folder / "archive", zip_file({{"age.npy", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())}}));
  EXPECT_EQ(read_named_arrays(folder / "archive")->at("age").item(), 4) << "by its first bytes";
}

TEST(ExampleFiles, AreThoseOfAFolderThatCanBeRead) {
  const TemporaryFolder folder;
  const auto refused = [&] {
    expect_error(ErrorKind::file_system, "there are no .npy, .png, .jpg, .nii or IDX files in this folder",
                 [&] { example_files(folder.path()); });
  };
  refused();
  for (const char* const name : {"notes.txt", "t10k-labels-idx1-ubyte.gz", ".hidden.npy", "archive.npz", "a.npy.bak"})
    write_text(folder / name, "");
  refused();
  std::vector<std::string> expected;
  for (const char* const name :
       {"B.PNG", "a.npy", "b.png", "c.nii", "d.nii.gz", "e.jpg", "f.JPEG", "t10k-images-idx3-ubyte.gz", "train.idx3-ubyte"}) {
    expected.push_back(folder / name);
    write_text(expected.back(), "");
  }
  EXPECT_EQ(example_files(folder.path()), expected);
  expect_error(ErrorKind::file_system, "nowhere: no such file", [&] { example_files(folder / "nowhere"); });
}

}  // namespace
}  // namespace frit
