// `frit train` on several processes that mpirun starts: what one process does.

#include <nlohmann/json.hpp>
#include <thread>

#include "apps/distributed_run.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

TEST_F(Distributed, AnyNumberOfProcessesLearnsAsOne) {
  const std::vector<std::string> arguments = learn({"--lr", "0.01", "--epochs", "3", "--clip-norm", "0.5", "--lr-schedule", "cosine"});
  const Outcome one = good(with(arguments, {"--run-dir", "1"}));
  for (const int processes : {2, 4}) {
    const std::string directory = concat(processes), again = directory + "again";
    const Outcome outcome = on(processes, with(arguments, {"--run-dir", directory}));
    ASSERT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(outcome.output, one.output);
    expect_equal(directory, "1");
    good_on(processes, with(arguments, {"--run-dir", again}));
    EXPECT_EQ(last(again), last(directory)) << "the same bits";
    const std::string epochs = content(directory + "/epochs.csv"), expected = content("1/epochs.csv");
    EXPECT_EQ(std::count(epochs.begin(), epochs.end(), '\n'), std::count(expected.begin(), expected.end(), '\n'));
    EXPECT_EQ(checkpoints(directory), checkpoints("1"));
  }
}

TEST_F(Distributed, AnyNumberOfProcessesGoesOn) {
  for (const char* const accumulated : {"1", "2"}) {
    const std::string kind = concat("of", accumulated);
    const std::vector<std::string> arguments = learn({"--lr", "0.01", "--epochs", "2", "--checkpoint-every", "3", "--keep", "10",
                                                      "--accumulate", accumulated, "--average-decay", "0.9"});
    good_on(2, with(arguments, {"--run-dir", kind}));
    for (const int processes : {1, 4}) {
      const std::string directory = concat(kind, "on", processes);
      good_on(processes, with(arguments, {"--run-dir", directory, "--resume", kind + "/checkpoints/step-000000000003.safetensors"}));
      expect_equal(directory, kind);
    }
  }
}

TEST_F(Distributed, ShardedOptimizersLearnAndGoOnAsWholeOnes) {
  const std::vector<std::string> arguments =
      learn({"--lr", "0.01", "--epochs", "2", "--checkpoint-every", "3", "--keep", "10", "--clip-norm", "0.5"});
  const Outcome one = good(with(arguments, {"--run-dir", "whole"}));
  for (const int processes : {2, 4}) {
    const std::string directory = concat("sharded", processes), again = directory + "again";
    const Outcome outcome = on(processes, with(arguments, {"--run-dir", directory, "--shard-optimizer"}));
    ASSERT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(outcome.output, one.output);
    expect_equal(directory, "whole");
    good_on(processes, with(arguments, {"--run-dir", again, "--shard-optimizer"}));
    EXPECT_EQ(last(again), last(directory)) << "the same bits";
  }
  struct Case {
    const char* from;
    int processes;
    std::vector<std::string> flags;
  };
  for (const Case& c : {Case{"sharded2", 1, {}}, Case{"sharded4", 2, {}}, Case{"whole", 2, {"--shard-optimizer"}},
                        Case{"sharded4", 2, {"--shard-optimizer"}}, Case{"sharded2", 4, {"--shard-optimizer"}}}) {
    const std::string directory = concat(c.from, "-on-", c.processes, "-", c.flags.size());
    const std::string checkpoint = concat(c.from, "/checkpoints/step-000000000003.safetensors");
    good_on(c.processes, with(with(arguments, {"--run-dir", directory, "--resume", checkpoint}), c.flags));
    expect_equal(directory, "whole");
  }
}

TEST_F(Distributed, ADryRunCountsTheShardAlone) {
  const auto optimizer_bytes = [&](const std::vector<std::string>& flags) {
    const Outcome outcome = on(2, with(learn({"--dry-run", "--json"}), flags));
    EXPECT_EQ(outcome.code, 0) << outcome;
    return nlohmann::json::parse(outcome.output).at("memory_bytes").at("optimizer").get<double>();
  };
  EXPECT_NEAR(optimizer_bytes({"--shard-optimizer"}), optimizer_bytes({}) / 2, 100);
}

