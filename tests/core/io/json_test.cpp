#include "frit/core/io/json.h"

#include <gtest/gtest.h>

#include "core/io/file_testing.h"
#include "frit/core/fields.h"

namespace frit {
namespace {

using nlohmann::json;

void expect_refused(const std::string& text, const std::string& message) {
  expect_error(ErrorKind::format, "a.json: " + message, [&] { read_json(text, "a.json"); });
}

std::string repeated(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

TEST(Json, ReadsWhatTheParserReads) {
  for (const char* const text : {R"({"a": [1, -2, 3.5, true, null, "b", {}, []], "c": {"d": {"a": "\u00e9"}}})", "[[], [[[]]]]", " 3 ",
                                 "\"\"", "{}", "18446744073709551615", "[1e308, -9223372036854775808]"}) {
    EXPECT_EQ(read_json(text, "a.json"), json::parse(text)) << text;
  }
  EXPECT_EQ(read_json(repeated("[", json_depth_limit) + repeated("]", json_depth_limit), "a.json").size(), 1u);
}

TEST(Json, RefusesWhatIsNoneOrTooDeep) {
  for (const char* const open : {"[", "{\"a\":", "[{\"a\":"}) {
    expect_refused(repeated(open, 100'000), "JSON nested too deeply (limit 8)");
    expect_refused(repeated(open, 100'000) + '1', "JSON nested too deeply (limit 8)");
  }
  expect_refused(repeated("[", json_depth_limit + 1) + repeated("]", json_depth_limit + 1), "JSON nested too deeply (limit 8)");
  expect_refused("", "not JSON at byte 1: ");
  expect_refused("{} {}", "not JSON at byte 4: ");
  expect_refused(std::string("{}\0{}", 5), "not JSON at byte 3: NUL");
  expect_refused("\"\xff\"", "not JSON at byte 2: ");
  expect_refused(R"({"a": 1, "b": {"c": 1, "c": 2}})", R"(duplicate key "c")");
  expect_refused(R"({"\u001b[2J": 1, "\u001b[2J": 2})", R"(duplicate key "\x1b[2J")");
}

/// Nor do messages hold what could fill a screen, or change it.
TEST(Json, MessagesAreShort) {
  struct Record {
    std::int64_t count = 0;
    DType dtype = DType::f32;
    void fields(FieldVisitor& v) {
      v.field("count", count);
      v.field("dtype", dtype);
    }
  };
  const std::string filling = repeated("\\u001b\\u009b[2J", 20'000);
  for (const std::string& text : {'"' + filling, filling, repeated("1", 100'000), "{\"" + filling + "\": 1}",
                                  "{\"count\": \"" + filling + "\"}", "{\"dtype\": \"" + filling + "\"}",
                                  "{\"count\": [" + repeated("1,", 50'000) + "1]}", "{\"" + filling + "\": 1, \"" + filling + "\": 2}"}) {
    try {
      fields_from_json(text, Record(), "a.json");
      ADD_FAILURE() << text.substr(0, 80);
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_LT(message.size(), 400u) << message;
      EXPECT_EQ(message.find_first_of("\x1b\x9b\n"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace frit
