// The folder that a run of `frit train` writes: one of its own where none is named, none where none is wanted.

#include <nlohmann/json.hpp>
#include <regex>

#include "apps/fixtures.h"
#include "apps/program.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

class TrainFolder : public ProgramTest {
 protected:
  TrainFolder() {
    write("data.safetensors", serialize_safetensors({{"input", random_tensor({20, 3, 8, 8})}, {"target", random_tensor({20, 4, 3, 3})}}));
  }

  static std::vector<std::string> train(std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "conv2d-groupnorm-pool", "--model-config", tiny_model().config, "--data", "data.safetensors",
                               "--batch-size", "4", "--epochs", "2"});
    return more;
  }
  Outcome good(const std::vector<std::string>& more) const {
    const Outcome outcome = run(train(more));
    EXPECT_EQ(outcome.code, 0) << outcome;
    return outcome;
  }
  void refused(const std::string& message, const std::vector<std::string>& more) const {
    const Outcome outcome = run(train(more));
    EXPECT_EQ(outcome.code, 2) << outcome;
    EXPECT_NE(outcome.errors.find("frit: error: " + message), std::string::npos) << outcome;
    EXPECT_FALSE(fs::exists(folder / "runs"));
  }
  std::vector<std::string> names(const std::string& directory) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder / directory)) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
};

TEST_F(TrainFolder, EveryRunHasANewOne) {
  for (int i = 0; i < 3; ++i) {
    const Outcome outcome = good({"--checkpoint-every", "3", "--keep", "2", "--json"});
    const std::string directory = nlohmann::json::parse(outcome.output)["run_directory"];
    EXPECT_TRUE(std::regex_match(directory, std::regex("runs/conv2d-groupnorm-pool-20[0-9]{6}-[0-9]{6}(-[2-9])?"))) << directory;
    EXPECT_NE(outcome.errors.find("run folder " + directory + '\n'), std::string::npos) << outcome;
    for (const char* const file : {"report.html", "steps.csv", "epochs.csv", "checkpoints/best.safetensors",
                                   "checkpoints/step-000000000009.safetensors", "checkpoints/last.safetensors"}) {
      EXPECT_TRUE(fs::exists(folder / directory / file)) << file;
    }
  }
  EXPECT_EQ(names("runs").size(), 3u);
  EXPECT_EQ(good({"--quiet"}).errors, "");
  EXPECT_EQ(names("runs").size(), 4u);
}

TEST_F(TrainFolder, AnInterruptedRunSaysHowToGoOn) {
  std::vector<std::string> arguments = train({});
  arguments.back() = "1000000";
  Process endless({.arguments = arguments, .directory = folder});
  ASSERT_TRUE(endless.wait_for_error_text("epoch 2/")) << endless.finish();
  endless.send(SIGINT);
  const Outcome outcome = endless.finish();
  EXPECT_EQ(outcome.code, 130) << outcome;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(outcome.errors, found, std::regex("; --run-dir (runs/[^ ]*) --resume auto goes on from there\n")))
      << outcome;
  EXPECT_TRUE(fs::exists(folder / found[1].str() / "checkpoints/last.safetensors"));
}

TEST_F(TrainFolder, NoneIsWrittenWhereNoneIsWanted) {
  const std::vector<std::string> before = files();
  const Outcome outcome = good({"--run-dir", "none", "--json"});
  EXPECT_FALSE(nlohmann::json::parse(outcome.output).contains("run_directory")) << outcome;
  EXPECT_EQ(outcome.errors.find("run folder"), std::string::npos) << outcome;
  good({"--dry-run", "--checkpoint-every", "3"});
  good({"--dry-run", "--run-dir", "run"});
  good({"--overfit-one-batch"});
  const Outcome printed = good({"--print-config"});
  EXPECT_EQ(printed.output.find("run-dir"), std::string::npos) << "the same run again has a folder of its own\n" << printed;
  EXPECT_EQ(files(), before);
  good({"--overfit-one-batch", "--run-dir", "asked-for"});
  EXPECT_TRUE(fs::exists(folder / "asked-for/report.html"));
  write("none.toml", good({"--run-dir", "none", "--print-config"}).output);
  const Outcome again = run({"train", "--config", "none.toml"});
  EXPECT_EQ(again.code, 0) << again;
  EXPECT_FALSE(fs::exists(folder / "runs"));
}

TEST_F(TrainFolder, FlagsThatNeedOneAreRefusedWithoutIt) {
  refused("--checkpoint-every needs the run's folder; --run-dir none writes none", {"--run-dir", "none", "--checkpoint-every", "3"});
  refused("--keep needs the run's folder; --run-dir none writes none", {"--run-dir", "none", "--keep", "3"});
  refused("--keep needs the run's folder; --overfit-one-batch has none without --run-dir", {"--overfit-one-batch", "--keep", "3"});
  for (const char* const newest : {"auto", "latest-good"}) {
    refused(concat("--resume ", newest, " goes with --run-dir"), {"--resume", newest});
    refused(concat("--resume ", newest, " goes with --run-dir"), {"--resume", newest, "--run-dir", "none"});
  }
}

TEST_F(TrainFolder, ARunThatCannotBeginLeavesNone) {
  const std::vector<std::string> before = files();
  EXPECT_EQ(run(train({"--resume", "nowhere.safetensors"})).code, 4);
  EXPECT_EQ(run(train({"--profile", "nowhere/trace.json"})).code, 4);
  EXPECT_EQ(files(), before);
  fs::create_directory(folder / "runs");
  EXPECT_EQ(run(train({"--resume", "nowhere.safetensors"})).code, 4);
  EXPECT_EQ(names("runs"), std::vector<std::string>{}) << "it was there before";
  fs::remove(folder / "runs");
  write("runs", std::string("a file"));
  const Outcome outcome = run(train({}));
  EXPECT_EQ(outcome.code, 4) << outcome;
  EXPECT_NE(outcome.errors.find("--run-dir none writes none"), std::string::npos) << outcome;
  EXPECT_EQ(content("runs"), "a file");
}

/// The second event of a file, after that which names the format, without its time.
std::string second_event(const std::string& file) {
  const auto length = [&](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(file.at(at))); };  // below 256
  const std::size_t second = length(0) + 16;
  return file.substr(second + 12 + 9, length(second) - 9);
}

TEST_F(TrainFolder, TensorBoardForgetsWhatAResumedRunOvertakes) {
  good({"--run-dir", "run"});
  const auto event_files = [&] {
    std::vector<std::string> found;
    for (const std::string& name : names("run")) {
      if (name.starts_with("events.out.tfevents.")) found.push_back(name);
    }
    return found;
  };
  const std::vector<std::string> first = event_files();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(second_event(content("run/" + first[0])), std::string("\x10\x01\x3a\x02\x08\x01")) << "what an earlier run left";
  std::vector<std::string> longer = train({"--run-dir", "run", "--resume", "auto"});
  *(std::find(longer.begin(), longer.end(), "--epochs") + 1) = "3";
  ASSERT_EQ(run(longer).code, 0);
  std::vector<std::string> both = event_files();
  ASSERT_EQ(both.size(), 2u);
  std::erase(both, first[0]);
  EXPECT_EQ(second_event(content("run/" + both[0])), std::string("\x10\x0b\x3a\x02\x08\x01")) << "10 steps are done";
}

}  // namespace
}  // namespace frit
