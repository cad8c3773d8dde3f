// `frit train --run-dir`: checkpoints, going on from them with the same bits, and steps that are not finite.

#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "apps/resume_run.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

TEST_F(Resume, KilledAtTwentyRandomMomentsEqualsTheUninterruptedRun) {
  const std::vector<std::string> arguments = train({"--epochs", "60", "--checkpoint-every", "20", "--lr-schedule", "cosine"});
  const Outcome whole = good(with(arguments, {"--run-dir", "whole", "--save", "whole.safetensors"}));
  const std::vector<std::string> again = with(arguments, {"--run-dir", "killed", "--save", "killed.safetensors", "--resume", "auto"});
  const auto steps_done = [&] {
    std::ifstream file(path("killed/steps.csv"));
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n') - 1;
  };
  constexpr int kills = 20, apart = 60 * 5 / (kills + 1);
  std::mt19937 random(5);
  std::uniform_int_distribution<int> some_steps(0, apart), microseconds(0, 2000);
  int killed = 0;
  for (int i = 0; i < kills; ++i) {
    const int moment = i * apart + some_steps(random);
    Process process({.arguments = again, .directory = folder});
    while (!process.ended() && steps_done() < moment) std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds(random)));
    process.send(SIGKILL);
    const Outcome outcome = process.finish();
    killed += outcome.signal == SIGKILL;
    EXPECT_TRUE(outcome.signal == SIGKILL || outcome.code == 0) << outcome;
  }
  EXPECT_GE(killed, 15);
  const Outcome finished = good(again);
  EXPECT_EQ(finished.output, whole.output);
  EXPECT_EQ(last("killed"), last("whole"));
  EXPECT_EQ(content("killed.safetensors"), content("whole.safetensors"));
  for (const auto& entry : fs::recursive_directory_iterator(path("killed")))
    EXPECT_EQ(entry.path().string().find(".tmp."), std::string::npos) << entry.path();
  const std::string epochs = content("killed/epochs.csv");
  EXPECT_EQ(std::count(epochs.begin(), epochs.end(), '\n'), 1 + 60) << epochs;
}

TEST_F(Resume, AnInterruptWritesACheckpoint) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string directory = concat("run", signal);
    const std::vector<std::string> arguments = with(train({"--epochs", "200", "--checkpoint-every", "1000e"}), {"--run-dir", directory});
    Process process({.arguments = arguments, .directory = folder});
    while (!fs::exists(folder / directory / "checkpoints/best.safetensors")) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    process.send(signal);
    const Outcome outcome = process.finish();
    ASSERT_EQ(outcome.code, 128 + signal) << outcome;
    EXPECT_NE(outcome.errors.find("; --run-dir " + directory + " --resume auto goes on from there\n"), std::string::npos) << outcome;
    for (const std::string& name : checkpoints(directory)) EXPECT_EQ(name.find(".tmp."), std::string::npos) << name;
    good(with(arguments, {"--resume", "auto"}));
    good(with(train({"--epochs", "200"}), {"--run-dir", "whole" + directory}));
    EXPECT_EQ(last(directory), last("whole" + directory));
  }
}

/// From a checkpoint within an epoch, with other threads and prefetching, whatever else the run keeps.
TEST_F(Resume, HasTheSameBitsWhateverTheRunKeeps) {
  const std::vector<std::vector<std::string>> kinds = {
      {"--optimizer", "sgd", "--momentum", "0.9", "--accumulate", "3", "--clip-norm", "0.5"},
      {"--lr-schedule", "plateau", "--lr-patience", "0", "--lr-factor", "0.5", "--precision", "f16"},
      {"--lr-schedule", "one-cycle", "--warm-up", "4", "--optimizer", "adamw", "--dtype", "f64", "--freeze", "block.*"},
      {"--groups", "rank=0-1 weight-decay=0; names=linear.* lr=0.02", "--optimizer", "adamw", "--average-decay", "0.9"},
      {"--overfit-one-batch", "--seed", "18446744073709551615"},
  };
  for (const std::vector<std::string>& kind : kinds) {
    const std::vector<std::string> arguments = with(train({"--epochs", "5"}), kind);
    const Outcome whole = good(with(arguments, {"--run-dir", "a", "--checkpoint-every", "4", "--keep", "100", "--prefetch", "3"}));
    for (const char* const step : {"04", "12"}) {
      const std::string checkpoint = std::string("a/checkpoints/step-0000000000") + step + ".safetensors";
      const Outcome resumed = good(with(arguments, {"--run-dir", "b", "--resume", checkpoint, "--prefetch", "0", "--threads", "1"}));
      EXPECT_EQ(resumed.output, whole.output);
      EXPECT_EQ(last("b"), last("a")) << kind[1];
      fs::remove_all(folder / "b");
    }
    fs::remove_all(folder / "a");
  }
}

