#include "frit/ops/operator/run.h"
#include "frit/ops/shape/shape_ops.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(Reshape, InfersOneSize) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 5});
  EXPECT_EQ(reshape(x, {5, -1}).shape(), (Shape{5, 6}));
  EXPECT_EQ(reshape(x, {-1}).shape(), Shape{30});
  EXPECT_EQ(reshape(x, {2, 3, 5}), x);
  EXPECT_EQ(reshape(graph.input("empty", {0, 3}), {-1, 3}).shape(), (Shape{0, 3}));
  EXPECT_EQ(reshape(graph.input("one", {1, 1}), {}).shape(), Shape{});
}

TEST(Reshape, RefusesShapesThatDoNotFit) {
  Graph graph;
  const Value x = graph.input("x", {2, 3}), empty = graph.input("empty", {0, 3});
  EXPECT_EQ(message_of([&] { reshape(x, {7}); }), "reshape: shape 7 does not fit 6 elements (input 2x3)");
  EXPECT_EQ(message_of([&] { reshape(x, {4, -1}); }), "reshape: shape 4x-1 does not fit 6 elements (input 2x3)");
  EXPECT_EQ(message_of([&] { reshape(x, {-1, -1}); }), "reshape: only one size can be inferred, got shape -1x-1");
  EXPECT_EQ(message_of([&] { reshape(empty, {0, -1}); }), "reshape: the size -1 in shape 0x-1 could be any (input 0x3)");
  EXPECT_EQ(message_of([&] { reshape(x, {-2, -3}); }), "reshape: shape -2x-3 has a negative size");
  EXPECT_EQ(message_of([&] {
              reshape(x, {1LL << 40, 1LL << 40});
            }),
            "reshape: shape 1099511627776x1099511627776 has more elements or bytes than 2^63 - 1");
}

TEST(Flatten, MergesAxes) {
  Graph graph;
  const Value x = graph.input("x", {2, 3, 5, 7});
  EXPECT_EQ(flatten(x).shape(), (Shape{2, 105}));
  EXPECT_EQ(flatten(x, 0, 1).shape(), (Shape{6, 5, 7}));
  EXPECT_EQ(flatten(x, -3, -2).shape(), (Shape{2, 15, 7}));
  EXPECT_EQ(flatten(graph.input("scalar", {}), 0).shape(), Shape{1});
  EXPECT_EQ(message_of([&] { flatten(x, 2, 1); }), "flatten: start_axis 2 comes after end_axis 1 (input 2x3x5x7)");
  EXPECT_EQ(message_of([&] { flatten(x, 4); }), "flatten: axis 4 is outside [-4, 4)");
}

}  // namespace
}  // namespace frit
