#include "frit/core/cuda/device.h"

#include <gtest/gtest.h>

#include <cmath>

#include "first_gpu.h"
#include "frit/core/cuda/captured_work.h"
#include "frit/core/cuda/pinned.h"
#include "frit/core/memory/caching_allocator.h"
#include "frit/core/random.h"
#include "frit/core/readback.h"

namespace frit {
namespace {

class CudaDevice : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaDevice, IsTheBestAndIsDescribed) {
  EXPECT_EQ(Device::best(), first_gpu);
  EXPECT_NE(cuda::description(0).find("compute capability"), std::string::npos);
}

TEST_F(CudaDevice, EveryDtypeComesBackAsItWent) {
  for (const DType dtype : all_dtypes) {
    const Tensor there = Tensor::from<double>({1, 0, 3.5, 100, 7, 2}, {2, 3}).to(dtype);
    EXPECT_EQ(there.to(first_gpu).to(Device::cpu()).to_vector<double>(), there.to_vector<double>()) << dtype;
  }
  EXPECT_EQ(Tensor::zeros({0, 3}, DType::f32, first_gpu).to(Device::cpu()).elements(), 0);
}

TEST_F(CudaDevice, ConvertsAsTheCpuDoes) {
  const double infinity = INFINITY;
  const Tensor values = Tensor::from<double>({0, -1.5, 2.5, 1e300, -1e300, infinity, -infinity, std::nan(""), 65520, 3e-8}, {10});
  for (const DType from : all_dtypes) {
    for (const DType to : all_dtypes) {
      const Tensor source = values.to(from);
      const std::vector<double> expected = source.to(to).to_vector<double>(), found = source.to(first_gpu).to(to).to_vector<double>();
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i])))
            << from << " to " << to << ", element " << i << ": " << found[i] << " is not " << expected[i];
      }
    }
  }
}

TEST_F(CudaDevice, CopiesAnyStrides) {
  const Tensor source = Tensor::empty({3, 4, 5, 6});
  fill_normal(source, 0, 1, 1, 1);
  const Tensor there = source.to(first_gpu);
  EXPECT_EQ(there.permute({2, 0, 3, 1}).to_vector<float>(), source.permute({2, 0, 3, 1}).to_vector<float>());
  EXPECT_EQ(there.slice(3, 1, 6, 2).to_vector<float>(), source.slice(3, 1, 6, 2).to_vector<float>());
  EXPECT_EQ(there.contiguous(Layout::channels_last).to_vector<float>(), source.to_vector<float>());
  const Tensor target = Tensor::zeros({3, 4, 5, 6}, DType::f64, first_gpu).transpose(1, 2);
  copy(target, source.transpose(1, 2));
  EXPECT_EQ(target.to_vector<float>(), source.transpose(1, 2).to_vector<float>());
}

TEST_F(CudaDevice, TurnsImagesOfAnySizes) {
  for (const Shape& shape : {Shape{2, 64, 32, 40}, Shape{3, 33, 9, 7}, Shape{1, 16, 50, 50}, Shape{2, 200, 3, 4}, Shape{2, 8, 5, 6, 7}}) {
    for (const DType dtype : {DType::u8, DType::f16, DType::f32, DType::f64}) {
      Tensor source = Tensor::empty(shape);
      fill_normal(source, 3, 1, 1, 1);
      source = source.to(dtype);
      const Tensor turned = source.to(first_gpu).contiguous(Layout::channels_last);
      EXPECT_TRUE(turned.is_contiguous(Layout::channels_last));
      EXPECT_EQ(turned.to_vector<double>(), source.to_vector<double>()) << shape << ' ' << dtype;
      EXPECT_EQ(turned.contiguous().to_vector<double>(), source.to_vector<double>()) << shape << ' ' << dtype;
    }
  }
}

