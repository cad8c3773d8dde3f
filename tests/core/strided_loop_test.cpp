#include "frit/core/strided_loop.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace frit {
namespace {

TEST(CollapseAxes, MergesWhatEveryOperandWalksInOneStride) {
  Shape shape{2, 3, 4};
  std::vector<Strides> strides{{12, 4, 1}, {24, 8, 2}};
  collapse_axes(shape, strides);
  EXPECT_EQ(shape, (Shape{24}));
  EXPECT_EQ(strides, (std::vector<Strides>{{1}, {2}}));
}

TEST(CollapseAxes, KeepsAnAxisThatOneOperandRepeats) {
  Shape shape{2, 3, 4};
  std::vector<Strides> strides{{12, 4, 1}, {4, 0, 1}};
  collapse_axes(shape, strides);
  EXPECT_EQ(shape, (Shape{2, 3, 4}));
  strides = {{12, 4, 1}, {0, 4, 1}};
  collapse_axes(shape, strides);
  EXPECT_EQ(shape, (Shape{2, 12}));
  EXPECT_EQ(strides[1], (Strides{0, 1}));
}

TEST(CollapseAxes, DropsAxesOfSizeOne) {
  Shape shape{1, 2, 1, 3, 1};
  std::vector<Strides> strides{{99, 3, 77, 1, 55}};
  collapse_axes(shape, strides);
  EXPECT_EQ(shape, (Shape{6}));
  EXPECT_EQ(strides[0], (Strides{1}));
  shape = {1, 1};
  strides = {{5, 7}};
  collapse_axes(shape, strides);
  EXPECT_EQ(shape, (Shape{1}));
  shape = {};
  strides = {{}};
  collapse_axes(shape, strides);
  EXPECT_EQ(shape, (Shape{1}));
  EXPECT_EQ(strides[0].rank(), 1);
}

/// The offset of each element in row-major order, one at a time from the definition.
std::vector<std::int64_t> reference_offsets(const Shape& shape, const Strides& strides) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t element = 0; element < element_count(shape); ++element) {
    std::int64_t offset = 0, rest = element;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      offset += rest % shape[axis] * strides[axis];
      rest /= shape[axis];
    }
    offsets.push_back(offset);
  }
  return offsets;
}

TEST(StridedLoop, VisitsEveryElementOnceAtItsOffset) {
  std::mt19937 generator(3);
  for (int repeat = 0; repeat < 300; ++repeat) {
    Shape shape;
    Strides odd;
    for (int rank = static_cast<int>(generator() % 6); rank > 0; --rank) {
      shape.push_back(1 + static_cast<std::int64_t>(generator() % 9));
      odd.push_back(static_cast<std::int64_t>(generator() % 12) - 4);  // repeated, negative and overlapping ones too
    }
    const Strides dense = dense_strides(shape);
    const std::vector<std::int64_t> expected = reference_offsets(shape, odd);
    std::vector<std::int64_t> seen(expected.size(), std::numeric_limits<std::int64_t>::min());
    strided_loop<2>(shape, {dense, odd}, [&](const auto& offsets, const auto& steps, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) seen[static_cast<std::size_t>(offsets[0] + i * steps[0])] = offsets[1] + i * steps[1];
    });
    ASSERT_EQ(seen, expected) << shape << " strides " << odd;
  }
}

TEST(StridedLoop, SeveralTasksMeetAnywhereInTheShape) {
  const Shape shape{7, 211, 5, 31};  // some 14 tasks, whose ends fall inside the inner axes
  const Strides odd{3, 40'000, 1'000'000, 70};
  const std::vector<std::int64_t> expected = reference_offsets(shape, odd);
  std::vector<std::int64_t> seen(expected.size());
  strided_loop<2>(shape, {dense_strides(shape), odd}, [&](const auto& offsets, const auto& steps, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) seen[static_cast<std::size_t>(offsets[0] + i * steps[0])] += offsets[1] + i * steps[1];
  });
  EXPECT_EQ(seen, expected);
}

TEST(StridedLoop, NothingToDo) {
  strided_loop<1>({3, 0, 2}, {dense_strides({3, 0, 2})}, [](const auto&, const auto&, std::int64_t) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace frit
