#include "frit/ops/reduction/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "frit/core/random.h"
#include "frit/eigen.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/sum_tile.h"

namespace frit {
namespace {

using ops::ReductionAttributes;
using ops::ReductionPlan;

/// Of the rows of a matrix whose columns are what is summed.
std::vector<std::int64_t> sums_by_definition(const Tensor& x, const Dims& axes) {
  Dims order;
  std::int64_t rows = 1, columns = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
    order.push_back(axis);
    rows *= x.shape()[axis];
  }
  for (const std::int64_t axis : axes) {
    order.push_back(axis);
    columns *= x.dim(axis);
  }
  // Eigen takes parts of matrices by adding to their address, which is null where there is nothing.
  if (x.elements() == 0) return std::vector<std::int64_t>(static_cast<std::size_t>(rows));
  return from_eigen(eigen_matrix<std::int64_t>(x.permute(order).clone().reshape({rows, columns})).rowwise().sum())
      .to_vector<std::int64_t>();
}

Dims axes_of(unsigned subset, int rank) {
  Dims axes;
  for (int axis = 0; axis < rank; ++axis) {
    if ((subset & (1u << axis)) != 0) axes.push_back(axis);
  }
  return axes;
}

// Around the widths of tiles, lanes and segments, every set of axes.
TEST(ReductionPlan, VisitsEveryElementOnce) {
  const Shape shapes[] = {
      {1},        {63},        {64},         {65},        {70001},         {257, 3},        {3, 257},         {130, 64, 9},
      {5, 1, 70}, {3, 513, 2}, {2, 300, 65}, {40000, 3},  {3, 40000},      {2, 3, 4, 5, 6}, {7, 2, 66, 1, 5}, {2, 2, 2, 2, 2, 2, 3, 3},
      {1, 1, 1},  {0, 3},      {3, 0},       {2, 0, 257}, {600, 2, 3, 17}, {1000, 100}};
  for (const Shape& shape : shapes) {
    const Tensor x = Tensor::empty(shape, DType::i64);
    std::int64_t next = 0;
    for (std::int64_t& value : x.span<std::int64_t>()) value = (next++ * 7919) % 1009;
    for (unsigned subset = 1; subset < (1u << shape.rank()); ++subset) {
      const Dims axes = axes_of(subset, shape.rank());
      SCOPED_TRACE(concat("shape ", shape, " axes ", axes));
      EXPECT_EQ(ops::run("sum", {x}, ReductionAttributes{axes, true})[0].to_vector<std::int64_t>(), sums_by_definition(x, axes));
    }
  }
}

// Results are in order wherever the channels lie.
TEST(ReductionPlan, VisitsEveryElementOfChannelsLastImages) {
  for (const Shape& shape : {Shape{2, 3, 4, 5}, {3, 65, 2, 7}, {2, 257, 3, 1}, {1, 2, 130, 64}, {2, 3, 4, 5, 6}, {7, 16, 1, 5, 2}}) {
    const Tensor x = Tensor::empty(shape, DType::i64);
    std::int64_t next = 0;
    for (std::int64_t& value : x.span<std::int64_t>()) value = (next++ * 7919) % 1009;
    const Tensor last = x.contiguous(Layout::channels_last);
    const std::int64_t* const data = last.data<std::int64_t>();
    for (unsigned subset = 1; subset < (1u << shape.rank()); ++subset) {
      const Dims axes = axes_of(subset, shape.rank());
      SCOPED_TRACE(concat("shape ", shape, " axes ", axes));
      const ReductionPlan plan(shape, axes, true, Layout::channels_last);
      std::vector<std::byte> scratch(plan.scratch_bytes(sizeof(ops::SumTile<std::int64_t>)));
      std::vector<std::int64_t> sums(static_cast<std::size_t>(element_count(ops::reduced_shape(shape, axes, false))), -1);
      ops::reduce<ops::SumTile<std::int64_t>>(
          plan, scratch, [&](auto& tile, const ops::Rows& rows) { tile.add(rows, [&](std::int64_t i) { return data[i]; }); },
          [&](const auto& tile, const ops::Block& block) { block.store(sums.data(), tile.sum); });
      EXPECT_EQ(sums, sums_by_definition(x, axes));
    }
  }
}

TEST(ReductionPlan, CutsAFewLongResultsIntoSegments) {
  EXPECT_GT(ReductionPlan({1'000'000}, {0}).segments(), 32);
  EXPECT_GT(ReductionPlan({2, 1'000'000}, {1}).segments(), 32);
  EXPECT_EQ(ReductionPlan({2, 1'000'000}, {1}, /*may_split=*/false).segments(), 1);
  EXPECT_EQ(ReductionPlan({1000}, {0}).segments(), 1);
  EXPECT_EQ(ReductionPlan({1000, 1000}, {1}).segments(), 1);
  EXPECT_EQ(ReductionPlan({1000}, {0}).scratch_bytes(64), 0u);
}

TEST(ReductionPlan, HasTheSameBitsOnAnyNumberOfThreads) {
  const int threads = thread_count();
  const Tensor x = Tensor::empty({6, 50, 7001}, DType::f32);
  fill_normal(x, 0, 1, 1, 1);
  for (const char* op : {"sum", "logsumexp", "amax"}) {
    for (const Dims& axes : {Dims{0, 1, 2}, Dims{0, 2}, Dims{1}, Dims{2}, Dims{0}}) {
      set_thread_count(1);
      const Tensor expected = ops::run(op, {x}, ReductionAttributes{axes, false})[0];
      for (const int count : {2, 3, 8}) {
        set_thread_count(count);
        const Tensor result = ops::run(op, {x}, ReductionAttributes{axes, false})[0];
        EXPECT_EQ(std::memcmp(result.raw(), expected.raw(), static_cast<std::size_t>(expected.bytes())), 0)
            << op << ' ' << axes << ' ' << count;
      }
    }
  }
  set_thread_count(threads);
}

/// Values with ties, and special ones at the ends of some lines.
Tensor lines_of(std::int64_t lines, std::int64_t count, DType dtype) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < lines * count; ++i) values.push_back(static_cast<double>(i * 7919 % 13) - 6);
  const double specials[] = {std::nan(""), INFINITY, -INFINITY};
  for (std::int64_t line = 2; line < lines; line += 5) values[static_cast<std::size_t>((line + line % 2) * count - 1)] = specials[line % 3];
  return Tensor::from(values, {lines, count}).to(dtype);
}

