#include "frit/autograd/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "frit/core/error.h"

namespace frit {
namespace {

using Kind = Schedule::Kind;

double at(const Schedule& schedule, std::int64_t updates) { return schedule.factor_at(updates, {}); }

TEST(Schedule, IsConstantByDefault) {
  EXPECT_EQ(at({}, 0), 1);
  EXPECT_EQ(at({}, 1'000'000), 1);
}

TEST(Schedule, StepDropsEverySoManyUpdates) {
  const Schedule schedule{.kind = Kind::step, .interval = 30, .factor = 0.1};
  EXPECT_EQ(at(schedule, 29), 1);
  EXPECT_DOUBLE_EQ(at(schedule, 30), 0.1);
  EXPECT_DOUBLE_EQ(at(schedule, 89), 0.01);
}

TEST(Schedule, CosineFallsToItsEndAndStaysThere) {
  const Schedule schedule{.kind = Kind::cosine, .total = 100, .final_factor = 0.2};
  EXPECT_EQ(at(schedule, 0), 1);
  EXPECT_DOUBLE_EQ(at(schedule, 50), 0.6);
  EXPECT_NEAR(at(schedule, 25), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_DOUBLE_EQ(at(schedule, 100), 0.2);
  EXPECT_DOUBLE_EQ(at(schedule, 200), 0.2);
}

/// torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10): its rates are at hand as numbers of its formula's phases.
TEST(Schedule, OneCycleRisesAndFalls) {
  const Schedule schedule{.kind = Kind::one_cycle, .total = 10};
  EXPECT_NEAR(at(schedule, 0), 0.04, 1e-15);
  EXPECT_NEAR(at(schedule, 1), 0.52, 1e-15);
  EXPECT_DOUBLE_EQ(at(schedule, 2), 1);
  EXPECT_NEAR(at(schedule, 9), 4e-6, 1e-15);
  EXPECT_NEAR(at(schedule, 500), 4e-6, 1e-15);
  for (std::int64_t i = 3; i < 10; ++i) EXPECT_LT(at(schedule, i), at(schedule, i - 1));
  EXPECT_TRUE(std::isfinite(at({.kind = Kind::one_cycle, .total = 1}, 0)));
}

TEST(Schedule, WarmUpRisesLinearlyBeforeTheRest) {
  const Schedule schedule{.kind = Kind::cosine, .warm_up = 4, .total = 104};
  EXPECT_DOUBLE_EQ(at(schedule, 0), 0.2);
  EXPECT_DOUBLE_EQ(at(schedule, 3), 0.8);
  EXPECT_DOUBLE_EQ(at(schedule, 4), 1);
  EXPECT_DOUBLE_EQ(at(schedule, 54), 0.5);
}

TEST(Schedule, PlateauDropsWhenNothingGetsBetter) {
  const Schedule schedule{.kind = Kind::plateau, .factor = 0.5, .patience = 2, .threshold = 0.1};
  PlateauState state;
  std::vector<double> factors;
  for (const double loss : {10.0, 8.0, 7.5, 7.4, 7.3, 5.0, 5.0, std::nan(""), 5.0, 4.9}) {
    schedule.observe(loss, state);
    factors.push_back(schedule.factor_at(0, state));
  }
  EXPECT_EQ(factors, (std::vector<double>{1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25}));
}

TEST(Schedule, HasNames) {
  for (std::size_t i = 0; i < Schedule::names().size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(Schedule::kind_of(Schedule::names()[i])), i);
  }
  EXPECT_THROW(Schedule::kind_of("cosin"), Error);
}

TEST(Schedule, RefusesNumbersThatMakeNone) {
  EXPECT_THROW((Schedule{.kind = Kind::cosine}).check(), Error);
  EXPECT_THROW((Schedule{.kind = Kind::one_cycle, .warm_up = 5, .total = 5}).check(), Error);
  EXPECT_THROW((Schedule{.interval = 0}).check(), Error);
  EXPECT_THROW((Schedule{.factor = 0}).check(), Error);
  EXPECT_THROW((Schedule{.warm_up = -1}).check(), Error);
}

}  // namespace
}  // namespace frit
