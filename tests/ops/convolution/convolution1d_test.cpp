#include "frit/ops/convolution/convolution.h"
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

}  // namespace
}  // namespace frit