TEST_F(Resume, AFinishedRunCanGoOnForMoreEpochs) {
  good(train({"--epochs", "6", "--run-dir", "long"}));
  const Outcome first = good(train({"--epochs", "2", "--run-dir", "run"}));
  EXPECT_EQ(good(train({"--epochs", "2", "--run-dir", "run", "--resume", "auto"})).output, first.output) << "there is nothing left to do";
  good(train({"--epochs", "6", "--run-dir", "run", "--resume", "auto"}));
  EXPECT_EQ(last("run"), last("long"));
}

TEST_F(Resume, StopsEarlyAtTheSameEpoch) {
  std::vector<std::string> arguments = train({"--epochs", "500", "--early-stopping", "2", "--run-dir", "a"});
  *(std::find(arguments.begin(), arguments.end(), "--lr") + 1) = "0.5";
  const Outcome whole = good(arguments);
  EXPECT_EQ(good(with(arguments, {"--resume", "auto"})).output, whole.output);
  const TensorFile file = read_safetensors(path("a/checkpoints/last.safetensors"));
  EXPECT_NE(file.metadata().at("position").find("\"stale\":2"), std::string::npos) << file.metadata().at("position");
}

TEST_F(Resume, KeepsAsManyAsAskedAndTheBest) {
  good(train({"--epochs", "6", "--run-dir", "run", "--keep", "2"}));
  EXPECT_EQ(checkpoints("run"), (std::vector<std::string>{"best.safetensors", "last.safetensors", "lock", "step-000000000025.safetensors",
                                                          "step-000000000030.safetensors"}));
  write("images.npy", serialize_npy(random_tensor({3, 1, 8, 8})));
  good({"infer", "run/checkpoints/best.safetensors", "--input", "images.npy", "--output", "logits.npy"});
  const Outcome info = good({"info", "run/checkpoints/best.safetensors"});
  EXPECT_NE(info.output.find("optimizer.linear.weight.first_moment"), std::string::npos);
}

TEST_F(Resume, BeginsWithGivenWeights) {
  good(train({"--epochs", "5", "--save", "weights.safetensors"}));
  const Outcome tuned =
      good(train({"--epochs", "1", "--weights", "weights.safetensors", "--freeze", "block.*", "--save", "tuned.safetensors"}));
  const TensorFile before = read_safetensors(path("weights.safetensors")), after = read_safetensors(path("tuned.safetensors"));
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::string name(before.entry(i).name);
    EXPECT_EQ(before.tensor(i).to_vector<float>() == after.at(name).to_vector<float>(), name.starts_with("block.")) << name;
  }
}

