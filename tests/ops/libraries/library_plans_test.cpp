#include "frit/ops/libraries/library_plans.h"

#include <gtest/gtest.h>

namespace frit {
namespace {

TEST(PlanChoices, AreListedAndTold) {
  const std::size_t before = ops::plan_choices().size();
  std::vector<std::string> told;
  ops::set_plan_observer([&](const ops::PlanChoice& choice) { told.push_back(choice.problem); });
  ops::note_plan_choice({"one", "by time", 2.5, 1.5, {{.engine = 3}}});
  ops::set_plan_observer(nullptr);
  ops::note_plan_choice({"two", "by heuristic"});
  const std::vector<ops::PlanChoice> choices = ops::plan_choices();
  ASSERT_EQ(choices.size(), before + 2);
  EXPECT_EQ(choices[before].problem, "one");
  EXPECT_EQ(choices[before].plans.at(0).engine, 3);
  EXPECT_EQ(choices[before + 1].decided, "by heuristic");
  EXPECT_EQ(told, std::vector<std::string>{"one"});
}

}  // namespace
}  // namespace frit