TEST_F(Distributed, ASegmentationIsLearntAndMeasuredAsByOne) {
  // Of nine volumes to measure on the second process has one more.
  write_volumes("volumes/train", 12, /*ignored=*/true);
  write_volumes("volumes/test", 9);
  const std::vector<std::string> arguments = {"train",           "unet3d",  "--model-config", R"({"channels": [3, 4], "num_classes": 4})",
                                              "--data",          "volumes", "--batch-size",   "8",
                                              "--optimizer",     "sgd",     "--lr",           "0.1",
                                              "--flip",          "hw",      "--ignore-index", "255",
                                              "--epochs",        "3",       "--dtype",        "f64",
                                              "--deterministic", "--quiet", "--json",         "--run-dir"};
  const auto score = [](const Outcome& outcome) {
    nlohmann::json scores = nlohmann::json::parse(outcome.output);
    scores.erase("peak_memory_bytes");
    scores.erase("run_directory");
    return scores;
  };
  const nlohmann::json expected = score(good(with(arguments, {"1"})));
  for (const int processes : {2, 4}) {
    const std::string directory = concat(processes), again = directory + "again";
    const Outcome outcome = on(processes, with(arguments, {directory}));
    ASSERT_EQ(outcome.code, 0) << outcome;
    const nlohmann::json found = score(outcome);
    ASSERT_EQ(found.size(), expected.size()) << found;
    for (const char* const figure : {"loss", "accuracy", "dice", "iou"}) EXPECT_NEAR(found[figure], expected[figure], 1e-10) << figure;
    EXPECT_EQ(content(directory + "/confusion.csv"), content("1/confusion.csv"));
    expect_equal(directory, "1");
    good_on(processes, with(arguments, {again}));
    EXPECT_EQ(last(again), last(directory)) << "the same bits";
  }
}

TEST_F(Distributed, BatchNormsOfAllExamplesLearnAsOne) {
  const std::vector<std::string> arguments = {
      "train",          "resnet",
      "--model-config", R"({"blocks": [1, 1], "bottleneck": false, "in_channels": 1, "width": 8, "num_classes": 4})",
      "--data",         "quarters",
      "--batch-size",   "32",
      "--dtype",        "f64",
      "--optimizer",    "sgd",
      "--momentum",     "0.9",
      "--epochs",       "2",
      "--quiet",        "--deterministic"};
  const Outcome one = good(with(arguments, {"--run-dir", "1", "--sync-batch-norm"}));
  for (const int processes : {2, 4}) {
    const std::string directory = concat(processes);
    const Outcome outcome = on(processes, with(arguments, {"--run-dir", directory, "--sync-batch-norm"}));
    ASSERT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(outcome.output, one.output);
    expect_equal(directory, "1");
  }
  const Outcome apart = on(2, with(arguments, {"--run-dir", "apart"}));
  EXPECT_NE(apart.output, one.output);
  const Outcome differing = run_program(several({program(with(arguments, {"--sync-batch-norm"})), program(arguments)}));
  expect_refusal(differing, 2, "--sync-batch-norm: process 1 has false, process 0 has true\n");
}

