#include "frit/core/cuda/nccl.h"

#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>
#include <functional>
#include <thread>
#include <tuple>
#include <vector>

#include "frit/core/communication/parts.h"
#include "frit/core/cuda/captured_work.h"
#include "frit/core/cuda/device.h"
#include "frit/core/cuda/loaded_library.h"
#include "frit/core/error.h"

// A thread for each GPU stands in for a process. Work of several GPUs that is recorded hung so; processes that record it are tested in
// autograd.

namespace frit {
namespace {

/// Threads hand bytes to each other.
class Meeting {
 public:
  explicit Meeting(int size) : size_(size), arrived_(size) {}

  int size() const { return size_; }
  void broadcast(int rank, void* data, std::size_t bytes, int root) {
    if (rank == root) bytes_.assign(static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + bytes);
    arrived_.arrive_and_wait();
    std::copy(bytes_.begin(), bytes_.end(), static_cast<std::byte*>(data));
    arrived_.arrive_and_wait();
  }

 private:
  int size_;
  std::barrier<> arrived_;
  std::vector<std::byte> bytes_;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return meeting_.size(); }
  std::string description() const override { return "threads"; }
  void broadcast(void* data, std::size_t bytes, int root) override { meeting_.broadcast(rank_, data, bytes, root); }
  void all_gather(const void*, void*, std::size_t) override { fail(ErrorKind::bug, "all_gather"); }
  void all_to_all(const void*, void*, std::size_t) override { fail(ErrorKind::bug, "all_to_all"); }
  [[noreturn]] void abort() override { std::abort(); }

