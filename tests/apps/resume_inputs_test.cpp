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

  /// A number that is none in an entry of the metadata.
  struct Refusal {
    const char *entry, *key;
    json value;
  };
  static void check(const Refusal& refusal, const std::string& file, const Outcome& outcome) {
    const std::string what = concat(refusal.entry, ' ', refusal.key, ' ', refusal.value);
    EXPECT_EQ(outcome.code, 3) << what << outcome;
    EXPECT_NE(outcome.errors.find(file), std::string::npos) << what << outcome;
    EXPECT_EQ(outcome.errors.find("bug"), std::string::npos) << what << outcome;
  }
};

TEST_F(ResumeInputs, TheSameLineBeginsWithWeightsAndGoesOnWithoutThem) {
  good(train({"--epochs", "1", "--save", "weights.safetensors", "--run-dir", "none"}));
  const std::vector<std::string> line = {"--weights", "weights.safetensors", "--run-dir", "tuned", "--resume", "auto", "--epochs"};
  std::vector<std::string> loud = train(with(line, {"1"}));
  std::erase(loud, "--quiet");
  good(loud);
  loud.back() = "2";
  const Outcome second = good(loud);
  EXPECT_NE(second.errors.find("the run began with the weights weights.safetensors, which are not read again\n"), std::string::npos)
      << second;
  fs::rename(path("weights.safetensors"), path("moved.safetensors"));
  EXPECT_EQ(good(train(with(line, {"3"}))).errors, "") << "they are not read again";
  good(train({"--weights", "moved.safetensors", "--run-dir", "whole", "--epochs", "3"}));
  TensorFile tuned = read_safetensors(path("tuned/checkpoints/last.safetensors")),
             whole = read_safetensors(path("whole/checkpoints/last.safetensors"));
  ASSERT_EQ(tuned.size(), whole.size());
  for (std::size_t i = 0; i < tuned.size(); ++i) EXPECT_EQ(tuned.tensor(i).to_vector<double>(), whole.tensor(i).to_vector<double>());
  EXPECT_EQ(tuned.metadata().at("weights"), "weights.safetensors");
  const Outcome other = good(train({"--weights", "moved.safetensors", "--run-dir", "tuned", "--resume", "latest-good", "--epochs", "4"}));
  EXPECT_NE(other.errors.find("warning: the run began with the weights weights.safetensors, not with moved.safetensors"), std::string::npos)
      << other;
  // A run that goes on without the flag has begun with them all the same.
  good(train({"--run-dir", "tuned", "--resume", "auto", "--epochs", "5"}));
  good(train({"--weights", "weights.safetensors", "--run-dir", "tuned", "--resume", "auto", "--epochs", "6"}));
}

TEST_F(ResumeInputs, WeightsThatTheRunDidNotBeginWithAreRefused) {
  good(train({"--epochs", "2", "--run-dir", "run", "--save", "weights.safetensors"}));
  refused(2, "--weights weights.safetensors does not go with --resume auto: the run in run began with fresh parameters",
          again({"--weights", "weights.safetensors"}));
  refused(2, "--weights cannot be given with --resume run/checkpoints/last.safetensors",
          train({"--weights", "weights.safetensors", "--resume", "run/checkpoints/last.safetensors", "--run-dir", "new"}));
}

TEST_F(ResumeInputs, OtherDataOfAsManyExamplesAreRefused) {
  good(train({"--epochs", "2", "--run-dir", "run"}));
  const std::string before = last("run");
  QuarterImages other(150, /*seed=*/1);
  other.labels[8 + 77] = static_cast<char>((other.labels[8 + 77] + 1) % 4);
  other.write(path("quarters"), "train");
  const std::string message =
      "are not those of the run that is to go on \\(run/checkpoints/step-000000000010.safetensors\\): "
      "their checksum is [0-9a-f]{16}, was [0-9a-f]{16}";
  refused(3, "quarters: the examples to learn " + message, again());
  QuarterImages(150, /*seed=*/1).write(path("quarters"), "train");
  QuarterImages(40, /*seed=*/7).write(path("quarters"), "t10k");
  refused(3, "quarters: the examples to measure on " + message, again());
  refused(3, "quarters: the examples to measure on ", train({"--epochs", "3", "--resume", newest, "--run-dir", "none"}));
  EXPECT_EQ(last("run"), before);
  QuarterImages(40, /*seed=*/2).write(path("quarters"), "t10k");
  good(again());
}

TEST_F(ResumeInputs, ACheckpointWithoutFingerprintsGoesOn) {
  good(train({"--epochs", "3", "--run-dir", "whole"}));
  good(train({"--epochs", "2", "--run-dir", "run"}));
  rewrite(newest, "position", [](json& position) {
    position.erase("data");
    position.erase("validation");
  });
  good(again());
  EXPECT_EQ(last("run"), last("whole")) << "which has them from now on";
}

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

