#include "frit/core/communication/communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "frit/core/error.h"
#include "several_processes.h"

/// Asked for by ThreadSanitizer alone: Open MPI takes locks of its own in either order while it starts.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "deadlock:mca_btl_tcp\n"; }

namespace frit {
namespace {

TEST(Communicator, IsFoundByItsIdWhileItLives) {
  std::int64_t id = 0;
  {
    const auto communicator = Communicator::alone(Device::cpu());
    id = communicator->id();
    EXPECT_EQ(&Communicator::of(id), communicator.get());
  }
  EXPECT_THROW((void)Communicator::of(id), Error);
}

TEST(Communicator, MeansOfOneProcessAreItsTensors) {
  const auto communicator = Communicator::alone(Device::cpu());
  const std::vector<Tensor> tensors = {Tensor::from({1.5, -2.0, 3.0}, {3}), Tensor::zeros({0, 2}), Tensor::full({2, 2}, 7, DType::f16)};
  communicator->mean(tensors, tensors);
  EXPECT_EQ(tensors[0].to_vector<double>(), (std::vector<double>{1.5, -2, 3}));
  EXPECT_EQ(tensors[2].to_vector<double>(), std::vector<double>(4, 7));
  const Tensor other = Tensor::zeros({3}, tensors[0].dtype());
  communicator->mean(std::span(tensors.data(), 1), std::span(&other, 1));
  EXPECT_EQ(other.to_vector<double>(), (std::vector<double>{1.5, -2, 3}));
}

/// Of element i of the tensor number `tensor` in process `rank`.
double element(int rank, std::size_t tensor, std::int64_t i) {
  return (rank + 1) * 0.25 + static_cast<double>(tensor) + static_cast<double>(i % 7) * (rank % 2 == 0 ? 1 : -1);
}

TEST(CommunicatorOverMpi, AddsUpInTheOrderOfRanks) {
  if (!in_several_processes(3)) return;
  const auto communicator = Communicator::from_environment(Device::cpu());
  ASSERT_TRUE(communicator);
  ASSERT_EQ(communicator->size(), 3);
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    std::vector<Tensor> tensors, means;
    for (const Shape& shape : {Shape{3}, Shape{0}, Shape{}, Shape{5, 1031}, Shape{100'000}}) {
      std::vector<double> values;
      for (std::int64_t i = 0; i < element_count(shape); ++i) values.push_back(element(communicator->rank(), tensors.size(), i));
      tensors.push_back(Tensor::from(values, shape).to(dtype));
      means.push_back(tensors.size() % 2 == 0 ? tensors.back() : Tensor::empty(shape, dtype));
    }
    communicator->mean(tensors, means);
    for (std::size_t t = 0; t < means.size(); ++t) {
      const std::vector<double> found = means[t].to_vector<double>();
      for (std::size_t i = 0; i < found.size(); ++i) {
        const auto of = [&](int rank) { return element(rank, t, static_cast<std::int64_t>(i)); };
        EXPECT_NEAR(found[i], (of(0) + of(1) + of(2)) / 3, dtype == DType::bf16 ? 0.05 : dtype == DType::f16 ? 5e-3 : 1e-6) << dtype;
      }
    }
    for (const std::string& text : communicator->all_gather(std::string(static_cast<const char*>(means[3].raw()), 100))) {
      EXPECT_EQ(text, std::string(static_cast<const char*>(means[3].raw()), 100)) << "the same bits in each";
    }
  }
}

TEST(Parts, AreAlikeOrBeginWhereVectorsDo) {
  EXPECT_EQ(Parts(9, 3).size(2), 3);
  for (const int processes : {1, 2, 3, 4, 8, 100}) {
    for (const std::int64_t elements : {0, 1, 7, 64, 1000, 9408, 36864}) {
      const Parts parts(elements, processes);
      std::int64_t end = 0;
      for (int rank = 0; rank < processes; ++rank) {
        EXPECT_EQ(parts.begin(rank), end);
        end = parts.end(rank);
        EXPECT_LE(parts.size(rank), parts.most());
      }
      EXPECT_EQ(end, elements);
      EXPECT_TRUE(parts.rest() == 0 || parts.each() % 8 == 0);
      EXPECT_LT(parts.rest(), 8 * processes);
    }
  }
}

/// Every process's parts of means, and of tensors of other dtypes, in tensors of their own or where they belong.
TEST(CommunicatorOverMpi, ScattersMeansAndGathersParts) {
  if (!in_several_processes(3)) return;
  const auto communicator = Communicator::from_environment(Device::cpu());
  const int rank = communicator->rank();
  for (const bool in_place : {false, true}) {
    std::vector<Tensor> tensors, means, parts, wholes;
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      for (const std::int64_t elements : {0, 1, 9, 1000, 100'000}) {
        std::vector<double> values;
        for (std::int64_t i = 0; i < elements; ++i) values.push_back(element(rank, tensors.size(), i));
        tensors.push_back(Tensor::from(values, {elements}).to(dtype));
        means.push_back(Tensor::empty({elements}, dtype));
        wholes.push_back(in_place ? tensors.back().clone() : Tensor::empty({elements}, dtype));
        const Parts dealt = communicator->parts(elements);
        parts.push_back(in_place ? wholes.back().slice(0, dealt.begin(rank), dealt.end(rank)) : Tensor::empty({dealt.size(rank)}, dtype));
      }
    }
    communicator->mean(tensors, means);
    communicator->reduce_scatter(in_place ? wholes : tensors, parts);
    communicator->all_gather(parts, wholes);
    for (std::size_t t = 0; t < wholes.size(); ++t) {
      EXPECT_EQ(wholes[t].to_vector<double>(), means[t].to_vector<double>()) << t;
      const Tensor first = Tensor::from({element(rank, t, 0)}, {1}).to(tensors[t].dtype());
      if (tensors[t].elements() > 0) {
        EXPECT_EQ(tensors[t].slice(0, 0, 1).item(), first.item()) << "tensors are left as they are";
      }
    }
  }
  const Tensor own = Tensor::full({2}, rank, DType::i64), all = Tensor::empty({6}, DType::i64);
  communicator->all_gather(std::span(&own, 1), std::span(&all, 1));
  EXPECT_EQ(all.to_vector<double>(), (std::vector<double>{0, 0, 1, 1, 2, 2}));
}

TEST(CommunicatorOverMpi, TellsTextsAndNumbers) {
  if (!in_several_processes(3)) return;
  const auto communicator = Communicator::from_environment(Device::cpu());
  const int rank = communicator->rank();
  EXPECT_EQ(communicator->all_gather(std::string(static_cast<std::size_t>(rank), 'x')), (std::vector<std::string>{"", "x", "xx"}));
  EXPECT_EQ(communicator->sum({1.0 * rank, 0.5}), (std::vector<double>{3, 1.5}));
  const Tensor tensor = Tensor::full({4}, rank + 1.0, DType::f64);
  communicator->broadcast(tensor, 1);
  EXPECT_EQ(tensor.to_vector<double>(), std::vector<double>(4, 2.0));
  communicator->require_same("--lr", "0.1");
  try {
    communicator->require_same("--lr", rank == 2 ? "0.2" : "0.1");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--lr: process 2 has 0.2, process 0 has 0.1");
  }
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t i = text.find(part); i != std::string::npos; i = text.find(part, i + 1)) ++count;
  return count;
}

TEST(CommunicatorOverMpi, OneNamesTheProcessThatStaysAway) {
  if (const auto started = start_several_processes(4)) {
    if (IsSkipped()) return;
    EXPECT_FALSE(started->succeeded);
    EXPECT_EQ(count_of(started->output, "MPI: process 1 did not come within 0.5 s to what the other 3 wait for"), 1U) << started->output;
    EXPECT_EQ(count_of(started->output, "did not come"), 1U) << started->output;
    return;
  }
  setenv("FRIT_COMMUNICATION_TIMEOUT", "0.5", 1);  // read when it is first needed
  const auto communicator = Communicator::from_environment(Device::cpu());
  if (communicator->rank() != 1) communicator->barrier();
  std::this_thread::sleep_for(std::chrono::seconds(20));
}

TEST(CommunicatorOverMpi, WaitsLongerForOneThatComes) {
  if (!in_several_processes(3)) return;
  setenv("FRIT_COMMUNICATION_TIMEOUT", "2", 1);  // more than starting takes
  const auto communicator = Communicator::from_environment(Device::cpu());
  for (int late = 0; late < 3; ++late) {
    if (communicator->rank() == late) std::this_thread::sleep_for(std::chrono::seconds(3));  // the others ask for it
    communicator->barrier();
  }
}

}  // namespace
}  // namespace frit
