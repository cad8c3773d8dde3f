#include "frit/core/shape.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "core/tensor_testing.h"

namespace frit {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

TEST(Dims, GrowsShrinksAndCompares) {
  Dims dims{2, 3};
  EXPECT_EQ(dims.rank(), 2);
  EXPECT_EQ(dims.back(), 3);
  dims.push_back(4);
  dims.insert(0, 7);
  dims.insert(2, 9);
  EXPECT_EQ(dims, (Dims{7, 2, 9, 3, 4}));
  dims.erase(0);
  dims.erase(3);
  EXPECT_EQ(dims, (Dims{2, 9, 3}));
  EXPECT_NE(dims, (Dims{2, 9}));
  EXPECT_NE(dims, (Dims{2, 9, 4}));
  EXPECT_TRUE(Dims().empty());
  EXPECT_EQ(Dims::filled(3, 1), (Dims{1, 1, 1}));
  EXPECT_EQ(Dims(std::vector<std::int64_t>{1, 2}), (Dims{1, 2}));
}

TEST(Dims, HasAtMostEight) {
  Dims dims = Dims::filled(8, 1);
  EXPECT_EQ(argument_error([&] { dims.push_back(1); }), "rank 9 is over the limit of 8");
  EXPECT_EQ(argument_error([&] { dims.insert(0, 1); }), "rank 9 is over the limit of 8");
  EXPECT_EQ(argument_error([] { Dims({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}); }), "rank 10 is over the limit of 8");
  EXPECT_THROW(Dims().erase(0), Error);
}

TEST(Dims, ComesFromOneInteger) {
  const Dims dims = 3;
  EXPECT_EQ(dims, (Dims{3}));
  EXPECT_EQ(Dims(std::size_t{3}), dims);
  static_assert(!std::is_convertible_v<bool, Dims> && !std::is_convertible_v<double, Dims>);
}

TEST(Dims, GivesItsNumbersNames) {
  const auto [n, c, h] = Shape{2, 3, 5}.as<3>();
  EXPECT_EQ(n, 2);
  EXPECT_EQ(c, 3);
  EXPECT_EQ(h, 5);
  EXPECT_EQ(argument_error([] { Shape({2, 3}).as<3>(); }), "expected a shape of rank 3, got 2x3");
}

TEST(Dims, Prints) {
  EXPECT_EQ(concat(Shape{128, 4, 32, 32}), "128x4x32x32");
  EXPECT_EQ(concat(Shape{}), "scalar");
  EXPECT_EQ(concat(Dims{-1}), "-1");
}

TEST(ElementCount, MultipliesWithChecks) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(element_count({2, 0, 4}), 0);
  EXPECT_EQ(element_count({largest}), largest);
  EXPECT_EQ(element_count({largest, largest, 0}), 0);
  EXPECT_EQ(byte_count({2, 3}, 8), 48);
  EXPECT_EQ(argument_error([] { element_count({2, -3}); }), "shape 2x-3 has a negative size");
  EXPECT_EQ(argument_error([] { element_count({0, -3}); }), "shape 0x-3 has a negative size");
  EXPECT_EQ(argument_error([] { element_count({largest, 2}); }), concat("shape ", largest, "x2 has more elements or bytes than 2^63 - 1"));
  EXPECT_EQ(argument_error([] { byte_count({largest / 2}, 4); }),
            concat("shape ", largest / 2, " has more elements or bytes than 2^63 - 1"));
}

TEST(NormalizeAxis, CountsFromEitherEnd) {
  EXPECT_EQ(normalize_axis(0, 3, "max"), 0);
  EXPECT_EQ(normalize_axis(-1, 3, "max"), 2);
  EXPECT_EQ(normalize_axis(-3, 3, "max"), 0);
  EXPECT_EQ(argument_error([] { normalize_axis(3, 3, "max"); }), "max: axis 3 is outside [-3, 3)");
  EXPECT_EQ(argument_error([] { normalize_axis(-4, 3, "max"); }), "max: axis -4 is outside [-3, 3)");
  EXPECT_EQ(argument_error([] { normalize_axis(0, 0, "max"); }), "max: axis 0 is outside [0, 0)");
}

TEST(DenseStrides, BothLayouts) {
  EXPECT_EQ(dense_strides({}), Strides{});
  EXPECT_EQ(dense_strides({2, 3, 4}), (Strides{12, 4, 1}));
  EXPECT_EQ(dense_strides({2, 3, 4, 5}, Layout::channels_last), (Strides{60, 1, 15, 3}));
  EXPECT_EQ(dense_strides({2, 3, 4}, Layout::channels_last), (Strides{12, 1, 3}));
  EXPECT_EQ(dense_strides({2, 0, 4}), (Strides{4, 4, 1}));
  EXPECT_EQ(argument_error([] { dense_strides({2, 3}, Layout::channels_last); }), "channels_last needs a shape of rank 3 or more, got 2x3");
  EXPECT_EQ(dense_strides({0, largest, largest}).rank(), 3);  // no elements, and no overflow either
}

TEST(BroadcastShapes, FollowsNumpy) {
  EXPECT_EQ(broadcast_shapes({2, 3}, {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shapes({4, 1, 3}, {2, 1}), (Shape{4, 2, 3}));
  EXPECT_EQ(broadcast_shapes({}, {5}), (Shape{5}));
  EXPECT_EQ(broadcast_shapes({1}, {0}), (Shape{0}));
  EXPECT_EQ(argument_error([] { broadcast_shapes({2, 3}, {2, 4}); }), "shapes 2x3 and 2x4 do not broadcast: sizes 3 and 4 at axis 1");
  EXPECT_EQ(argument_error([] { broadcast_shapes({5, 2, 3}, {4, 1}); }), "shapes 5x2x3 and 4x1 do not broadcast: sizes 2 and 4 at axis 1");
}

}  // namespace
}  // namespace frit
