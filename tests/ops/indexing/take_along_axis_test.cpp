#include "frit/ops/indexing/take_along_axis.h"

#include "frit/core/cuda/device.h"
#include "frit/core/random.h"
#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"
#include "ops/operator_checks.h"

namespace frit {
namespace {

TEST(TakeAlongAxis, GivesItsGradientBackWhereItTook) {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Evaluation rows =
      evaluate([](const Values& v) { return ops::take_along_axis(v[0], v[1], 1, false); }, {x, Tensor::from<std::int64_t>({2, 0}, {2})}, 7);
  EXPECT_TRUE(equal_numbers(rows.output, {3, 4}));
  EXPECT_TRUE(equal_numbers(rows.gradients[0], {0, 0, 7, 7, 0, 0}));
  const Evaluation columns = evaluate([](const Values& v) { return ops::take_along_axis(v[0], v[1], 0, true); },
                                      {x, Tensor::from<std::int64_t>({1, 0, 1}, {1, 3})}, 7);
  EXPECT_TRUE(equal_numbers(columns.output, {4, 2, 6}));
  EXPECT_TRUE(equal_numbers(columns.gradients[0], {0, 7, 0, 7, 0, 7}));
}

TEST(TakeAlongAxis, RefusesBadIndices) {
  const auto take = [](std::int64_t index) {
    evaluate([](const Values& v) { return ops::take_along_axis(v[0], v[1], 0, false); },
             {Tensor::zeros({3}), Tensor::full({}, static_cast<double>(index), DType::i64)});
  };
  EXPECT_EQ(message_of([&] { take(3); }), "take_along_axis: input \"indices\" has 3 at element 0, expected an index in [0, 3)");
  EXPECT_EQ(message_of([&] { take(-1); }), "take_along_axis: input \"indices\" has -1 at element 0, expected an index in [0, 3)");
  Graph graph;
  const Value x = graph.input("x", {2, 3});
  EXPECT_EQ(message_of([&] {
              ops::take_along_axis(x, graph.input("wide", {2, 3}, DType::i64), 1, false);
            }),
            "take_along_axis: input \"indices\" must be i64 2, got i64 2x3");
  EXPECT_EQ(message_of([&] {
              ops::put_along_axis(x, graph.input("narrow", {2, 3}, DType::i32), 0, 4, false);
            }),
            "put_along_axis: input \"indices\" must be i64 2x3, got i32 2x3");
  EXPECT_EQ(message_of([&] {
              ops::put_along_axis(x, graph.input("places", {4, 3}, DType::i64), 0, 4, true);
            }),
            "put_along_axis: there are 2 values along axis 0 and 4 indices (values 2x3, indices 4x3)");
  EXPECT_EQ(message_of([&] {
              ops::take_along_axis(x, graph.input("long", {3, 1}, DType::i64), 1, true);
            }),
            "take_along_axis: input \"indices\" must be i64 of the shape 2x3, or with 1s in it, but for axis 1, got i64 3x1");
}

TEST(TakeAlongAxis, TakesSeveralFromALineAndSharesIndices) {
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, 5, 6}, {2, 3});
  const auto of = [&](std::int64_t axis, const Tensor& indices) {
    return evaluate([&](const Values& v) { return ops::take_along_axis(v[0], v[1], axis, true); }, {x, indices}, 7);
  };
  const Evaluation own = of(1, Tensor::from<std::int64_t>({2, 2, 0, 1, 1, 1, 1, 0}, {2, 4}));
  EXPECT_EQ(own.output, (std::vector<double>{3, 3, 1, 2, 5, 5, 5, 4}));
  EXPECT_EQ(own.gradients[0], (std::vector<double>{7, 7, 14, 7, 21, 0}));
  const Evaluation shared = of(0, Tensor::from<std::int64_t>({1, 1, 0}, {3, 1}));
  EXPECT_EQ(shared.output, (std::vector<double>{4, 5, 6, 4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(shared.gradients[0], (std::vector<double>{7, 7, 7, 14, 14, 14}));
}

/// Runs of equal indices that begin, end and go on across chunks, next to indices that are met once or never, and values without sums.
TEST(PutAlongAxisCuda, GivesWhatTheCpuGives) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  const auto expect_same = [](const Tensor& values, const Tensor& indices, const ops::PutAttributes& attributes) {
    const Device gpu{DeviceKind::cuda, 0};
    const Tensor expected = ops::run("put_along_axis", {values, indices}, attributes)[0];
    const Tensor found = ops::run("put_along_axis", {values.to(gpu), indices.to(gpu)}, attributes)[0].to(Device::cpu());
    EXPECT_TRUE(near(found, expected, 1e-10, std::max(1.0, largest_finite(expected)))) << values.shape() << ' ' << attributes.size;
    const Tensor repeated = ops::run("put_along_axis", {values.to(gpu), indices.to(gpu)}, attributes)[0].to(Device::cpu());
    EXPECT_TRUE(same_bits(repeated, found)) << values.shape() << ' ' << attributes.size;
  };
  for (const std::int64_t count : {15, 16, 17, 300, 5000}) {
    for (const std::int64_t size : {1, 3, 40, 20'000}) {
      const Tensor values = Tensor::empty({count, 5}, DType::f64), wide = Tensor::empty({count, 5}, DType::f64);
      fill_normal(values, 0, 1, /*seed=*/1, /*stream=*/0);
      fill_uniform(wide, 0, static_cast<double>(size), /*seed=*/2, /*stream=*/0);
      const Tensor indices = wide.to(DType::i64);
      expect_same(values, indices, {0, size, true});
      expect_same(values, indices.slice(1, 0, 1).contiguous(), {0, size, true});
      if (size == 3) expect_same(values, indices, {1, size, true});
    }
    const Tensor values = Tensor::full({2, count}, 3, DType::f64);
    const std::vector<std::int64_t> order = permutation(2 * count, /*seed=*/3, /*stream=*/0);
    std::vector<std::int64_t> places;
    for (std::int64_t line = 0; line < 2; ++line) {
      for (const std::int64_t place : order) {
        if (place / count == line) places.push_back(place % count);
      }
    }
    expect_same(values, Tensor::from(places, {2, count}), {1, count, true, true});
  }
}

}  // namespace
}  // namespace frit