/// As a permutation of channels does, and parts of them.
TEST_F(CudaDevice, CopiesFewNeighboursOfManyRows) {
  const auto expect_same = [](const Tensor& source, const auto& view) {
    const Tensor expected = view(source).contiguous(), there = view(source.to(first_gpu));
    EXPECT_EQ(there.contiguous().template to_vector<double>(), expected.template to_vector<double>()) << source.shape() << source.dtype();
    Shape wide = expected.shape();
    wide[wide.rank() - 1] += 6;
    const Tensor part = Tensor::zeros(wide, source.dtype(), first_gpu).slice(-1, 2, wide[wide.rank() - 1] - 4);
    copy(part, there);
    EXPECT_EQ(part.to_vector<double>(), expected.template to_vector<double>()) << source.shape() << source.dtype();
  };
  for (const std::int64_t rows : {1, 2, 7, 1000}) {
    for (const std::int64_t size : {1, 3, 8, 29, 58, 600}) {
      for (const DType dtype : {DType::u8, DType::f16, DType::f32, DType::f64}) {
        Tensor source = Tensor::empty({rows, 2, size});
        fill_normal(source, 3, 1, 1, 1);
        source = source.to(dtype);
        expect_same(source, [](const Tensor& x) { return x.permute({0, 2, 1}); });
        expect_same(source, [](const Tensor& x) { return x.slice(1, 1, 2); });
        expect_same(source, [](const Tensor& x) { return x.slice(2, 0, x.dim(2), 2); });
        expect_same(source.reshape({rows * 2 * size}), [](const Tensor& x) { return x.slice(0, 1, x.dim(0), 3); });
      }
    }
  }
}

TEST_F(CudaDevice, FillsAndReadsNumbers) {
  const Tensor tensor = Tensor::full({5, 7}, 2.5, DType::f16, first_gpu);
  EXPECT_EQ(tensor.to_vector<double>(), std::vector<double>(35, 2.5));
  EXPECT_EQ(tensor.slice(0, 1, 2).slice(1, 2, 3).item(), 2.5);
}

TEST_F(CudaDevice, OutOfMemorySaysWhatIsWhereAndTheProcessGoesOn) {
  try {
    Tensor::empty({std::int64_t{1} << 50}, DType::u8, first_gpu);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::out_of_memory);
    for (const char* const part : {"cuda:0", "asked for", "reserved", "free on the device"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << ": " << error.what();
    }
  }
  EXPECT_EQ(Tensor::full({4}, 1, DType::f32, first_gpu).to_vector<float>(), std::vector<float>(4, 1));
}

TEST_F(CudaDevice, PinnedMemoryIsTheCallersAgainAfterACopy) {
  const Tensor pinned = cuda::pinned_tensor({1 << 22}, DType::f32);
  for (int run = 0; run < 3; ++run) {
    pinned.fill(run);
    const Tensor there = pinned.to(first_gpu);
    pinned.fill(-1);
    EXPECT_EQ(there.slice(0, (1 << 22) - 1, 1 << 22).item(), run);
  }
}

TEST_F(CudaDevice, ReadbacksSeeTheirTensorAsItWas) {
  const Tensor tensor = Tensor::full({5, 3}, 0, DType::f32, first_gpu);
  Readback readbacks[2];
  readbacks[0].start(tensor);
  for (int run = 1; run < 10; ++run) {
    tensor.fill(run);
    readbacks[run % 2].start(run % 3 == 0 ? tensor.transpose(0, 1) : tensor);
    const Tensor& earlier = readbacks[(run + 1) % 2].get();
    EXPECT_EQ(earlier.device(), Device::cpu());
    EXPECT_EQ(earlier.to_vector<float>(), std::vector<float>(15, static_cast<float>(run - 1)));
  }
}

TEST_F(CudaDevice, AStreamWaitsWhereEventsSaySo) {
  const cuda::Stream stream(0);
  const cuda::Event written(0), copied(0);
  const Tensor tensor = Tensor::zeros({1 << 22}, DType::f32, first_gpu), host = cuda::pinned_tensor({1 << 22}, DType::f32);
  copied.wait();  // nothing was recorded
  for (int run = 0; run < 20; ++run) {
    tensor.fill(run);
    written.record(cuda::compute_stream(0));
    cuda::wait(stream.get(), written);
    cuda::copy_async(host, tensor, stream.get());
    copied.record(stream.get());
    cuda::wait(cuda::compute_stream(0), copied);
    copied.wait();
    ASSERT_EQ(host.data<float>()[(1 << 22) - 1], static_cast<float>(run));
  }
}

