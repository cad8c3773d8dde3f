#include "frit/ops/linear/attention.h"

#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(Attention, RefusesWhatDoesNotFit) {
  Graph graph;
  const Value q = graph.input("q", {2, 3, 4}), k = graph.input("k", {2, 5, 3});
  EXPECT_EQ(message_of([&] { attention_weights(q, k); }), "attention: query 2x3x4 and key 2x5x3 must be (..., L, E) and (..., S, E)");
  EXPECT_EQ(message_of([&] {
              attention_weights(q, q, {.mask = graph.input("m", {2, 2, 3, 3})});
            }),
            "attention: mask 2x2x3x3 does not broadcast to 2x3x3");
}

}  // namespace
}  // namespace frit
