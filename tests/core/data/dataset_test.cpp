#include "frit/core/data/dataset.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/data/dataset_testing.h"
#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/data/files.h"
#include "frit/core/io/file.h"
#include "frit/core/io/npy.h"
#include "frit/core/io/safetensors.h"

namespace frit {
namespace {

std::string images(std::string_view pixels) { return std::string("\0\0\x08\3\0\0\0\2\0\0\0\1\0\0\0\2", 16) + std::string(pixels); }
std::string labels(std::string_view classes) {
  return std::string("\0\0\x08\1\0\0\0", 7) + static_cast<char>(classes.size()) + std::string(classes);
}

TEST(TensorDataset, ReadsTheRowsThatAreAskedFor) {
  const Tensor matrix = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}).transpose(0, 1);
  const TensorDataset dataset({{"x", matrix}, {"y", Tensor::from<std::int64_t>({7, 8, 9}, {3})}});
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_EQ(dataset.fields()[0].shape, Shape{2});
  EXPECT_EQ(dataset.fields()[1].shape, Shape());
  EXPECT_EQ(dataset.fields()[1].dtype, DType::i64);
  const std::vector<Tensor> batch = read(dataset, {2, 0, 2});
  EXPECT_EQ(batch[0].to_vector<double>(), (std::vector<double>{3, 6, 1, 4, 3, 6}));
  EXPECT_EQ(batch[1].to_vector<double>(), (std::vector<double>{9, 7, 9}));
}

TEST(TensorDataset, RefusesTensorsThatDoNotFitTogether) {
  const Tensor three = Tensor::zeros({3, 2}), four = Tensor::zeros({4});
  const auto make = [](const std::vector<TensorDataset::NamedTensor>& tensors) { TensorDataset{tensors}; };
  expect_error(ErrorKind::argument, "needs at least one tensor", [&] { make({}); });
  expect_error(ErrorKind::argument, "\"y\" has 4 examples, \"x\" has 3", [&] { make({{"x", three}, {"y", four}}); });
  expect_error(ErrorKind::argument, "\"x\" stands twice", [&] { make({{"x", three}, {"x", three}}); });
  expect_error(ErrorKind::argument, "\"x\" needs a first axis", [&] { make({{"x", Tensor::zeros({})}}); });
}

TEST(DatasetFiles, ScaleIdxImages) {
  const TemporaryFolder folder;
  write_text(folder / "train-images-idx3-ubyte", images(std::string_view("\0\xff\x33\x80", 4)));
  write_text(folder / "train-labels-idx1-ubyte", labels("\3\1"));
  const std::shared_ptr<Dataset> dataset = read_dataset(folder.path());
  EXPECT_EQ(dataset->size(), 2);
  EXPECT_EQ(dataset->fields()[0].name, "input");
  EXPECT_EQ(dataset->fields()[0].shape, (Shape{1, 1, 2}));
  EXPECT_EQ(dataset->fields()[1].name, "target");
  const std::vector<Tensor> batch = read(*dataset, {0, 1});
  EXPECT_EQ(batch[0].to_vector<float>(), (std::vector<float>{0, 1, 0.2f, 128 / 255.0f}));
  EXPECT_EQ(batch[1].dtype(), DType::i64);
  EXPECT_EQ(batch[1].to_vector<double>(), (std::vector<double>{3, 1}));

  expect_error(ErrorKind::file_system, "t10k-images-idx3-ubyte.gz: no such file", [&] { read_dataset(folder.path(), Split::test); });
  write_text(folder / "train-labels-idx1-ubyte", labels("\3\1\2"));
  expect_error(ErrorKind::format, "train-labels-idx1-ubyte: \"target\" has 3 examples, \"input\" has 2",
               [&] { read_dataset(folder.path()); });
  expect_error(ErrorKind::format, "expected u8 images (N,H,W), got u8 3",
               [&] { read_idx_dataset(folder / "train-labels-idx1-ubyte", folder / "train-labels-idx1-ubyte"); });
}