TEST_F(Distributed, WhatDiffersIsRefused) {
  const auto refused = [&](int code, const std::string& message, const std::vector<std::string>& first,
                           const std::vector<std::string>& second) {
    expect_refusal(run_program(several({program(first), program(second)})), code, message);
  };
  refused(2, "--epochs: process 1 has 3, process 0 has 2\n", learn({"--epochs", "2"}), learn({"--epochs", "3"}));
  refused(2, "--weight-decay: process 1 has none, process 0 has 0.1\n", learn({"--weight-decay", "0.1"}), learn({}));
  QuarterImages(152, /*seed=*/3).write(path("others"), "train");
  QuarterImages(41, /*seed=*/2).write(path("others"), "t10k");
  refused(2, "the checksum of the examples: process 1 has \\S+, process 0 has \\S+\n", learn({}), learn({}, "others"));
  refused(4, "process 1: nowhere: .*\n", learn({}), learn({}, "nowhere"));
  refused(2, "--shard-optimizer: process 1 has false, process 0 has true\n", learn({"--shard-optimizer"}), learn({}));
  EXPECT_FALSE(fs::exists(path("runs"))) << "nothing was begun";
}

TEST_F(Distributed, WhatDoesNotDivideIsRefused) {
  refused_on(3, 2, "--batch-size 32 does not go with 3 processes: each learns an equal part of every batch\n", learn({}));
  QuarterImages(3, /*seed=*/1).write(path("quarters"), "train");
  refused_on(4, 3, "quarters: there are 3 examples for 4 processes, each of which needs one\n", learn({}));
}

TEST_F(Distributed, AProcessThatAnotherMpiStartedIsNotAlone) {
  const Outcome outcome = run_program({.arguments = learn({}),
                                       .directory = folder,
                                       .environment = {"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "ASAN_OPTIONS=detect_leaks=0"}});
  expect_refusal(
      outcome, 2,
      "(Open MPI|MPICH|Intel\\(R\\) MPI) .*says that this is process 0 of 1, its launcher that it is process 1 of 2: expected the "
      "mpirun of the MPI that libfrit-mpi.so was built with, .*\n");
  EXPECT_FALSE(fs::exists(path("runs")));
}

TEST_F(Distributed, AnInterruptOfOneStopsAll) {
  const std::vector<std::string> arguments = learn({"--epochs", "60", "--checkpoint-every", "1000e"}), run_in = {"--run-dir", "run"};
  Process process(several({program(with(arguments, run_in)), numbered_program(with(arguments, run_in), "number")}));
  while (!process.ended() && !fs::exists(path("run/checkpoints/best.safetensors")))
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  kill(std::stoi(content("number")), SIGINT);
  const Outcome outcome = process.finish();
  expect_refusal(outcome, 128 + SIGINT, "interrupted by SIGINT after step \\d+; --run-dir run --resume auto goes on from there\n");
  good(with(arguments, {"--run-dir", "run", "--resume", "auto"}));
  good(with(arguments, {"--run-dir", "whole"}));
  expect_equal("run", "whole");
}

TEST_F(Distributed, AStepThatIsNotFiniteEndsAllAndIsKept) {
  const Tensor target = Tensor::full({40, 4, 3, 3}, 0.25);
  target.data<float>()[25 * 36 + 3] = 1e30f;
  write("data.safetensors", serialize_safetensors({{"input", random_tensor({40, 3, 8, 8})}, {"target", target}}));
  const std::vector<std::int64_t> order = permutation(40, /*seed=*/0, /*stream=*/0);
  const std::int64_t place = std::find(order.begin(), order.end(), 25) - order.begin(), step = place / 4 + 1;
  for (const std::vector<std::string>& flags :
       {std::vector<std::string>{"--run-dir", "run"}, {"--run-dir", "sharded", "--shard-optimizer"}}) {
    const std::string bundle = concat(flags[1], "/not-finite-step-", step);
    refused_on(2, 7,
               concat("the loss is inf at step ", step, " \\(epoch 1\\): process ", place % 4 / 2, ": .*; `frit replay ", bundle,
                      "` runs it again; .*\n"),
               with({"train", "conv2d-groupnorm-pool", "--model-config", tiny_model().config, "--data", "data.safetensors", "--batch-size",
                     "4", "--quiet"},
                    flags));
    const Outcome replay = run({"replay", bundle});
    EXPECT_EQ(replay.code, 7) << replay;
  }
}

}  // namespace
}  // namespace frit
