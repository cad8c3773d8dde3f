// Every fuzz target reads or refuses the files of its corpus: good ones, hostile ones, and all that a fault was once found with.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "frit/core/io/file.h"
#include "fuzz/fuzzing.h"

namespace frit::fuzzing {
namespace {

class Corpus : public testing::TestWithParam<Target> {
 protected:
  static void SetUpTestSuite() { prepare(); }
};

std::vector<std::string> files_of(const std::string& target) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(concat(FRIT_SOURCE_DIR, "/tests/fuzz/corpus/", target)))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TEST_P(Corpus, IsReadOrRefused) {
  const std::vector<std::string> files = files_of(GetParam().name);
  EXPECT_FALSE(files.empty());
  for (const std::string& file : files) EXPECT_NO_THROW(read(GetParam(), read_text(file, 1 << 20))) << file;
}

std::string name_of(const testing::TestParamInfo<Target>& target) { return target.param.name; }

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, testing::ValuesIn(targets()), name_of);

}  // namespace
}  // namespace frit::fuzzing
