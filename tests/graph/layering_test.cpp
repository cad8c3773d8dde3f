// Knowledge flows one way: core <- ops <- graph <- autograd <- models <- apps. This test reads the #include lines.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
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

/// In the lines that have `part`, which all that match have: a search for it is a hundred times as fast.
std::vector<std::string> matches(const fs::path& file, const std::regex& pattern, const char* part) {
  std::vector<std::string> found;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.find(part) == std::string::npos) continue;
    for (std::sregex_iterator match(line.begin(), line.end(), pattern), end; match != end; ++match) found.push_back((*match)[1]);
  }
  return found;
}

class Layer : public testing::TestWithParam<std::string> {};

TEST_P(Layer, IncludesOnlyItselfAndWhatIsBelow) {
  const std::regex include(R"(^\s*#\s*include\s*["<](?:frit/)?(core|ops|graph|autograd|models|apps)/)");
  const std::vector<fs::path> files = sources(GetParam());
  ASSERT_FALSE(files.empty());
  for (const fs::path& file : files) {
    for (const std::string& included : matches(file, include, "include")) {
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
    EXPECT_TRUE(matches(file, training, "include").empty()) << file << " includes what trains: it belongs into models/training/";
  }
}

TEST(Layering, PassesNameNoOperator) {
  const std::regex named(R"(#\s*include\s*"frit/ops/(\w+)/)");
  for (const fs::path& file : sources("graph")) {
    for (const std::string& room : matches(file, named, "include")) EXPECT_EQ(room, "operator") << file << " includes an operator's header";
  }
}

/// Within ops: operator <- cpu, cuda <- libraries <- the operators <- convolution <- chain.
std::string rooms_below(const std::string& room) {
  const std::string base = "operator", devices = base + "|cpu|cuda", libraries = devices + "|libraries";
  const std::string operators = libraries + "|communication|elementwise|indexing|linear|loss|norm|optimizer|pool|random|reduction|shape";
  if (room == "operator") return base;
  if (room == "cpu" || room == "cuda") return base + "|" + room;
  if (room == "libraries") return libraries;
  if (room == "convolution") return operators + "|convolution";
  return room == "chain" ? operators + "|convolution|chain" : operators;
}

TEST(Layering, RoomsOfOpsIncludeWhatIsBelow) {
  const std::regex include(R"(#\s*include\s*"frit/ops/(\w+)/)");
  for (const fs::path& file : sources("ops")) {
    const std::string room = *fs::relative(file, fs::path(FRIT_SOURCE_DIR) / "ops").begin();
    const std::regex below(rooms_below(room));
    for (const std::string& included : matches(file, include, "include")) {
      EXPECT_TRUE(std::regex_match(included, below)) << file << " includes a header of " << included;
    }
  }
}

/// Within apps: common <- report <- benchmark <- scaling, report <- training <- serving, and all of them <- commands.
std::string folders_of_apps_below(const std::string& folder) {
  const std::string shared = "common|report", own = shared + "|" + folder;
  if (folder == "common" || folder == "report") return folder == "common" ? "common" : shared;
  if (folder == "scaling") return own + "|benchmark";
  if (folder == "serving") return own + "|training";
  return folder == "commands" ? own + "|benchmark|scaling|training|serving" : own;
}

TEST(Layering, FoldersOfAppsIncludeWhatIsBelow) {
  const std::regex include(R"(#\s*include\s*"apps/(\w+)/)");
  for (const fs::path& file : sources("apps")) {
    const fs::path place = fs::relative(file, fs::path(FRIT_SOURCE_DIR) / "apps");
    if (!place.has_parent_path()) continue;
    const std::regex below(folders_of_apps_below(*place.begin()));
    for (const std::string& included : matches(file, include, "include")) {
      EXPECT_TRUE(std::regex_match(included, below)) << file << " includes a header of " << included;
    }
  }
}

/// A heading's name in a link: "With a GPU" is #with-a-gpu.
std::string anchor(const std::string& heading) {
  std::string name;
  for (const char c : heading) {
    if (c == ' ' || c == '-') name += '-';
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

TEST(Layering, PagesLinkToWhatIsThere) {
  const fs::path root = FRIT_SOURCE_DIR;
  std::vector<fs::path> pages = {root / "README.md", root / "SECURITY.md"};
  for (const fs::directory_entry& folder : fs::directory_iterator(root)) {
    if (fs::exists(folder.path() / "README.md")) pages.push_back(folder.path() / "README.md");
  }
  EXPECT_GE(pages.size(), 7u);
  for (const fs::path& page : pages) {
    for (const std::string& link : matches(page, std::regex(R"(\]\((?!https?:)([^) ]+)\))"), "](")) {
      const std::size_t mark = std::min(link.find('#'), link.size());
      const fs::path file = mark == 0 ? page : page.parent_path() / link.substr(0, mark);
      ASSERT_TRUE(fs::exists(file)) << page << " links to " << link;
      if (mark == link.size()) continue;
      std::vector<std::string> anchors = matches(file, std::regex("^#+ (.*)"), "#");
      std::transform(anchors.begin(), anchors.end(), anchors.begin(), anchor);
      EXPECT_TRUE(std::count(anchors.begin(), anchors.end(), link.substr(mark + 1)) == 1) << page << " links to " << link;
    }
  }
}

}  // namespace