TEST_F(CudaDevice, ADamagedRedZoneEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto overrun = [] {
    allocator_of(first_gpu).set_guarded(true);
    const Tensor tensor = Tensor::empty({1000}, DType::u8, first_gpu);
    Tensor::over(static_cast<std::byte*>(tensor.raw()) + 1000, {1}, DType::u8, first_gpu, nullptr).fill(0);
  };
  EXPECT_DEATH(overrun(), "cuda:0: something wrote beyond a block of 1000 bytes: byte 0 of the red zone behind");
}

TEST_F(CudaDevice, FreedMemoryServesAgainAndIsPoisonedWhenAsked) {
  Allocator& allocator = allocator_of(first_gpu);
  allocator.set_guarded(true);
  void* first = nullptr;
  {
    const Tensor tensor = Tensor::empty({1000}, DType::f32, first_gpu);
    first = tensor.raw();
    for (const float value : tensor.to_vector<float>()) ASSERT_TRUE(std::isnan(value));
  }
  const std::uint64_t asked = allocator.statistics().source_allocations;
  EXPECT_EQ(Tensor::empty({1000}, DType::f32, first_gpu).raw(), first);
  EXPECT_EQ(allocator.statistics().source_allocations, asked);
  allocator.set_guarded(guarded_by_environment());
}

TEST_F(CudaDevice, RecordedWorkRunsAtEveryLaunch) {
  const Tensor from = Tensor::full({3}, 1, DType::f32, first_gpu), to = Tensor::full({3}, 0, DType::f64, first_gpu);
  cuda::CapturedWork work;
  work.record(0, {{}}, [&](int) { copy(to, from); });
  EXPECT_EQ(to.to_vector<double>(), (std::vector<double>{0, 0, 0})) << "recording runs nothing";
  work.launch();
  EXPECT_EQ(to.to_vector<double>(), (std::vector<double>{1, 1, 1}));
  from.fill(7);
  work.launch();
  EXPECT_EQ(to.to_vector<double>(), (std::vector<double>{7, 7, 7}));
}

TEST_F(CudaDevice, RecordedPartsWaitForThoseTheyAreSaidToWaitFor) {
  constexpr std::int64_t many = 1 << 22;
  const Tensor ones = Tensor::full({many}, 1, DType::f32, first_gpu), twos = Tensor::full({many}, 2, DType::f32, first_gpu);
  Tensor left = Tensor::full({many}, 0, DType::f32, first_gpu), right = left.clone(), last = left.clone();
  const std::vector<std::pair<Tensor, Tensor>> copies = {{left, ones}, {right, twos}, {last, left}, {left, right}};
  cuda::CapturedWork work;
  work.record(0, {{}, {}, {0}, {1, 2}}, [&](int part) {
    if (part == 1) return;  // starts nothing
    copy(copies[static_cast<std::size_t>(part)].first, copies[static_cast<std::size_t>(part)].second);
  });
  for (int launch = 0; launch < 3; ++launch) {
    right.fill(launch);
    work.launch();
    EXPECT_EQ(last.to_vector<float>(), std::vector<float>(many, 1));
    EXPECT_EQ(left.to_vector<float>(), std::vector<float>(many, static_cast<float>(launch)));
  }
}

TEST_F(CudaDevice, AFailureWhileRecordingLeavesTheDeviceUsable) {
  cuda::CapturedWork work;
  EXPECT_THROW(work.record(0, {{}}, [](int) { fail(ErrorKind::argument, "no"); }), Error);
  EXPECT_FALSE(work.recorded());
  EXPECT_EQ(Tensor::full({2}, 3, DType::f32, first_gpu).to_vector<float>(), std::vector<float>(2, 3));
}

}  // namespace
}  // namespace frit
