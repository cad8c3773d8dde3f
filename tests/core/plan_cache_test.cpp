#include "frit/core/plan_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "frit/core/warning.h"

namespace frit {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Plan {
  std::int64_t engine = -1;
  std::string knobs = {};
  double microseconds = 0;

  void fields(FieldVisitor& v) {
    v.field("engine", engine);
    v.field("knobs", knobs);
    v.field("microseconds", microseconds);
  }
};

class PlanCacheFile : public testing::Test {
 protected:
  PlanCacheFile() {
    std::string pattern = (fs::temp_directory_path() / "frit_plans_XXXXXX").string();
    folder = mkdtemp(pattern.data());
    path = (folder / "deeper" / "plans.json").string();
    set_warning_handler([this](const std::string& message) { warnings.push_back(message); });
  }
  ~PlanCacheFile() override {
    set_warning_handler({});
    fs::remove_all(folder);
  }

  void write(const std::string& text) const {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
  }
  std::string text() const {
    std::ifstream stream(path);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  std::int64_t engine_of(const std::string& key) const {
    const auto plan = PlanCache(path).find<Plan>(key);
    return plan ? plan->engine : -2;
  }

  fs::path folder;
  std::string path;
  std::vector<std::string> warnings;
};

TEST_F(PlanCacheFile, KeepsEntriesForTheNextProcess) {
  PlanCache cache(path);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_FALSE(cache.find<Plan>("a"));
  cache.insert("a", Plan{7, "2=8 14=3", 12.5});
  cache.insert("b", Plan{1});
  const auto found = PlanCache(path).find<Plan>("a");
  ASSERT_TRUE(found);
  EXPECT_EQ(fields_text(*found), fields_text(Plan{7, "2=8 14=3", 12.5}));
  EXPECT_EQ(PlanCache(path).size(), 2u);
  EXPECT_FALSE(PlanCache(path).find<Plan>("another key"));
  const json file = json::parse(text());
  EXPECT_EQ(file["version"], 1);
  EXPECT_EQ(file["entries"]["a"], (json{{"engine", 7}, {"knobs", "2=8 14=3"}, {"microseconds", 12.5}}));
  EXPECT_EQ(std::distance(fs::directory_iterator(fs::path(path).parent_path()), {}), 1) << "a temporary file was left";
  EXPECT_TRUE(warnings.empty());
}

TEST_F(PlanCacheFile, WithoutAFileKeepsEntriesInMemory) {
  for (const char* const none : {"", "off"}) {
    PlanCache cache(none);
    cache.insert("a", Plan{7});
    EXPECT_EQ(cache.path(), "");
    EXPECT_EQ(cache.find<Plan>("a")->engine, 7);
  }
  EXPECT_FALSE(fs::exists("off"));
}

TEST_F(PlanCacheFile, TwoWritersKeepEachOthersEntries) {
  PlanCache first(path), second(path);
  EXPECT_EQ(first.size() + second.size(), 0u);  // both have read
  first.insert("a", Plan{1});
  second.insert("b", Plan{2});
  first.insert("c", Plan{3});
  second.insert("a", Plan{4});
  EXPECT_EQ(engine_of("a"), 4) << "what was found last";
  EXPECT_EQ(engine_of("b"), 2);
  EXPECT_EQ(engine_of("c"), 3);
}

TEST_F(PlanCacheFile, ProcessesThatWriteAtOnceLeaveAWholeFile) {
  constexpr int processes = 4, entries = 25;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      PlanCache cache(path);
      for (int i = 0; i < entries; ++i) cache.insert(concat(p, '.', i), Plan{i});
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  PlanCache cache(path);
  EXPECT_GE(cache.size(), static_cast<std::size_t>(entries)) << "the last writer's are all there";
  EXPECT_TRUE(warnings.empty());
}

TEST_F(PlanCacheFile, WhatIsNoPlanCacheOfThisVersionIsReportedOnceAndLeftAlone) {
  const std::string deep(100'000, '[');
  for (const std::string& content : std::vector<std::string>{
           "{", "no JSON", "[]", "null", std::string("\0\xff\xfe", 3), deep, R"({"format": "another"})",
           R"({"format": "frit plan cache", "version": 2, "entries": {}})", R"({"format": "frit plan cache", "version": 1})",
           R"({"format": "frit plan cache", "version": 1, "entries": []})",
           R"({"format": "frit plan cache", "version": 1, "entries": {"a": 3}})",
           R"({"format": "frit plan cache", "version": 1, "entries": {"a": {"engine": [[1]]}}})"}) {
    SCOPED_TRACE(content.substr(0, 80));
    warnings.clear();
    write(content);
    PlanCache cache(path);
    EXPECT_FALSE(cache.find<Plan>("a"));
    cache.insert("b", Plan{2});
    cache.insert("c", Plan{3});
    EXPECT_EQ(text(), content);
    EXPECT_EQ(cache.find<Plan>("b")->engine, 2) << "what is found is known to this process";
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("is left alone, it cannot be used: " + path), std::string::npos) << warnings[0];
    EXPECT_LT(warnings[0].size(), path.size() + 200) << warnings[0];
    EXPECT_EQ(warnings[0].find('\n'), std::string::npos);
  }
}

TEST_F(PlanCacheFile, AFileThatBecomesSomethingElseIsLeftAlone) {
  PlanCache cache(path);
  cache.insert("a", Plan{1});
  write("notes");
  cache.insert("b", Plan{2});
  EXPECT_EQ(text(), "notes");
  EXPECT_EQ(warnings.size(), 1u);
}

TEST_F(PlanCacheFile, AnEmptyFileIsAPlanCacheWithoutEntries) {
  write("");
  PlanCache(path).insert("a", Plan{1});
  EXPECT_EQ(engine_of("a"), 1);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(PlanCacheFile, WhatCannotBeReadIsLeftAlone) {
  fs::create_directories(path);  // a folder
  PlanCache cache(path);
  cache.insert("a", Plan{1});
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_EQ(warnings.size(), 1u);
}

TEST_F(PlanCacheFile, AnEntryWithOtherFieldsIsNotFoundAndReplaced) {
  write(R"({"format": "frit plan cache", "version": 1, "entries": {"a": {"engine": "seven"}, "b": {"colour": 1}, "c": {"engine": 5}}})");
  EXPECT_EQ(engine_of("a"), -2);
  EXPECT_EQ(engine_of("b"), -2);
  EXPECT_EQ(engine_of("c"), 5);
  PlanCache(path).insert("a", Plan{7});
  EXPECT_EQ(engine_of("a"), 7);
  EXPECT_EQ(engine_of("c"), 5);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(PlanCacheFile, AFileThatCannotBeWrittenIsReportedOnce) {
  std::ofstream(folder / "deeper") << "a file where a folder should be";
  PlanCache cache(path);
  cache.insert("a", Plan{1});
  cache.insert("b", Plan{2});
  EXPECT_EQ(warnings.size(), 1u);
  EXPECT_EQ(cache.find<Plan>("a")->engine, 1);
  EXPECT_EQ(cache.size(), 2u);
}

TEST_F(PlanCacheFile, AnotherFileGetsWhatIsKnown) {
  PlanCache cache(path);
  cache.insert("a", Plan{1});
  path = (folder / "other.json").string();
  cache.use_file(path);
  EXPECT_EQ(cache.find<Plan>("a")->engine, 1);
  cache.insert("b", Plan{2});
  EXPECT_EQ(engine_of("a"), 1);
  EXPECT_EQ(engine_of("b"), 2);
}

TEST(BuildName, HasVersionAndChecksum) {
  EXPECT_TRUE(std::regex_match(build_name(), std::regex("frit [0-9]+\\.[0-9]+\\.[0-9]+ [0-9a-f]{8}"))) << build_name();
}

}  // namespace
}  // namespace frit
