#include "frit/core/text.h"

#include <gtest/gtest.h>

#include <string>

#include "frit/core/data/field_names.h"

namespace frit {
namespace {

TEST(MatchesPattern, StarsAndQuestionMarksStandForCharacters) {
  for (const auto& [pattern, name] : {std::pair{"*", "conv.weight"},
                                      {"*", ""},
                                      {"", ""},
                                      {"conv.*", "conv.weight"},
                                      {"*.bias", "a.b.bias"},
                                      {"a*b*c", "abxbc"},
                                      {"**", "x"},
                                      {"block.?.weight", "block.3.weight"},
                                      {"*/*", "a/b/c"}}) {
    EXPECT_TRUE(matches_pattern(pattern, name)) << pattern << ' ' << name;
  }
  for (const auto& [pattern, name] : {std::pair{"", "x"},
                                      {"conv", "conv.weight"},
                                      {"weight", "conv.weight"},
                                      {"?", ""},
                                      {"block.?.weight", "block.12.weight"},
                                      {"a*b*c", "abcb"},
                                      {"Conv.*", "conv.weight"}}) {
    EXPECT_FALSE(matches_pattern(pattern, name)) << pattern << ' ' << name;
  }
}

TEST(MatchesPattern, AllElseStandsForItself) {
  EXPECT_TRUE(matches_pattern("blocks[0].*", "blocks[0].weight"));
  EXPECT_FALSE(matches_pattern("blocks[0].*", "blocks0.weight"));
  EXPECT_TRUE(matches_pattern("a\\*", "a\\b"));
  EXPECT_FALSE(matches_pattern("[ab]", "a"));
}

TEST(MatchesPattern, ManyStarsTakeNoTimeToSpeakOf) {
  const std::string name(10'000, 'a');
  std::string pattern;
  for (int i = 0; i < 100; ++i) pattern += "*a";
  EXPECT_TRUE(matches_pattern(pattern, name));
  EXPECT_FALSE(matches_pattern(pattern + "b", name));
}

TEST(Difference, NamesWhatIsMissingAndWhatIsThereTooMuch) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(difference(Names{"a", "b"}, Names{"b", "a"}), "");
  EXPECT_EQ(difference(Names{"a", "b", "c"}, Names{"b"}), "missing: \"a\", \"c\"");
  EXPECT_EQ(difference(Names{"a"}, Names{"a", "\n"}), "not expected: \"\\x0a\"");
  EXPECT_EQ(difference(Names{"a"}, Names{"b"}), "missing: \"a\"; not expected: \"b\"");
  const std::string many = difference({}, Names(12, "x"));
  EXPECT_TRUE(many.ends_with("\"x\" and 2 more")) << many;
}

}  // namespace
}  // namespace frit
