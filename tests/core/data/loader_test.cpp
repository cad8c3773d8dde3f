#include "frit/core/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/io/file_testing.h"
#include "frit/core/cuda/device.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/random.h"
#include "frit/core/thread_pool.h"

namespace frit {
namespace {

/// `count` examples: "input" is the example's number three times, "target" its number.
std::shared_ptr<Dataset> numbers(std::int64_t count) {
  std::vector<std::int64_t> targets(static_cast<std::size_t>(count));
  std::iota(targets.begin(), targets.end(), 0);
  const Tensor target = Tensor::from(targets, {count});
  const Tensor input = target.to(DType::f32).reshape({count, 1}).expand({count, 3});
  return std::make_shared<TensorDataset>(std::vector<TensorDataset::NamedTensor>{{"input", input}, {"target", target}});
}

/// The examples' numbers in the order of one loop, batch after batch.
std::vector<std::vector<double>> epoch_of(DataLoader& loader) {
  std::vector<std::vector<double>> batches;
  for (const Batch& batch : loader) {
    batches.push_back(batch["target"].to_vector<double>());
    EXPECT_EQ(batch.size(), batch[0].dim(0));
    for (std::int64_t i = 0; i < batch.size(); ++i) {
      for (int column = 0; column < 3; ++column) {
        EXPECT_EQ(batch[0].data<float>()[i * 3 + column], batches.back()[static_cast<std::size_t>(i)]);
      }
    }
  }
  return batches;
}

TEST(DataLoader, RunsThroughTheDatasetInOrder) {
  DataLoader loader(numbers(7), {.batch_size = 3});
  const std::vector<std::vector<double>> wanted = {{0, 1, 2}, {3, 4, 5}, {6}};
  EXPECT_EQ(loader.batches(), 3);
  EXPECT_EQ(epoch_of(loader), wanted);
  EXPECT_EQ(epoch_of(loader), wanted);
  EXPECT_EQ(loader.epoch(), 2);
}

TEST(DataLoader, CanDropTheLastBatch) {
  DataLoader loader(numbers(7), {.batch_size = 3, .drop_last = true});
  EXPECT_EQ(loader.batches(), 2);
  EXPECT_EQ(epoch_of(loader), (std::vector<std::vector<double>>{{0, 1, 2}, {3, 4, 5}}));
}

TEST(DataLoader, BatchesHaveNames) {
  DataLoader loader(numbers(2), {.batch_size = 2});
  for (const Batch& batch : loader) {
    EXPECT_EQ(batch.fields(), 2);
    EXPECT_EQ(batch.name(0), "input");
    EXPECT_EQ(batch["input"].raw(), batch[0].raw());
    expect_error(ErrorKind::argument, "Batch: no field \"targets\"; did you mean \"target\"?", [&] { batch["targets"]; });
    expect_error(ErrorKind::argument, "Batch: no field 2, there are 2", [&] { batch[2]; });
  }
}

TEST(DataLoader, TheOrderDependsOnSeedAndEpochAlone) {
  std::vector<std::vector<double>> flat;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<std::int64_t> order = permutation(101, 5, epoch);
    flat.emplace_back(order.begin(), order.end());
  }
  EXPECT_NE(flat[0], flat[1]);
  const int threads_before = thread_count();
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    for (const std::int64_t prefetch : {0, 1, 2, 50}) {
      DataLoader loader(numbers(101), {.batch_size = 10, .shuffle = true, .seed = 5, .prefetch = prefetch});
      for (const std::vector<double>& wanted : flat) {
        std::vector<double> order;
        for (const std::vector<double>& batch : epoch_of(loader)) order.insert(order.end(), batch.begin(), batch.end());
        EXPECT_EQ(order, wanted) << "prefetch " << prefetch;
      }
    }
  }
  set_thread_count(threads_before);
}

TEST(DataLoader, ResumesInTheMiddleOfAnEpoch) {
  const DataLoaderOptions options{.batch_size = 4, .shuffle = true, .seed = 1};
  DataLoader whole(numbers(30), options);
  epoch_of(whole);
  const auto second = epoch_of(whole);
  const auto third = epoch_of(whole);
  DataLoader resumed(numbers(30), options);
  resumed.set_epoch(1, 3);
  EXPECT_EQ(epoch_of(resumed), std::vector(second.begin() + 3, second.end()));
  EXPECT_EQ(epoch_of(resumed), third);
  resumed.set_epoch(0, 8);
  EXPECT_TRUE(epoch_of(resumed).empty());
  expect_error(ErrorKind::argument, "cannot skip 9 of 8 batches", [&] { resumed.set_epoch(0, 9); });
}

