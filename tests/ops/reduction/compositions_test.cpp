#include "frit/ops/reduction/reduction.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

TEST(Variance, IsExactFarFromZero) {
  const Tensor x = Tensor::from<double>({4096, 4097, 4098, 4099}, {4}).to(DType::f32);
  EXPECT_EQ(evaluate([](const Values& v) { return variance(v[0], {}, false, 0); }, {x}).output, std::vector<double>{1.25});
  EXPECT_TRUE(equal_numbers(evaluate([](const Values& v) { return variance(v[0], {0}, false, 4); }, {x}).output, {inf}));
}

}  // namespace
}  // namespace frit
