// Knowledge flows one way: core <- ops <- graph <- autograd <- models <- apps. This test reads the #include lines.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> layers = {"core", "ops", "graph", "autograd", "models", "apps"};

std::size_t height(const std::string& layer) {
  return static_cast<std::size_t>(std::find(layers.begin(), layers.end(), layer) - layers.begin());
}

std::vector<fs::path> sources(const std::string& layer) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(fs::path(FRIT_SOURCE_DIR) / layer)) {
    const std::string extension = entry.path().extension();
    if (extension == ".h" || extension == ".cpp" || extension == ".cu" || extension == ".cuh") files.push_back(entry.path());
  }
  return files;
}

std::vector<std::string> matches(const fs::path& file, const std::regex& pattern) {
  std::vector<std::string> found;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::smatch match;
    if (std::regex_search(line, match, pattern)) found.push_back(match[1]);
  }
  return found;
}

class Layer : public testing::TestWithParam<std::string> {};

TEST_P(Layer, IncludesOnlyItselfAndWhatIsBelow) {
  const std::regex include(R"(^\s*#\s*include\s*["<](?:frit/)?(core|ops|graph|autograd|models|apps)/)");
  const std::vector<fs::path> files = sources(GetParam());
  ASSERT_FALSE(files.empty());
  for (const fs::path& file : files) {
    for (const std::string& included : matches(file, include)) {
      EXPECT_LE(height(included), height(GetParam())) << file << " includes " << included;
    }
  }
}

TEST_P(Layer, KeepsFilesAndFoldersSmall) {
  std::map<fs::path, int> folders;
  for (const fs::path& file : sources(GetParam())) {
    std::ifstream stream(file);
    const auto lines = std::count(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>(), '\n');
    EXPECT_LE(lines, 450) << file;
    EXPECT_LE(++folders[file.parent_path()], 40) << file.parent_path();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Layer, testing::ValuesIn(layers), [](const auto& layer) { return layer.param; });

TEST(Layering, WhatRunsForwardIncludesNoTraining) {
  const std::regex training(R"(#\s*include\s*"frit/(autograd|models/training)/)");
  for (const fs::path& file : sources("models")) {
    if (file.filename() == "frit.h" || file.parent_path().filename() == "training") continue;
    EXPECT_TRUE(matches(file, training).empty()) << file << " includes what trains: it belongs into models/training/";
  }
}

TEST(Layering, PassesNameNoOperator) {
  const std::regex named(R"(#\s*include\s*"frit/ops/(\w+)/)");
  for (const fs::path& file : sources("graph")) EXPECT_TRUE(matches(file, named).empty()) << file << " includes an operator's header";
}

}  // namespace