TEST(DataLoader, RanksShareTheBatches) {
  for (const std::int64_t examples : {0, 1, 3, 4, 5, 23, 24, 25, 26, 29, 36}) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const bool shuffle : {false, true}) {
        for (const bool drop_last : {false, true}) {
          DataLoaderOptions options{.batch_size = 12, .shuffle = shuffle, .seed = 3, .drop_last = drop_last};
          DataLoader alone(numbers(examples), options);
          std::vector<std::vector<double>> wanted = epoch_of(alone), found(wanted.size());
          for (std::vector<double>& batch : wanted)
            batch.resize(batch.size() / static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks));
          if (!wanted.empty() && wanted.back().empty()) wanted.pop_back(), found.pop_back();
          options.ranks = ranks;
          for (options.rank = 0; options.rank < ranks; ++options.rank) {
            DataLoader loader(numbers(examples), options);
            ASSERT_EQ(loader.batches(), std::ssize(wanted));
            const auto parts = epoch_of(loader);
            ASSERT_EQ(parts.size(), wanted.size());
            for (std::size_t i = 0; i < parts.size(); ++i) {
              EXPECT_EQ(parts[i].size() * static_cast<std::size_t>(ranks), wanted[i].size()) << "each as many";
              found[i].insert(found[i].end(), parts[i].begin(), parts[i].end());
            }
          }
          EXPECT_EQ(found, wanted) << examples << " examples, " << ranks << " ranks";
        }
      }
    }
  }
}

TEST(DataLoader, AnyNumberOfRanksResumesInTheMiddleOfAnEpoch) {
  DataLoaderOptions options{.batch_size = 6, .shuffle = true, .seed = 1};
  DataLoader alone(numbers(30), options);
  alone.set_epoch(4, 3);
  const auto wanted = epoch_of(alone);
  options.ranks = 3;
  std::vector<std::vector<double>> found(wanted.size());
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    DataLoader loader(numbers(30), options);
    loader.set_epoch(4, 3);
    const auto parts = epoch_of(loader);
    ASSERT_EQ(parts.size(), wanted.size());
    for (std::size_t i = 0; i < parts.size(); ++i) found[i].insert(found[i].end(), parts[i].begin(), parts[i].end());
  }
  EXPECT_EQ(found, wanted);
}

TEST(DataLoader, AnAbandonedEpochEndsCleanly) {
  DataLoader loader(numbers(100), {.batch_size = 1, .prefetch = 3});
  for (int taken = 1; taken < 20; ++taken) {
    int count = 0;
    for (const Batch& batch : loader) {
      EXPECT_EQ(batch[1].item(), count);
      if (++count == taken) break;
    }
  }
  EXPECT_EQ(epoch_of(loader).size(), 100u);
  loader.begin();  // and the loader goes while its thread reads
}

TEST(DataLoader, ABatchStaysAsItIsWhileTheNextOnesAreRead) {
  for (const std::int64_t prefetch : {1, 2, 5}) {
    DataLoader loader(numbers(200), {.batch_size = 2, .prefetch = prefetch});
    double next = 0;
    for (const Batch& batch : loader) {
      std::this_thread::yield();
      EXPECT_EQ(batch[1].to_vector<double>(), (std::vector<double>{next, next + 1}));
      next += 2;
    }
    EXPECT_EQ(next, 200);
  }
}

TEST(DataLoader, LaterEpochsAllocateNothing) {
  DataLoader loader(numbers(25), {.batch_size = 4, .shuffle = true});
  for ([[maybe_unused]] const Batch& batch : loader) {
  }
  const std::uint64_t before = allocator_of(Device::cpu()).statistics().allocations;
  std::set<const void*> buffers;
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (const Batch& batch : loader) buffers.insert(batch[0].raw());
  }
  EXPECT_EQ(allocator_of(Device::cpu()).statistics().allocations, before);
  EXPECT_EQ(buffers.size(), 3u) << "the loop's batch, and two read ahead";
}