 private:
  Meeting& meeting_;
  int rank_;
};

/// Why NCCL cannot be used; empty if it can.
std::string missing_nccl() {
  if (cuda::device_count() == 0) return "no CUDA device";
  try {
    Meeting alone(1);
    ThreadTransport transport(alone, 0);
    (void)cuda::NcclGroup(transport, 0);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

#define FRIT_SKIP_WITHOUT_GPUS(count)                               \
  if (const std::string missing = missing_nccl(); !missing.empty()) \
    GTEST_SKIP() << missing;                                        \
  else if (cuda::device_count() < (count))                          \
  GTEST_SKIP() << cuda::device_count() << " of the " << (count) << " GPUs that it takes"

using Body = std::function<void(cuda::NcclGroup& group, int rank, Device device)>;

void run_on_gpus(int count, const Body& body) {
  Meeting meeting(count);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadTransport transport(meeting, rank);
      cuda::NcclGroup group(transport, rank);
      body(group, rank, {DeviceKind::cuda, rank});
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// A value of each rank that all dtypes hold.
double value_of(int rank, std::int64_t i) { return rank * 8 + static_cast<double>(i % 5); }

Tensor values(int rank, std::int64_t count, DType dtype, Device device) {
  std::vector<double> data(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) data[static_cast<std::size_t>(i)] = value_of(rank, i);
  return Tensor::from(data, {count}).to(dtype).to(device);
}

void expect_mean(const Tensor& result, int size) {
  const std::vector<double> data = result.to_vector<double>();
  for (std::size_t i = 0; i < data.size(); ++i) {
    const double expected = value_of(0, static_cast<std::int64_t>(i)) + 4.0 * (size - 1);
    ASSERT_NEAR(data[i], expected, result.dtype() == DType::f64 ? 1e-12 : 0.01 * expected) << result.dtype() << " at " << i;
  }
}

void check_means(cuda::NcclGroup& group, int rank, Device device, int size) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const std::vector<Tensor> tensors = {values(rank, 1000, dtype, device), values(rank, 1, dtype, device),
                                         values(rank, 300'001, dtype, device)};
    std::vector<Tensor> results = {Tensor::empty({1000}, dtype, device), tensors[1], Tensor::empty({300'001}, dtype, device)};
    group.mean(tensors, results, nullptr);
    cuda::synchronize(device.index);
    for (const Tensor& result : results) expect_mean(result, size);
    EXPECT_EQ(tensors[0].to_vector<double>(), values(rank, 1000, DType::f64, Device::cpu()).to_vector<double>());
  }
}

/// The mean in two halves: parts of it, also where they belong in the whole, which all get then.
void check_parts(cuda::NcclGroup& group, int rank, Device device, int size) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    std::vector<Tensor> tensors, parts, wholes;
    for (const std::int64_t count : {1000, 1, 300'001, 9}) {
      const Parts dealt(count, size);
      tensors.push_back(values(rank, count, dtype, device));
      wholes.push_back(Tensor::empty({count}, dtype, device));
      const bool in_place = count != 1000;
      parts.push_back(in_place ? wholes.back().slice(0, dealt.begin(rank), dealt.end(rank))
                               : Tensor::empty({dealt.size(rank)}, dtype, device));
    }
    group.reduce_scatter(tensors, parts, nullptr);
    group.all_gather(parts, wholes, nullptr);
    cuda::synchronize(device.index);
    for (const Tensor& whole : wholes) expect_mean(whole, size);
    EXPECT_EQ(tensors[0].to_vector<double>(), values(rank, 1000, DType::f64, Device::cpu()).to_vector<double>());
  }
}

/// A step that is recorded once and launched many times.
void check_captured(cuda::NcclGroup& group, int rank, Device device, int size) {
  const Tensor tensor = Tensor::empty({5000}, DType::f32, device), result = Tensor::empty({5000}, DType::f32, device);
  const Tensor other = Tensor::empty({70'000}, DType::f16, device);
  const auto part = [&](int number) {
    const std::vector<Tensor> from = {number == 0 ? tensor : other}, to = {number == 0 ? result : other};
    group.mean(from, to, cuda::compute_stream(device.index));
  };
  for (const int number : {0, 1}) part(number);  // connects the GPUs, which cannot be recorded
  cuda::synchronize(device.index);
  cuda::CapturedWork work;
  work.record(device.index, {{}, {0}}, part);
  for (int i = 0; i < 5; ++i) {
    copy(tensor, values(rank, 5000, DType::f32, device));
    copy(other, values(rank, 70'000, DType::f16, device));
    result.fill(-1);
    work.launch();
    cuda::synchronize(device.index);
    expect_mean(result, size);
    expect_mean(other, size);
  }
}

void check_broadcasts(cuda::NcclGroup& group, int rank, Device device, int size) {
  for (int root = 0; root < size; ++root) {
    const Tensor tensor = values(rank, 777, DType::i64, device);
    group.broadcast(tensor, root);
    cuda::synchronize(device.index);
    EXPECT_EQ(tensor.to_vector<double>(), values(root, 777, DType::f64, Device::cpu()).to_vector<double>());
  }
}

TEST(CudaNccl, WorksOnOneGpu) {
  FRIT_SKIP_WITHOUT_GPUS(1);
  run_on_gpus(1, [](cuda::NcclGroup& group, int rank, Device device) {
    EXPECT_TRUE(group.version().starts_with("NCCL 2."));
    check_means(group, rank, device, 1);
    check_parts(group, rank, device, 1);
    check_captured(group, rank, device, 1);
    check_broadcasts(group, rank, device, 1);
  });
}

TEST(CudaNccl, GivesTheMeanOverGpus) {
  FRIT_SKIP_WITHOUT_GPUS(2);
  for (int size = 2; size <= cuda::device_count(); size *= 2)
    run_on_gpus(size, [size](cuda::NcclGroup& group, int rank, Device device) { check_means(group, rank, device, size); });
}

TEST(CudaNccl, GivesPartsOfMeansAndGathersThem) {
  FRIT_SKIP_WITHOUT_GPUS(2);
  for (int size = 2; size <= cuda::device_count(); ++size)
    run_on_gpus(size, [size](cuda::NcclGroup& group, int rank, Device device) { check_parts(group, rank, device, size); });
}

TEST(CudaNccl, BroadcastsFromAnyGpu) {
  FRIT_SKIP_WITHOUT_GPUS(2);
  const int size = cuda::device_count();
  run_on_gpus(size, [size](cuda::NcclGroup& group, int rank, Device device) { check_broadcasts(group, rank, device, size); });
}

TEST(LoadedLibrary, SaysWhatIsMissing) {
  const cuda::LoadedLibrary nothing{"/nowhere/libnothing.so.1", "libnothing.so.1"}, mathematics{"libm.so.6", "libm.so.6"};
  EXPECT_NE(mathematics.function("cos"), nullptr);
  for (const auto& [library, function, expected] :
       {std::tuple(nothing, "f", "libnothing.so.1 is needed, and cannot be loaded: "),
        std::tuple(mathematics, "no_such_function", "libm.so.6 has no function no_such_function")}) {
    try {
      (void)library.function(function);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::device);
      EXPECT_TRUE(std::string(error.what()).starts_with(expected)) << error.what();
    }
  }
}

}  // namespace
}  // namespace frit