TEST_F(Resume, RefusesWhatDoesNotGoTogether) {
  good(train({"--epochs", "3", "--run-dir", "run", "--save", "weights.safetensors"}));
  const std::string before = last("run");
  const auto again = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--epochs", "4", "--run-dir", "run", "--resume", "auto"});
    return train(more);
  };
  refused(2, "has the checkpoints of a run; --resume auto", train({"--run-dir", "run"}));
  refused(2, "--resume auto goes with --run-dir", train({"--resume", "auto"}));
  refused(2, "--resume run/.* does not go with --seed 7: the run that is to go on has 0", again({"--seed", "7"}));
  refused(2, "does not go with --accumulate 2: .* has 1", again({"--accumulate", "2"}));
  refused(2, "does not go with --flip \"w\": .* has \"\"", again({"--flip", "w"}));
  refused(3, "does not go with --optimizer \"sgd\": .* has \"adam\"", again({"--optimizer", "sgd"}));
  refused(2, "--keep: expected an integer from 2 to", again({"--keep", "1"}));
  refused(2, "--checkpoint-every: expected a number of steps", again({"--checkpoint-every", "often"}));
  refused(2, "no parameter's name matches \"blok.\\*\"", train({"--freeze", "blok.*"}));
  refused(2, "--warm-up 99 does not go with --epochs 1", train({"--epochs", "1", "--warm-up", "99", "--lr-schedule", "cosine"}));
  refused(3, "weights.safetensors: .*not a checkpoint that a training can go on from", train({"--resume", "weights.safetensors"}));
  refused(4, "nowhere: no such file", train({"--resume", "nowhere"}));
  refused(4, "quarters/train-labels-idx1-ubyte", train({"--run-dir", "quarters/train-labels-idx1-ubyte"}));
  std::vector<std::string> other = again({});
  other[3] = R"({"image_size": [8, 8], "num_classes": 4, "out_channels": 8, "num_groups": 2})";
  refused(3, "last|step.*: model: expected classifier .*\"out_channels\":8.*, got classifier .*\"out_channels\":4", other);
  write("quarters/t10k-images-idx3-ubyte", content("quarters/train-images-idx3-ubyte"));
  write("quarters/t10k-labels-idx1-ubyte", content("quarters/train-labels-idx1-ubyte"));
  QuarterImages(90, /*seed=*/1).write(path("quarters"), "train");
  refused(3, "quarters: has 90 examples; the run that is to go on .* has 150", again({}));
  EXPECT_EQ(last("run"), before);
}

TEST_F(Resume, OneRunWritesToAFolder) {
  Process first({.arguments = train({"--epochs", "1000000", "--run-dir", "run"}), .directory = folder});
  while (!fs::exists(folder / "run/checkpoints/best.safetensors")) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  refused(4, "run/checkpoints: another training is writing", train({"--run-dir", "run", "--resume", "auto"}));
  first.send(SIGINT);
  EXPECT_EQ(first.finish().code, 130);
}

TEST_F(Resume, ADamagedCheckpointIsNamedAndPassedOver) {
  good(train({"--epochs", "4", "--run-dir", "whole"}));
  good(train({"--epochs", "3", "--run-dir", "run"}));
  const std::string newest = "run/checkpoints/step-000000000015.safetensors";
  std::string bytes = content(newest);
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 16);
  write(newest, bytes);
  const std::vector<std::string> again = train({"--epochs", "4", "--run-dir", "run", "--resume"});
  refused(3,
          newest + ": tensor \".*\" does not have its checksum.*newest good checkpoint is run/checkpoints/step-000000000010.*latest-good",
          with(again, {"auto"}));
  const Outcome outcome = good(with(again, {"latest-good"}));
  EXPECT_NE(outcome.errors.find(newest + ": tensor"), std::string::npos) << outcome;
  EXPECT_EQ(last("run"), last("whole"));
  EXPECT_TRUE(fs::exists(folder / (newest + ".damaged")));
}

TEST_F(Resume, GoingBackSetsLaterCheckpointsAside) {
  good(train({"--epochs", "3", "--run-dir", "run", "--keep", "9"}));
  const std::string whole = last("run");
  const Outcome outcome = good(train({"--epochs", "3", "--run-dir", "run", "--resume", "latest-good"}));
  EXPECT_EQ(outcome.errors, "");
  fs::copy_file(folder / "run/checkpoints/step-000000000005.safetensors", folder / "five.safetensors");
  refused(2, "has the checkpoints of a run", train({"--epochs", "3", "--run-dir", "run"}));
  good(train({"--epochs", "3", "--run-dir", "run", "--resume", "five.safetensors"}));
  EXPECT_EQ(last("run"), whole);
  EXPECT_TRUE(fs::exists(folder / "run/checkpoints/step-000000000015.safetensors.aside"));
}

