#pragma once

#include <regex>

#include "apps/fixtures.h"
#include "apps/program.h"

namespace frit {

/// Runs of `frit train` on images of quarters, 150 to learn in five batches an epoch, and what they leave.
class Resume : public ProgramTest {
 protected:
  Resume() {
    QuarterImages(150, /*seed=*/1).write(path("quarters"), "train");
    QuarterImages(40, /*seed=*/2).write(path("quarters"), "t10k");
  }

  static std::vector<std::string> train(std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "classifier", "--model-config", tiny_classifier, "--data", "quarters", "--batch-size", "32", "--lr",
                               "0.01", "--quiet"});
    return more;
  }
  static std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  Outcome good(const std::vector<std::string>& arguments) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome;
    return outcome;
  }
  void refused(int code, const std::string& message, const std::vector<std::string>& arguments) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome;
    EXPECT_TRUE(std::regex_search(outcome.errors, std::regex(message))) << outcome << "\nexpected " << message;
    EXPECT_EQ(outcome.output, "");
  }
  std::string last(const std::string& directory) const { return content(directory + "/checkpoints/last.safetensors"); }
  std::vector<std::string> checkpoints(const std::string& directory) const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder / directory / "checkpoints"))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
};

}  // namespace frit
