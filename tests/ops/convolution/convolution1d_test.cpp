#include "frit/ops/convolution/convolution.h"
#include "frit/ops/linear/attention.h"
#include "frit/ops/pool/pool.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(Convolution1d, RefusesWhatDoesNotFit) {
  Graph graph;
  const Value x = graph.input("x", {1, 2, 7}), w = graph.input("w", {3, 2, 3}), image = graph.input("image", {1, 2, 7, 7});
  EXPECT_EQ(message_of([&] { conv1d(image, w); }), "conv1d: expected an input of rank 3, got 1x2x7x7");
  EXPECT_EQ(message_of([&] { conv1d(x, image); }), "conv1d: expected a weight of rank 3, got 1x2x7x7");
  EXPECT_EQ(message_of([&] { conv1d(x, w, {}, {.stride = {1, 2}}); }), "conv1d: stride has 2 numbers, expected 1");
  EXPECT_EQ(message_of([&] {
              conv_transpose1d(x, w, {}, {.output_padding = {1, 2}});
            }),
            "conv_transpose1d: output_padding has 2 numbers, expected 1");
  EXPECT_EQ(message_of([&] { max_pool1d(image, {.kernel_size = {2}}); }), "max_pool1d: expected an input of rank 3, got 1x2x7x7");
  EXPECT_EQ(message_of([&] { avg_pool1d(x, {.kernel_size = {2, 2}}); }), "avg_pool1d: kernel_size has 2 numbers, expected 1");
}

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
