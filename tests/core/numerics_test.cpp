#include "frit/core/numerics.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace frit {
namespace {

TEST(Numerics, TakeTheSearchFromTheEnvironment) {
  const char* const before = std::getenv("FRIT_SEARCH");
  const std::string restored = before == nullptr ? "" : before;
  setenv("FRIT_SEARCH", "exhaustive", 1);
  EXPECT_EQ(Numerics{.tf32 = false}.search, Search::exhaustive);
  for (const char* const other : {"heuristic", "", "more"}) {
    setenv("FRIT_SEARCH", other, 1);
    EXPECT_EQ(Numerics{}.search, Search::heuristic) << other;
  }
  setenv("FRIT_SEARCH", restored.c_str(), 1);
}

}  // namespace
}  // namespace frit
