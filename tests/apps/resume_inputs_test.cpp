// What a run that goes on finds: its data, its weights, what is left in its folder, a checkpoint's own numbers.

#include <nlohmann/json.hpp>

#include "apps/resume_run.h"
#include "frit/models/checkpoint_file.h"
#include "frit/models/training/checkpoint.h"

namespace frit {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// A run of two epochs in "run" that can go on, and checkpoints of it that say what is not so.
class ResumeInputs : public Resume {
 protected:
  static constexpr const char* newest = "run/checkpoints/step-000000000010.safetensors";

  static std::vector<std::string> again(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--epochs", "3", "--run-dir", "run", "--resume", "auto"});
    return train(more);
  }

  /// Writes the checkpoint again with an entry of its metadata, a JSON object, changed by `change`; its checksums are right.
  template <class Change>
  void rewrite(const std::string& name, const char* entry, const Change& change) const {
    const TensorFile file = read_safetensors(path(name));
    Metadata metadata = file.metadata();
    json object = json::parse(metadata.at(entry));
    change(object);
    metadata[entry] = object.dump();
    TensorMap tensors;
    for (std::size_t i = 0; i < file.size(); ++i) tensors.emplace(file.entry(i).name, file.tensor(i));
    write_checkpoint(path(name), tensors, metadata);
  }
};

/// A kill after an epoch's last step, between the epoch's line in the record and its checkpoint, where the step had one of its own.
TEST_F(ResumeInputs, AnEpochThatIsFinishedAgainHasOneLine) {
  good(train({"--epochs", "2", "--run-dir", "run", "--checkpoint-every", "5"}));
  rewrite(newest, "position", [](json& position) {
    position["epoch"] = 1;
    position["batch"] = 5;
    position["stale"] = 0;
  });
  rewrite(newest, "epoch_score", [&](json& learnt) { learnt = {{"loss_sum", 100.0}, {"correct", 100}, {"examples", 150}}; });
  good(again());
  std::istringstream lines(content("run/epochs.csv"));
  std::vector<std::string> epochs;
  for (std::string line; std::getline(lines, line);) epochs.push_back(line.substr(0, line.find(',', line.find(',') + 1)));
  EXPECT_EQ(epochs, (std::vector<std::string>{"epoch,step", "1,5", "2,10", "3,15"}));
}

TEST_F(ResumeInputs, WhatDeadProcessesLeftInTheFolderIsRemoved) {
  fs::create_directories(path("run/checkpoints"));
  fs::create_directories(path("run/not-finite-step-3"));
  const std::vector<std::string> stale = {"run/report.html.tmp.99999999", "run/steps.csv.tmp.99999999",
                                          "run/checkpoints/step-000000000005.safetensors.tmp.99999999",
                                          "run/not-finite-step-3/state.safetensors.tmp.99999999"};
  for (const std::string& name : stale) write(name, std::string("half"));
  const std::string alive = concat("run/report.html.tmp.", getpid());
  write(alive, std::string("of a process that lives"));
  write("run/notes.tmp", std::string("somebody's"));
  good(train({"--epochs", "1", "--run-dir", "run"}));
  for (const std::string& name : stale) EXPECT_FALSE(fs::exists(path(name))) << name;
  EXPECT_TRUE(fs::exists(path(alive)));
  EXPECT_TRUE(fs::exists(path("run/notes.tmp")));
}

TEST_F(ResumeInputs, ADamagedRecordIsSetAside) {
  good(train({"--epochs", "2", "--run-dir", "run"}));
  const std::string steps = content("run/steps.csv"), epochs = content("run/epochs.csv");
  std::string damaged = steps;
  damaged[damaged.find("\n3,") + 1] = 'x';
  write("run/steps.csv", damaged);
  write("run/epochs.csv", std::string("\0\xff\x1b[2J\n", 7));
  const Outcome outcome = good(again());
  EXPECT_NE(outcome.errors.find("warning: run/steps.csv: line 4: not a line of this file: \"x,1,"), std::string::npos) << outcome;
  EXPECT_NE(outcome.errors.find(R"(warning: run/epochs.csv: line 1: not a line of this file: "\x00\xff\x1b[2J")"), std::string::npos)
      << outcome;
  EXPECT_NE(outcome.errors.find("renamed to .damaged, and the run goes on with its good lines\n"), std::string::npos) << outcome;
  EXPECT_EQ(content("run/steps.csv.damaged"), damaged);
  EXPECT_EQ(content("run/epochs.csv").substr(0, epochs.find('\n')), epochs.substr(0, epochs.find('\n')));
  const std::string now = content("run/steps.csv");
  EXPECT_EQ(std::count(now.begin(), now.end(), '\n'), 1 + 15 - 1) << "all but the damaged line";
  EXPECT_EQ(good(train({"--epochs", "4", "--run-dir", "run", "--resume", "auto"})).errors, "");
}

}  // namespace
}  // namespace frit
