#include "frit/ops/pool/pool.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(AdaptivePool, RefusesWhatDoesNotFit) {
  Graph graph;
  const Value x = graph.input("x", {1, 2, 7, 5});
  EXPECT_EQ(message_of([&] { adaptive_avg_pool(x, {0}); }), "adaptive_avg_pool: axis 2 of 7 cannot become 0 (input 1x2x7x5)");
  EXPECT_EQ(message_of([&] {
              adaptive_max_pool(x, {1, 2, 3});
            }),
            "adaptive_max_pool: output_size has 3 numbers, expected 1 or 2 (input 1x2x7x5)");
  EXPECT_EQ(message_of([&] {
              adaptive_max_pool(graph.input("y", {2, 3}), {1});
            }),
            "adaptive_max_pool: input must be (N, C, ...) with 1 to 3 image axes, got 2x3");
  EXPECT_EQ(message_of([&] { adaptive_max_pool(x, {70000}); }),
            "adaptive_max_pool: axis 3 would be made of 70000 slices, at most 65536 are taken");
}

}  // namespace
}  // namespace frit
