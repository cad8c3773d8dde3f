// The allocator of a GPU at its limits.

#include "core/memory/random_workload.h"
#include "frit/autograd/train_step.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/loss/loss.h"
#include "large/large_testing.h"

namespace frit {
namespace {

class CudaMemory : public LargeTest {};

/// Both ends of a block, in its pattern.
std::array<Tensor, 2> ends_of(const LiveBlock& block) {
  const auto length = static_cast<std::int64_t>(std::min<std::size_t>(block.bytes, 512));
  const auto over = [&](std::byte* begin) { return Tensor::over(begin, {length}, DType::u8, first_gpu, nullptr); };
  return {over(block.memory), over(block.memory + block.bytes - length)};
}

TEST_F(CudaMemory, RandomWorkload) {
  if (!has_free(40)) GTEST_SKIP() << "needs 40 GB";
  const Tensor patterns = Tensor::empty({256, 512}, DType::u8);
  for (std::int64_t i = 0; i < 256; ++i) patterns.slice(0, i, i + 1).fill(static_cast<double>(i));
  const Tensor there = patterns.to(first_gpu);
  Allocator& allocator = allocator_of(first_gpu);
  allocator.reset_peaks();
  const std::size_t before = allocator.statistics().in_use;
  const auto row = [](const Tensor& rows, const LiveBlock& block, const Tensor& end) {
    return rows.slice(0, block.pattern, block.pattern + 1).slice(1, 0, end.dim(0)).reshape({end.dim(0)});
  };
  const auto mark = [&](const LiveBlock& block) {
    for (const Tensor& end : ends_of(block)) copy(end, row(there, block, end));
  };
  const auto check = [&](const LiveBlock& block) {
    for (const Tensor& end : ends_of(block)) ASSERT_TRUE(same_bits(end.to(Device::cpu()), row(patterns, block, end)));
  };
  const WorkloadResult result =
      run_random_workload(allocator, {.steps = 50'000, .most_live = std::size_t{24} << 30, .mark = mark, .check = check});
  expect_frugal(allocator.statistics(), result);
  EXPECT_EQ(allocator.statistics().in_use, before);
}

/// Takes all of the device's memory but for some `left` bytes.
std::vector<Tensor> hog(std::size_t left) {
  std::vector<Tensor> blocks;
  for (std::size_t piece = std::size_t{1} << 32; piece >= std::size_t{1} << 21; piece /= 2) {
    while (cuda::free_memory(0) >= left + piece) {
      blocks.push_back(Tensor::empty({static_cast<std::int64_t>(piece)}, DType::u8, first_gpu));
    }
  }
  return blocks;
}

TEST_F(CudaMemory, ARealLackOfItSaysWhatIsWhereAndTheNextRunSucceeds) {
  Graph graph;
  const Value image = graph.input("image", {64, 8, 64, 64});
  const Value w = graph.variable(
      "w", {DType::f32, {32, 8, 3, 3}}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(0.01); }, true);
  const Value y = relu(conv2d(image, w));
  const Value loss = mean_squared_error(y, graph.input("target", y.shape()));
  const Bindings batch = {{"image", Tensor::full({64, 8, 64, 64}, 0.5)}, {"target", Tensor::full(y.shape(), 0.25)}};
  const auto train = [&] { return TrainStep(loss, Sgd{}, first_gpu)(batch); };
  const double expected = train();
  allocator_of(first_gpu).trim();
  std::vector<Tensor> taken = hog(std::size_t{64} << 20);
  try {
    train();
    ADD_FAILURE() << "there was enough memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory) << error.what();
    for (const char* const part : {"cuda:0", "asked for", "reserved", "free on the device"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << ": " << error.what();
    }
  }
  taken.clear();
  EXPECT_NEAR(train(), expected, 1e-6 * expected);
}

}  // namespace
}  // namespace frit
