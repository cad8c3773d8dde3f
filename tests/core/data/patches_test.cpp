#include "frit/core/data/patches.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "core/data/dataset_testing.h"
#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/data/files.h"

namespace frit {
namespace {

PatchDataset patches_of(const Shape& extent, const PatchOptions& options) { return PatchDataset({{"x", counting(extent)}}, options); }

TEST(PatchDataset, CutsAllTensorsAtTheSamePlace) {
  const Tensor volume = counting({2, 4, 6}), truth = counting({4, 6});
  const PatchDataset patches({{"image", volume}, {"truth", truth}}, {.size = {2, 3}});
  EXPECT_EQ(patches.size(), 4);
  EXPECT_EQ(patches.fields()[0].shape, (Shape{2, 2, 3}));
  EXPECT_EQ(patches.fields()[1].shape, (Shape{2, 3}));
  const std::vector<Tensor> batch = read(patches, {3, 0});
  EXPECT_EQ(batch[1].to_vector<float>(), (std::vector<float>{15, 16, 17, 21, 22, 23, 0, 1, 2, 6, 7, 8}));
  EXPECT_EQ(batch[0].slice(1, 1, 2).slice(0, 1, 2).to_vector<float>(), (std::vector<float>{24, 25, 26, 30, 31, 32}));
}

TEST(PatchDataset, CoversTheEdgeWhereTheStrideDoesNotEndThere) {
  const PatchDataset patches = patches_of({7}, {.size = {3}, .stride = {2}});
  std::vector<std::int64_t> begins;
  for (std::int64_t i = 0; i < patches.size(); ++i) begins.push_back(patches.position(i)[0]);
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 2, 4}));
  EXPECT_EQ(patches_of({8}, {.size = {3}}).position(2), (Dims{5}));
  EXPECT_EQ(patches_of({3, 4}, {.size = {3, 4}}).size(), 1);
}

TEST(PatchDataset, RandomPlacesDependOnSeedEpochAndExampleAlone) {
  const PatchDataset patches = patches_of({20, 30}, {.size = {4, 5}, .random = 500});
  EXPECT_EQ(patches.size(), 500);
  std::set<std::int64_t> rows, columns;
  int same_as_next_epoch = 0;
  for (std::int64_t i = 0; i < 500; ++i) {
    const Dims place = patches.position(i, {7, 1});
    EXPECT_EQ(place, patches.position(i, {7, 1}));
    same_as_next_epoch += place == patches.position(i, {7, 2});
    rows.insert(place[0]);
    columns.insert(place[1]);
    EXPECT_EQ(read(patches, {i}, {7, 1})[0].to_vector<float>()[0], static_cast<float>(place[0] * 30 + place[1]));
  }
  EXPECT_EQ(rows.size(), 17u) << "every place occurs, the last one too";
  EXPECT_EQ(columns.size(), 26u);
  EXPECT_LT(same_as_next_epoch, 10);
}

TEST(PatchDataset, RefusesWhatDoesNotFit) {
  expect_error(ErrorKind::argument, "a patch of 3x9 does not fit into 4x6", [] { patches_of({4, 6}, {.size = {3, 9}}); });
  expect_error(ErrorKind::argument, "a patch of 0 does not fit", [] { patches_of({4}, {.size = {0}}); });
  expect_error(ErrorKind::argument, "the stride must be at least 1", [] { patches_of({4}, {.size = {1}, .stride = {0}}); });
  expect_error(ErrorKind::argument, "the patch has 1 axes, the stride 2", [] { patches_of({4}, {.size = {1}, .stride = {1, 1}}); });
  expect_error(ErrorKind::argument, "\"x\" needs 2 axes to cut", [] { patches_of({4}, {.size = {1, 1}}); });
  expect_error(ErrorKind::argument, "\"y\" is 5, \"x\" is 4", [] {
    PatchDataset({{"x", counting({4})}, {"y", counting({5})}}, {.size = {1}});
  });
}

/// A volume of 2x3x4 voxels that count from `first`.
std::string volume(float first, std::int16_t width = 4) {
  std::vector<float> voxels(static_cast<std::size_t>(6 * width));
  for (std::size_t i = 0; i < voxels.size(); ++i) voxels[i] = first + static_cast<float>(i);
  return nifti_file({.dim = {width, 3, 2}}, bytes_of(voxels));
}

TEST(NiftiDataset, ReadsOnePairOrAFolderOfPairs) {
  FRIT_SKIP_WITHOUT("libnifti2");
  const TemporaryFolder folder;
  write_text(folder / "inputs.nii", volume(0));
  write_text(folder / "targets.nii.gz", gzipped(volume(100)));
  const std::shared_ptr<Dataset> whole = read_dataset(folder.path());
  EXPECT_EQ(whole->size(), 1);
  EXPECT_EQ(whole->fields()[0].shape, (Shape{1, 2, 3, 4}));
  EXPECT_EQ(whole->fields()[1].shape, (Shape{2, 3, 4}));
  EXPECT_EQ(read(*whole, {0})[1].to_vector<float>()[23], 123);
  EXPECT_EQ(read_dataset(folder.path(), Split::train, {.patches = {.size = {1, 3, 2}}})->size(), 4);

  std::filesystem::create_directories(folder / "many/inputs");
  std::filesystem::create_directories(folder / "many/targets");
  for (const std::string name : {"b", "a"}) {
    write_text(folder / ("many/inputs/" + name + ".nii"), volume(name == "a" ? 0 : 1000));
    write_text(folder / ("many/targets/" + name + ".nii.gz"), gzipped(volume(name == "a" ? 100 : 2000)));
  }
  const std::shared_ptr<Dataset> many = read_dataset(folder / "many");
  EXPECT_EQ(many->size(), 2);
  EXPECT_EQ(read(*many, {1})[0].to_vector<float>()[0], 1000);
  EXPECT_EQ(read(*many, {0, 1})[1].to_vector<float>()[24], 2000);

  write_text(folder / "many/inputs/c.nii", volume(0, 5));
  expect_error(ErrorKind::file_system, "targets/c.nii or .nii.gz: no such file, for", [&] { read_dataset(folder / "many"); });
  write_text(folder / "many/targets/c.nii", volume(0));
  expect_error(ErrorKind::format, "targets/c.nii: expected the size of ", [&] { read_dataset(folder / "many"); });
  write_text(folder / "many/targets/c.nii", volume(0, 5));
  expect_error(ErrorKind::format, "inputs/c.nii: expected 1x2x3x4 as in ", [&] { read_dataset(folder / "many"); });
  EXPECT_EQ(read_dataset(folder / "many", Split::train, {.patches = {.size = {2, 3, 4}}})->size(), 4) << "two in the wider volume";
  expect_error(ErrorKind::format, "inputs/a.nii: PatchDataset: a patch of 2x3x5 does not fit into 2x3x4", [&] {
    read_dataset(folder / "many", Split::train, {.patches = {.size = {2, 3, 5}}});
  });
}

}  // namespace
}  // namespace frit
