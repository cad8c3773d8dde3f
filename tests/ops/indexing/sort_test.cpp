#include "frit/ops/indexing/sort.h"

#include "frit/core/cuda/device.h"
#include "frit/core/random.h"
#include "frit/ops/indexing/indexing.h"
#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

TEST(TopK, TakesEachElementOnce) {
  const Tensor x = Tensor::from<double>({-inf, -inf, 2, -inf, nan, 2}, {6});
  EXPECT_EQ(evaluate([](const Values& v) { return top_k(v[0], 6).indices; }, {x}).output, (std::vector<double>{4, 2, 5, 0, 1, 3}));
  const Evaluation result = evaluate([](const Values& v) { return top_k(v[0], 2, 0).values; }, {x});
  EXPECT_TRUE(equal_numbers(result.output, {nan, 2}));
  EXPECT_EQ(result.gradients[0], (std::vector<double>{0, 0, 1, 0, 1, 0}));
  Graph graph;
  EXPECT_EQ(message_of([&] { top_k(graph.input("x", {2, 3}), 4); }), "top_k: k must be in [0, 3], got 4 (input 2x3)");
}

TEST(Sort, IsStableAndPutsNanLast) {
  const Tensor x = Tensor::from<double>({nan, 2, -0.0, inf, 0.0, -inf, 2, nan}, {8});
  const auto places = [&](bool descending) { return evaluate([&](const Values& v) { return argsort(v[0], 0, descending); }, {x}).output; };
  EXPECT_EQ(places(false), (std::vector<double>{5, 2, 4, 1, 6, 3, 0, 7}));
  EXPECT_EQ(places(true), (std::vector<double>{0, 7, 3, 1, 6, 2, 4, 5}));
  const std::vector<double> sorted = evaluate([](const Values& v) { return sort(v[0]).values; }, {x}).output;
  EXPECT_TRUE(equal_numbers(sorted, {-inf, -0.0, 0.0, 2, 2, inf, nan, nan}));
  EXPECT_TRUE(std::signbit(sorted[1]) && !std::signbit(sorted[2])) << "zeros are moved, not made";
}

TEST(Sort, OrdersTheEndsOfIntegers) {
  const Tensor x = Tensor::from<std::int64_t>({0, INT64_MAX, -1, INT64_MIN, 1}, {5});
  EXPECT_EQ(ops::run("sort", {x}, ops::SortAttributes{})[0].to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{INT64_MIN, -1, 0, 1, INT64_MAX}));
}

TEST(Sort, RefusesMoreThanALineHas) {
  Graph graph;
  EXPECT_EQ(message_of([&] {
              ops::emit("sort", {graph.input("x", {2, 3})}, ops::SortAttributes{1, false, 4});
            }),
            "sort: count must be in [0, 3], or -1 for all, got 4 (input 2x3)");
  EXPECT_EQ(message_of([&] { sort(graph.input("y", {2, 3}), 2); }), "sort: axis 2 is outside [-2, 2)");
}

/// In registers, and all lines together; of keys with the line in them, and by two sorts. Many elements are equal.
TEST(SortCuda, GivesWhatTheCpuGives) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i64, DType::u8}) {
    for (const Shape& shape : {Shape{3, 1000, 2}, Shape{2, 4097, 3}, Shape{1, 100'000, 1}}) {
      for (const std::int64_t count : {-1, 50}) {
        SCOPED_TRACE(concat(dtype, ' ', shape, ' ', count));
        Tensor x = Tensor::empty(shape, DType::f64);
        fill_uniform(x, 0, 200, /*seed=*/1, /*stream=*/0);
        x = x.to(DType::u8).to(dtype);
        const ops::SortAttributes attributes{1, true, count};
        const std::vector<Tensor> expected = ops::run("sort", {x}, attributes);
        const std::vector<Tensor> found = ops::run("sort", {x.to(Device{DeviceKind::cuda, 0})}, attributes);
        for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(same_bits(found[i].to(Device::cpu()), expected[i])) << "result " << i;
      }
    }
  }
}

}  // namespace
}  // namespace frit
