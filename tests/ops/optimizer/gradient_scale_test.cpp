#include "frit/ops/optimizer/gradient_scale.h"

#include "frit/ops/operator/run.h"
#include "ops/elementwise/evaluation.h"

namespace frit {
namespace {

struct Scaling {
  Tensor scale = Tensor::full({}, 8), good_steps = Tensor::zeros({}, DType::i64);
  ops::LossScaleAttributes attributes = {.growth_interval = 3};

  double after(double norm) { return ops::run("update_loss_scale", {Tensor::full({}, norm), scale, good_steps}, attributes)[0].item(); }
};

TEST(LossScale, IsUndone) {
  Scaling s;
  EXPECT_EQ(s.after(100), 0.125);
  EXPECT_EQ(s.scale.item(), 8);
  EXPECT_EQ(s.good_steps.item(), 1);
}

TEST(LossScale, IsHalvedWhereTheNormIsNotFinite) {
  for (const double norm : {inf, nan}) {
    Scaling s;
    s.after(1);
    EXPECT_EQ(s.after(norm), -1);
    EXPECT_EQ(s.scale.item(), 4);
    EXPECT_EQ(s.good_steps.item(), 0);
  }
}

TEST(LossScale, IsDoubledAfterSoManyGoodStepsInARow) {
  Scaling s;
  for (const double norm : {1.0, 1.0, inf, 1.0, 1.0}) s.after(norm);
  EXPECT_EQ(s.scale.item(), 4);
  EXPECT_EQ(s.after(1), 0.25) << "of the scale that the gradients have";
  EXPECT_EQ(s.scale.item(), 8);
  EXPECT_EQ(s.good_steps.item(), 0);
}

TEST(LossScale, StaysANumberWithAFiniteInverse) {
  Scaling s;
  for (int i = 0; i < 400; ++i) s.after(nan);
  EXPECT_EQ(s.scale.item(), 0x1p-24);
  for (int i = 0; i < 400; ++i) s.after(0);
  EXPECT_EQ(s.scale.item(), 0x1p40);
}

TEST(LossScale, ClipsTheUnscaledNorm) {
  Scaling s;
  s.attributes.max_norm = 2;
  EXPECT_EQ(s.after(8), 0.125);
  EXPECT_NEAR(s.after(80), 0.125 * 0.2, 1e-7);
}

TEST(LossScale, RefusesWhatDoesNotFit) {
  const auto message = [](const ops::LossScaleAttributes& attributes, const Tensor& scale) {
    return message_of([&] { ops::run("update_loss_scale", {Tensor::zeros({}), scale, Tensor::zeros({}, DType::i64)}, attributes); });
  };
  EXPECT_EQ(message({.max_norm = -1}, Tensor::zeros({})), "update_loss_scale: max_norm is -1, expected a number from 0 on");
  EXPECT_EQ(message({.growth_interval = 0}, Tensor::zeros({})), "update_loss_scale: growth_interval is 0, expected 1 or more");
  EXPECT_EQ(message({}, Tensor::zeros({1})), "update_loss_scale: loss_scale is f32 1, norm is f32 scalar");
}

}  // namespace
}  // namespace frit