TEST_F(ResumeInputs, APositionThatNoRunHasIsRefused) {
  good(train({"--epochs", "2", "--run-dir", "run"}));
  const std::string whole = content(newest);
  const std::vector<Refusal> refusals = {
      {"position", "epoch", -1},
      {"position", "batch", 6},
      {"position", "batch", -1},
      {"position", "stale", -1},
      {"position", "stale", 3},
      {"position", "best", "nan"},
      {"position", "epoch", 1e300},
      {"position", "best", true},
      {"epoch_score", "examples", 151},
      {"epoch_score", "correct", -1},
      {"score", "correct", 1e6},
      {"score", "loss_sum", "inf"},
      {"training", "batches", -1},
      {"training", "batches", INT64_MAX},
      {"training", "learning_rate", "nan"},
      {"training", "plateau_waited", -1},
      {"training", "plateau_best", "nan"},
      {"training", "plateau_factor", "inf"},
      {"settings", "lr-schedule", "never"},
      {"settings", "accumulate", "1"},
  };
  for (const Refusal& refusal : refusals) {
    rewrite(newest, refusal.entry, [&](json& object) { object[refusal.key] = refusal.value; });
    check(refusal, newest, run(again()));
    write(newest, whole);
  }
}

TEST_F(ResumeInputs, ABundleWithNumbersThatAreNoneIsRefused) {
  const Tensor target = Tensor::full({40, 4, 3, 3}, 0.25);
  target.data<float>()[25 * 36 + 3] = 1e30f;
  write("data.safetensors", serialize_safetensors({{"input", random_tensor({40, 3, 8, 8})}, {"target", target}}));
  const Outcome diverged = run({"train", "conv2d-groupnorm-pool", "--model-config", tiny_model().config, "--data", "data.safetensors",
                                "--batch-size", "4", "--run-dir", "run", "--quiet"});
  ASSERT_EQ(diverged.code, 7) << diverged;
  std::string bundle;
  for (const auto& entry : fs::directory_iterator(path("run"))) {
    if (entry.path().filename().string().starts_with("not-finite-step-")) bundle = fs::relative(entry.path(), folder);
  }
  const std::string state = bundle + "/state.safetensors", whole = content(state);
  const std::vector<Refusal> refusals = {
      {"settings", "accumulate", 0},
      {"settings", "accumulate", -1},
      {"settings", "accumulate", INT64_MAX},
      {"settings", "accumulate", 1.5},
      {"settings", "accumulate", "2"},
      {"settings", "batch-size", 0},
      {"settings", "clip-norm", 0},
      {"settings", "clip-norm", -1},
      {"settings", "clip-norm", "nan"},
      {"settings", "lr", -1},
      {"settings", "lr", "inf"},
      {"settings", "momentum", 2},
      {"settings", "warm-up", -1},
      {"settings", "warm-up", INT64_MAX},
      {"settings", "lr-step", 0},
      {"settings", "lr-step", INT64_MAX},
      {"settings", "lr-patience", -1},
      {"settings", "lr-factor", 0},
      {"settings", "lr-final", "nan"},
      {"settings", "optimizer", "adamx"},
      {"settings", "lr-schedule", "never"},
      {"settings", "dtype", "i64"},
      {"settings", "dtype", "f7"},
      {"settings", "precision", "f64"},
      {"settings", "freeze", 3},
      {"settings", "groups", "rank=0"},
      {"settings", "average-decay", 1},
      {"settings", "ignore-index", 0.5},
      {"settings", "ignore-index", "inf"},
      {"settings", "weight-decay", "inf"},
      {"training", "batches", -1},
      {"training", "batches", INT64_MAX},
      {"training", "learning_rate", "nan"},
  };
  for (const Refusal& refusal : refusals) {
    rewrite(state, refusal.entry, [&](json& object) { object[refusal.key] = refusal.value; });
    check(refusal, state, run({"replay", bundle, "--quiet"}));
    write(state, whole);
  }
  const TensorFile file = read_safetensors(path(state));
  TensorMap tensors;
  for (std::size_t i = 0; i < file.size(); ++i) tensors.emplace(file.entry(i).name, file.tensor(i));
  for (const std::int64_t count : {std::int64_t{-1}, std::int64_t{INT64_MAX}}) {
    tensors["optimizer.step"] = Tensor::from<std::int64_t>({count}, {});
    write_checkpoint(path(state), tensors, file.metadata());
    const Outcome outcome = run({"replay", bundle, "--quiet"});
    EXPECT_EQ(outcome.code, 3) << outcome;
    EXPECT_NE(outcome.errors.find(concat("\"optimizer.step\" is ", count, ", expected a count")), std::string::npos) << outcome;
  }
  write(state, whole);
  rewrite(state, "settings", [&](json& settings) {
    settings.update({{"accumulate", 3}, {"warm-up", 9}, {"epochs", 1}, {"lr-schedule", "cosine"}});
  });
  EXPECT_EQ(run({"replay", bundle, "--quiet"}).code, 3) << "the sums of gradients are missing";
  write(state, whole);
  EXPECT_EQ(run({"replay", bundle, "--quiet"}).code, 7);
}

}  // namespace
}  // namespace frit