TEST(DataLoader, RunsOverAnEmptyDataset) {
  DataLoader loader(numbers(0), {.batch_size = 4, .shuffle = true});
  EXPECT_EQ(loader.batches(), 0);
  EXPECT_TRUE(epoch_of(loader).empty());
}

/// Fails at one example.
class FailingDataset final : public Dataset {
 public:
  explicit FailingDataset(std::int64_t bad) : bad_(bad) {}
  std::int64_t size() const override { return 10; }
  const std::vector<Field>& fields() const override { return fields_; }
  void read(std::span<const std::int64_t> indices, std::span<const Tensor>, const Epoch&) const override {
    if (std::find(indices.begin(), indices.end(), bad_) != indices.end()) fail(ErrorKind::format, "example ", bad_, " is damaged");
  }

 private:
  std::int64_t bad_;
  std::vector<Field> fields_ = {{"x", DType::f32, {}}};
};

TEST(DataLoader, RethrowsWhatTheDatasetThrows) {
  for (const std::int64_t prefetch : {0, 1, 4}) {
    for (const std::int64_t bad : {0, 7}) {
      DataLoader loader(std::make_shared<FailingDataset>(bad), {.batch_size = 2, .prefetch = prefetch});
      for (int epoch = 0; epoch < 2; ++epoch) {
        std::int64_t batches = 0;
        const auto run = [&] {
          for ([[maybe_unused]] const Batch& batch : loader) ++batches;
        };
        expect_error(ErrorKind::format, "is damaged", run);
        EXPECT_EQ(batches, bad / 2) << "those before it arrive";
      }
    }
  }
}

TEST(DataLoader, RefusesImpossibleOptions) {
  expect_error(ErrorKind::argument, "batch_size must be at least 1, got 0", [] { DataLoader(numbers(1), {.batch_size = 0}); });
  expect_error(ErrorKind::argument, "prefetch must not be negative, got -1", [] { DataLoader(numbers(1), {.prefetch = -1}); });
  expect_error(ErrorKind::argument, "dataset is null", [] { DataLoader(nullptr); });
  expect_error(ErrorKind::argument, "rank 2 of 2", [] { DataLoader(numbers(8), {.batch_size = 4, .rank = 2, .ranks = 2}); });
  expect_error(ErrorKind::argument, "batch_size 4 does not divide by 3 ranks",
               [] { DataLoader(numbers(8), {.batch_size = 4, .rank = 0, .ranks = 3}); });
}

/// What a loop sees of batches on a GPU, added up there without the host waiting: the loader may not write what is still to be read.
TEST(CudaDataLoader, GivesTheBatchesOfTheCpu) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device gpu{DeviceKind::cuda, 0};
  const Tensor values = Tensor::empty({203, 5000});
  fill_normal(values, 0, 1, 1, 1);
  const auto data = std::make_shared<TensorDataset>(std::vector<TensorDataset::NamedTensor>{{"input", values}});
  for (const std::int64_t prefetch : {0, 1, 4}) {
    DataLoader on_cpu(data, {.batch_size = 10, .shuffle = true, .prefetch = prefetch});
    DataLoader on_gpu(data, {.batch_size = 10, .shuffle = true, .prefetch = prefetch, .device = gpu});
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::vector<Tensor> seen;
      for (const Batch& batch : on_gpu) {
        EXPECT_EQ(batch[0].device(), gpu);
        seen.push_back(batch[0].clone());
        if (epoch == 1 && seen.size() == 7) break;
      }
      std::size_t i = 0;
      for (const Batch& batch : on_cpu) {
        if (i == seen.size()) break;
        ASSERT_EQ(seen[i].to_vector<float>(), batch[0].to_vector<float>()) << "epoch " << epoch << ", batch " << i;
        ++i;
      }
    }
  }
}

TEST(CudaDataLoader, EpochsAfterTheFirstAllocateNothing) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const Device gpu{DeviceKind::cuda, 0};
  DataLoader loader(numbers(64), {.batch_size = 8, .device = gpu});
  std::uint64_t before = 0;
  for (int epoch = 0; epoch < 3; ++epoch) {
    if (epoch == 1) before = allocator_of(gpu).statistics().allocations;
    std::int64_t examples = 0;
    for (const Batch& batch : loader) examples += batch.size();
    EXPECT_EQ(examples, 64);
  }
  EXPECT_EQ(allocator_of(gpu).statistics().allocations, before);
}

}  // namespace
}  // namespace frit