TEST(DatasetFiles, ReadFashionMnist) {
  const std::string folder = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "Debian's package dataset-fashion-mnist is not installed";
  const std::shared_ptr<Dataset> test = read_mnist_dataset(folder, Split::test);
  EXPECT_EQ(test->size(), 10'000);
  EXPECT_EQ(test->fields()[0].shape, (Shape{1, 28, 28}));
  EXPECT_EQ(read(*test, {0})[1].item(), 9);  // an ankle boot
  EXPECT_EQ(read_dataset(folder, Split::train)->size(), 60'000);
}

TEST(DatasetFiles, ReadNpyPairs) {
  const TemporaryFolder folder;
  write_npy(folder / "inputs.npy", Tensor::from<double>({1, 2, 3, 4}, {2, 2}));
  write_npy(folder / "targets.npy", Tensor::from<std::int64_t>({5, 6}, {2}));
  const std::shared_ptr<Dataset> dataset = read_dataset(folder.path());
  EXPECT_EQ(dataset->fields()[0].dtype, DType::f64);
  EXPECT_EQ(read(*dataset, {1})[0].to_vector<double>(), (std::vector<double>{3, 4}));
  write_npy(folder / "targets.npy", Tensor::zeros({}));
  expect_error(ErrorKind::format, "targets.npy: \"target\" needs a first axis", [&] { read_dataset(folder.path()); });
}

TEST(DatasetFiles, ReadSafetensors) {
  const TemporaryFolder folder;
  const std::string path = folder / "data.safetensors";
  write_safetensors(path, {{"target", Tensor::zeros({2})}, {"input", Tensor::zeros({2, 3}, DType::u8)}});
  const std::shared_ptr<Dataset> dataset = read_dataset(path);
  EXPECT_EQ(dataset->fields()[0].name, "input");
  EXPECT_EQ(dataset->fields()[0].dtype, DType::u8);
  write_safetensors(path, {{"targets", Tensor::zeros({2})}, {"input", Tensor::zeros({2, 3})}});
  expect_error(ErrorKind::format, "expected the arrays \"input\", \"target\"; missing: \"target\"; not expected: \"targets\"",
               [&] { read_dataset(path); });
  expect_error(ErrorKind::file_system, "no such file", [&] { read_dataset(folder / "missing"); });
}

TEST(DatasetFiles, HaveTheFieldsThatAreWanted) {
  const TemporaryFolder folder;
  const std::string path = folder / "data.safetensors";
  const ReadOptions with_age = {.fields = {"input", "target", "age", "target.sex"}};
  TensorMap tensors = {{"age", counting({2, 1})}, {"input", counting({2, 3})}, {"target", Tensor::zeros({2})}};
  write_safetensors(path, tensors);
  expect_error(ErrorKind::format, "data.safetensors: expected the arrays \"input\", \"target\"; not expected: \"age\"",
               [&] { read_dataset(path); });
  expect_error(ErrorKind::format, "the arrays \"input\", \"target\", \"age\", \"target.sex\"; missing: \"target.sex\"",
               [&] { read_dataset(path, Split::train, with_age); });
  tensors["target.sex"] = Tensor::from<std::int64_t>({7, 8}, {2});
  write_safetensors(path, tensors);
  const auto expect_fields = [](const Dataset& dataset) {
    std::vector<std::string> names;
    for (const Dataset::Field& field : dataset.fields()) names.push_back(field.name);
    EXPECT_EQ(names, (std::vector<std::string>{"input", "target", "age", "target.sex"}));
    EXPECT_EQ(read(dataset, {1})[2].item(), 1);
    EXPECT_EQ(read(dataset, {1})[3].item(), 8);
  };
  expect_fields(*read_dataset(path, Split::train, with_age));

  write_npy(folder / "inputs.npy", tensors["input"]);
  write_npy(folder / "age.npy", tensors["age"]);
  expect_error(ErrorKind::file_system, concat(folder / "targets.npy", ", ", folder / "target.sex.npy", ": no such file"),
               [&] { read_dataset(folder.path(), Split::train, with_age); });
  write_npy(folder / "targets.npy", tensors["target"]);
  EXPECT_EQ(read_dataset(folder.path())->fields().size(), 2u) << "other files may lie in a folder";
  write_npy(folder / "target.sex.npy", tensors["target.sex"]);
  expect_fields(*read_dataset(folder.path(), Split::train, with_age));
  write_npy(folder / "age.npy", Tensor::zeros({3, 1}));
  expect_error(ErrorKind::format, "age.npy: \"age\" has 3 examples, \"input\" has 2",
               [&] { read_dataset(folder.path(), Split::train, with_age); });
  expect_error(ErrorKind::format, "no file can have the name of the field \"../age\"", [&] {
    read_dataset(folder.path(), Split::train, {.fields = {"input", "target", "../age"}});
  });

  for (const char* const file : {"inputs.npy", "targets.npy"}) std::filesystem::remove(folder / file);
  write_text(folder / "train-images-idx3-ubyte", std::string("\0\0\x08\3\0\0\0\1\0\0\0\1\0\0\0\1\7", 17));
  write_text(folder / "train-labels-idx1-ubyte", std::string("\0\0\x08\1\0\0\0\1\7", 9));
  expect_error(ErrorKind::format, "missing: \"age\", \"target.sex\"", [&] { read_dataset(folder.path(), Split::train, with_age); });
}

TEST(DatasetFiles, RefuseExamplesThatTakeNoBytes) {
  const TemporaryFolder folder;
  const std::string path = folder / "data.safetensors";
  constexpr std::int64_t many = std::int64_t{1} << 40;
  write_safetensors(path, {{"input", Tensor::zeros({many, 0})}, {"target", Tensor::zeros({many, 0})}});
  expect_error(ErrorKind::format, "\"input\" has 1099511627776 examples without elements, 0", [&] { read_dataset(path); });
  write_safetensors(path, {{"input", Tensor::zeros({0, 2})}, {"target", Tensor::zeros({0})}});
  EXPECT_EQ(read_dataset(path)->size(), 0);
}

TEST(Subset, GivesTheExamplesOfItsNumbers) {
  const auto whole = std::make_shared<TensorDataset>(std::vector<TensorDataset::NamedTensor>{
      {"x", Tensor::from<float>({0, 1, 2, 3}, {4})}, {"y", Tensor::from<float>({0, 10, 20, 30}, {4})}});
  const std::shared_ptr<Dataset> part = subset(whole, {3, 1, 3});
  EXPECT_EQ(part->size(), 3);
  EXPECT_EQ(part->fields()[1].name, "y");
  const std::vector<Tensor> batch = {Tensor::empty({2}), Tensor::empty({2})};
  part->read(std::vector<std::int64_t>{2, 1}, batch, {});
  EXPECT_EQ(batch[1].to_vector<float>(), (std::vector<float>{30, 10}));
  EXPECT_THROW(subset(whole, {4}), Error);
  EXPECT_THROW(subset(nullptr, {}), Error);
}

TEST(DatasetFiles, ReadNpz) {
  FRIT_SKIP_WITHOUT("libzip");
  const TemporaryFolder folder;
  const auto npy = [](const Tensor& tensor) {
    const std::vector<std::byte> bytes = serialize_npy(tensor);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const std::string path = folder / "data.npz";
  write_text(path, zip_file({{"target.npy", npy(Tensor::from<std::int64_t>({5, 6}, {2}))}, {"input.npy", npy(counting({2, 3})), true}}));
  const std::shared_ptr<Dataset> dataset = read_dataset(path);
  EXPECT_EQ(dataset->fields()[0].name, "input");
  EXPECT_EQ(read(*dataset, {1})[0].to_vector<float>(), (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(read(*dataset, {1})[1].item(), 6);
  write_text(path, zip_file({{"x.npy", npy(Tensor::zeros({2}))}, {"a.npy", npy(Tensor::zeros({2}))}}));
  EXPECT_EQ(read_npz_dataset(path)->fields()[0].name, "a") << "any names for a program of one's own";
  expect_error(ErrorKind::format, "missing: \"input\", \"target\"; not expected: \"a\", \"x\"", [&] { read_dataset(path); });
  write_text(path, zip_file({{"input.npy", npy(Tensor::zeros({2}))}, {"target.npy", npy(Tensor::zeros({3}))}}));
  expect_error(ErrorKind::format, "data.npz: \"target\" has 3 examples, \"input\" has 2", [&] { read_dataset(path); });
}

TEST(DatasetFiles, ReadArraysInOtherOrders) {
  const TemporaryFolder folder;
  write_npy(folder / "targets.npy", Tensor::zeros({2}));
  const auto array = [](const char* type, const char* fortran, std::string data) {
    const std::string header = concat("{'descr': '", type, "', 'fortran_order': ", fortran, ", 'shape': (2, 3), }\n");
    return std::string("\x93NUMPY\1\0", 8) + little_bytes(header.size(), 2) + header + data;
  };
  write_text(folder / "inputs.npy", array("|u1", "True", "adbecf"));
  EXPECT_EQ(read(*read_dataset(folder.path()), {1, 0})[0].to_vector<double>(), (std::vector<double>{'d', 'e', 'f', 'a', 'b', 'c'}));
  write_text(folder / "inputs.npy", array(">i4", "False", std::string("\0\0\0\1\0\0\0\2\0\0\0\3\0\0\1\0\0\0\0\0\0\0\0\6", 24)));
  EXPECT_EQ(read(*read_dataset(folder.path()), {0, 1})[0].to_vector<double>(), (std::vector<double>{1, 2, 3, 256, 0, 6}));
}

/// Arrays stay in their files. One that another process cuts short is an error of that batch, and no signal.
TEST(DatasetFiles, NoticeAFileThatIsCutShortWhileItIsInUse) {
  const TemporaryFolder folder;
  write_npy(folder / "inputs.npy", counting({1000, 16}));
  write_npy(folder / "targets.npy", Tensor::zeros({1000}));
  const std::shared_ptr<Dataset> dataset = read_dataset(folder.path());
  EXPECT_EQ(read(*dataset, {999, 3, 4})[0].to_vector<float>()[16], 48);
  std::filesystem::resize_file(folder / "inputs.npy", 5000);
  expect_error(ErrorKind::file_system, "inputs.npy: changed while it was read: had", [&] { read(*dataset, {999}); });
  expect_error(ErrorKind::file_system, "inputs.npy: changed while it was read", [&] { read(*dataset, {0}); });
}

TEST(DatasetFiles, RefuseOptionsOfOtherFormats) {
  const TemporaryFolder folder;
  write_npy(folder / "inputs.npy", Tensor::zeros({2, 1, 4, 4}));
  write_npy(folder / "targets.npy", Tensor::zeros({2}));
  const auto read_with = [&](const ReadOptions& options) { read_dataset(folder.path(), Split::train, options); };
  expect_error(ErrorKind::argument, "an image size goes with folders of images", [&] { read_with({.image_size = {4, 4}}); });
  expect_error(ErrorKind::argument, "patches are taken of NIfTI volumes", [&] { read_with({.patches = {.size = {2, 2, 2}}}); });
  expect_error(ErrorKind::argument, "a number of patches needs a patch's size", [&] { read_with({.patches = {.random = 5}}); });
}

TEST(DatasetFiles, ReadOnePartASplit) {
  const TemporaryFolder folder;
  for (const char* const part : {"train", "val"}) {
    std::filesystem::create_directory(folder / part);
    const std::int64_t count = part == std::string("train") ? 3 : 2;
    write_npy(folder / (part + std::string("/inputs.npy")), Tensor::zeros({count, 2}));
    write_npy(folder / (part + std::string("/targets.npy")), Tensor::zeros({count}));
  }
  EXPECT_TRUE(has_test_split(folder.path()));
  EXPECT_FALSE(has_test_split(folder / "train"));
  EXPECT_EQ(read_dataset(folder.path(), Split::train)->size(), 3);
  EXPECT_EQ(read_dataset(folder.path(), Split::test)->size(), 2);
  std::filesystem::create_directory(folder / "empty");
  expect_error(ErrorKind::format, "empty: holds no data: expected inputs.npy and targets.npy, MNIST files",
               [&] { read_dataset(folder / "empty"); });
}

TEST(ConcatenatedDataset, RunsThroughItsParts) {
  const auto part = [](std::vector<float> values) -> std::shared_ptr<const Dataset> {
    const auto count = static_cast<std::int64_t>(values.size());
    return std::make_shared<TensorDataset>(std::vector<TensorDataset::NamedTensor>{{"x", Tensor::from(values, {count})}});
  };
  const std::shared_ptr<Dataset> all = concatenate({part({1, 2}), part({}), part({3})});
  EXPECT_EQ(all->size(), 3);
  EXPECT_EQ(read(*all, {2, 0, 1})[0].to_vector<float>(), (std::vector<float>{3, 1, 2}));
  expect_error(ErrorKind::argument, "needs at least one dataset", [] { concatenate({}); });
  const auto other = std::make_shared<TensorDataset>(std::vector<TensorDataset::NamedTensor>{{"x", Tensor::zeros({2, 2})}});
  expect_error(ErrorKind::argument, "expected \"x\" of f32 scalar, got \"x\" of f32 2", [&] { concatenate({part({1}), other}); });
}

}  // namespace
}  // namespace frit