TEST_F(Resume, AStepThatIsNotFiniteIsExplainedAndReplayed) {
  const Tensor input = random_tensor({40, 3, 8, 8}), target = Tensor::full({40, 4, 3, 3}, 0.25);
  target.data<float>()[25 * 36 + 3] = 1e30f;  // its square is infinite
  write("data.safetensors", serialize_safetensors({{"input", input}, {"target", target}}));
  for (const std::vector<std::string>& kind :
       std::vector<std::vector<std::string>>{{}, {"--accumulate", "3"}, {"--precision", "bf16", "--lr-schedule", "cosine"}}) {
    const std::vector<std::string> arguments =
        with({"train", "conv2d-groupnorm-pool", "--model-config", tiny_model().config, "--data", "data.safetensors", "--batch-size", "4",
              "--run-dir", "run", "--quiet", "--seed", "2", "--checkpoint-every", "1"},
             kind);
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 7) << outcome;
    std::smatch found;
    ASSERT_TRUE(
        std::regex_search(outcome.errors, found,
                          std::regex("the loss is inf at step ([0-9]+) \\(epoch 1\\): (operator [a-z_]*loss|operator [a-z_]*error).*"
                                     "the first at 0; `frit replay (.*)` runs it again; hint: a smaller --lr")))
        << outcome;
    const std::string bundle = found[3];
    for (const char* const name : {"state.safetensors", "inputs.safetensors", "graph.txt", "report.txt"}) {
      EXPECT_TRUE(fs::exists(folder / bundle / name)) << name;
    }
    const Outcome replay = run({"replay", bundle});
    EXPECT_EQ(replay.code, 7) << replay;
    EXPECT_NE(replay.errors.find("step " + found[1].str() + ": " + found[2].str()), std::string::npos) << replay;
    EXPECT_NE(replay.output.find("input target"), std::string::npos) << replay;
    const nlohmann::json values = nlohmann::json::parse(run({"replay", bundle, "--json", "--quiet"}).output)["values"];
    EXPECT_EQ(values[0]["value"], "input input");
    EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](const auto& value) { return value["non_finite"] > 0; })) << values;
    // The state is the one from before the step: that of the checkpoint, where there is one.
    const std::int64_t before = std::stoll(found[1].str()) - 1;
    if (before > 0) {
      const std::string number = std::to_string(before);
      const TensorFile checkpoint =
          read_safetensors(path("run/checkpoints/step-" + std::string(12 - number.size(), '0') + number + ".safetensors"));
      const TensorFile state = read_safetensors(path(bundle + "/state.safetensors"));
      ASSERT_EQ(state.size(), checkpoint.size());
      for (std::size_t i = 0; i < state.size(); ++i) {
        if (state.entry(i).name == "optimizer.rate") continue;  // that of the step
        EXPECT_EQ(state.tensor(i).to_vector<double>(), checkpoint.tensor(i).to_vector<double>()) << state.entry(i).name;
      }
    }
    const TensorFile inputs = read_safetensors(path(bundle + "/inputs.safetensors"));
    const TensorMap cured = {{"input", inputs.at("input")}, {"target", Tensor::full(inputs.at("target").shape(), 0.25)}};
    write(bundle + "/inputs.safetensors", serialize_safetensors(cured));
    EXPECT_EQ(run({"replay", bundle}).code, 0) << "of a batch that is cured";
    fs::remove_all(folder / "run");
  }
  refused(4, "nowhere/state.safetensors: no such file", {"replay", "nowhere"});
}

TEST_F(Resume, AnExplodingRateIsFoundWithoutAFolderToo) {
  write("data.safetensors", serialize_safetensors({{"input", random_tensor({8, 1, 4, 4, 4})}, {"target", random_tensor({8, 3, 3, 3})}}));
  refused(7, "(loss|norm of the gradients) is (-?nan|inf) at step [0-9]+ \\(epoch [0-9]+\\): operator [a-z_0-9]+.*; hint: a smaller --lr",
          {"train", "conv3d-instnorm-max", "--model-config", R"({"in_channels": 1, "out_channels": 2, "kernel_size": 2})", "--data",
           "data.safetensors", "--optimizer", "sgd", "--lr", "1e6", "--epochs", "50", "--quiet", "--run-dir", "none"});
}

}  // namespace
}  // namespace frit
