#include "frit/core/data/transform.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/data/dataset_testing.h"
#include "core/io/file_testing.h"
#include "frit/core/data/loader.h"
#include "frit/core/data/patches.h"

namespace frit {
namespace {

/// `count` images (1, 3, 4), their masks (3, 4) and classes.
std::shared_ptr<Dataset> images(std::int64_t count) {
  const Tensor pixels = counting({count, 1, 3, 4});
  return std::make_shared<TensorDataset>(std::vector<TensorDataset::NamedTensor>{
      {"input", pixels}, {"mask", pixels.reshape({count, 3, 4}).to(DType::u8)}, {"class", counting({count}).to(DType::i64)}});
}

TEST(TransformDataset, TakesTheMiddleWhereNothingIsRandom) {
  const TransformDataset dataset(images(2), {.crop = {1, 2}, .flip = {1}, .random = false});
  EXPECT_EQ(dataset.fields()[0].shape, (Shape{1, 1, 2}));
  EXPECT_EQ(dataset.fields()[1].shape, (Shape{1, 2}));
  EXPECT_EQ(dataset.fields()[2].shape, Shape());
  const std::vector<Tensor> batch = read(dataset, {1, 0});
  EXPECT_EQ(batch[0].to_vector<float>(), (std::vector<float>{17, 18, 5, 6}));
  EXPECT_EQ(batch[1].to_vector<float>(), (std::vector<float>{17, 18, 5, 6}));
  EXPECT_EQ(batch[2].to_vector<float>(), (std::vector<float>{1, 0}));
}

TEST(TransformDataset, LeavesFieldsThatAreToStay) {
  const TransformDataset dataset(images(1), {.crop = {1, 2}, .still = {"mask"}, .random = false});
  EXPECT_EQ(dataset.fields()[1].shape, (Shape{3, 4}));
  EXPECT_EQ(read(dataset, {0})[1].to_vector<float>(), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(TransformDataset, PadsWithZeros) {
  const TransformDataset dataset(images(1), {.padding = {1}, .crop = {5, 6}});
  EXPECT_EQ(read(dataset, {0})[0].to_vector<float>(),
            (std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 4, 5, 6, 7, 0, 0, 8, 9, 10, 11, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(TransformDataset, NormalisesTheInputAlone) {
  const Tensor pixels = Tensor::from<std::uint8_t>({0, 255, 10, 20}, {1, 2, 1, 2});
  const auto source = std::make_shared<TensorDataset>(std::vector<TensorDataset::NamedTensor>{{"input", pixels}, {"target", pixels}});
  const TransformDataset dataset(source, {.subtract = {55, 10}, .divide = {2, 0.5}});
  EXPECT_EQ(dataset.fields()[0].dtype, DType::f32);
  EXPECT_EQ(dataset.fields()[1].dtype, DType::u8);
  EXPECT_EQ(read(dataset, {0})[0].to_vector<float>(), (std::vector<float>{-27.5F, 100, 0, 20}));
  EXPECT_EQ(read(dataset, {0})[1].to_vector<float>(), (std::vector<float>{0, 255, 10, 20}));
}

TEST(TransformDataset, CropsAndFlipsEveryWay) {
  const TransformDataset dataset(images(1), {.crop = {3, 3}, .flip = {0, 1}});
  std::vector<std::vector<float>> seen;
  for (std::uint64_t epoch = 0; epoch < 200; ++epoch) {
    const std::vector<Tensor> batch = read(dataset, {0}, {3, epoch});
    const std::vector<float> image = batch[0].to_vector<float>();
    EXPECT_EQ(image, batch[1].to_vector<float>()) << "the mask goes along";
    if (std::find(seen.begin(), seen.end(), image) == seen.end()) seen.push_back(image);
  }
  EXPECT_EQ(seen.size(), 8u) << "two places, and both axes in both directions";
}

/// Everything random is a function of seed, epoch and example: not of the threads that read ahead, nor of where a training was resumed.
TEST(TransformDataset, IsTheSameForAnyPrefetchAndAfterAResume) {
  const auto patches = std::make_shared<PatchDataset>(std::vector<TensorDataset::NamedTensor>{{"x", counting({1, 9, 9})}},
                                                      PatchOptions{.size = {6, 6}, .random = 20});
  const auto dataset = std::make_shared<TransformDataset>(patches, TransformOptions{.padding = {1}, .crop = {5, 5}, .flip = {0, 1}});
  const auto epochs = [&](DataLoader& loader, int count) {
    std::vector<std::vector<float>> batches;
    for (int epoch = 0; epoch < count; ++epoch) {
      for (const Batch& batch : loader) batches.push_back(batch[0].to_vector<float>());
    }
    return batches;
  };
  DataLoader plain(dataset, {.batch_size = 3, .shuffle = true, .seed = 5, .prefetch = 0});
  const auto wanted = epochs(plain, 3);
  EXPECT_NE(wanted[0], wanted[7]);
  for (const std::int64_t prefetch : {1, 4}) {
    DataLoader loader(dataset, {.batch_size = 3, .shuffle = true, .seed = 5, .prefetch = prefetch});
    EXPECT_EQ(epochs(loader, 3), wanted);
    loader.set_epoch(1, 4);
    EXPECT_EQ(epochs(loader, 2), std::vector(wanted.begin() + 7 + 4, wanted.end()));
  }
  DataLoader other(dataset, {.batch_size = 3, .shuffle = true, .seed = 6});
  EXPECT_NE(epochs(other, 1)[0], wanted[0]);
}

TEST(TransformDataset, RefusesWhatDoesNotFit) {
  const auto make = [](const TransformOptions& options) { TransformDataset(images(1), options); };
  expect_error(ErrorKind::argument, "a crop of 3x9 does not fit into an image of 3x4", [&] { make({.crop = {3, 9}}); });
  expect_error(ErrorKind::argument, "a crop of 3 does not go with an image of 3x4", [&] { make({.crop = {3}}); });
  expect_error(ErrorKind::argument, "cannot flip axis 2 of an image of 3x4", [&] { make({.flip = {2}}); });
  expect_error(ErrorKind::argument, "normalisation of 2 channels, the image has 1", [&] { make({.subtract = {0, 0}, .divide = {1, 1}}); });
  expect_error(ErrorKind::argument, "cannot divide by 0", [&] { make({.subtract = {0}, .divide = {0}}); });
}

TEST(ChannelStatistics, AreOfEachChannel) {
  std::vector<float> values(2 * 150 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = (i / 4) % 2 == 0 ? 1e6F + static_cast<float>(i % 4) : -1;
  const TensorDataset dataset({{"input", Tensor::from(values, {150, 2, 4})}});
  const ChannelStatistics s = channel_statistics(dataset);
  EXPECT_DOUBLE_EQ(s.mean[0], 1e6 + 1.5);
  EXPECT_NEAR(s.deviation[0], std::sqrt(1.25), 1e-9);
  EXPECT_EQ(s.least[0], 1e6);
  EXPECT_EQ(s.largest[0], 1e6 + 3);
  EXPECT_EQ(s.mean[1], -1);
  EXPECT_EQ(s.deviation[1], 0);
  expect_error(ErrorKind::argument, "needs examples", [] { channel_statistics(TensorDataset({{"x", Tensor::zeros({0, 1})}})); });
}

}  // namespace
}  // namespace frit