TEST(Reduce, ShortLinesAreWhatTheSameColumnsAre) {
  for (const auto& [lines, count] : {std::pair(300, 1), {1001, 7}, {70, 33}, {70, 64}, {130, 64}, {130, 65}}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::i32}) {
      const bool real = is_floating(dtype);
      const Tensor x = real ? lines_of(lines, count, dtype) : lines_of(lines, count, DType::f64).to(dtype);
      const Tensor columns = x.permute({1, 0}).contiguous();
      for (const std::string name : {"max", "min", "argmax", "amax", "amin", "logsumexp"}) {
        if (!real && name == "logsumexp") continue;
        SCOPED_TRACE(concat(name, ' ', lines, 'x', count, ' ', dtype));
        const auto along = [&](std::int64_t axis) -> ops::Attributes {
          if (name == "amax" || name == "amin" || name == "logsumexp") return ReductionAttributes{{axis}, false};
          return ops::AxisReductionAttributes{axis, false};
        };
        const std::vector<Tensor> found = ops::run(name, {x}, along(1)), expected = ops::run(name, {columns}, along(0));
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const double tolerance = name != "logsumexp" ? 0 : dtype == DType::f32 ? 1e-6 : 1e-14;
          const std::vector<double> a = found[i].to(DType::f64).to_vector<double>(), b = expected[i].to(DType::f64).to_vector<double>();
          ASSERT_EQ(a.size(), b.size());
          for (std::size_t k = 0; k < a.size(); ++k) {
            const bool same = a[k] == b[k] || (std::isnan(a[k]) && std::isnan(b[k])) || std::abs(a[k] - b[k]) <= tolerance * std::abs(b[k]);
            ASSERT_TRUE(same) << "result " << i << " of line " << k << ": " << a[k] << ", expected " << b[k];
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace frit
