// `frit train` on several processes that mpirun starts: what one process does.

#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "apps/resume_run.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

class Distributed : public Resume {
 protected:
  /// Batches of 32, of which the last has 24: both divide by 2 and by 4.
  Distributed() {
    QuarterImages(152, /*seed=*/1).write(path("quarters"), "train");
    QuarterImages(41, /*seed=*/2).write(path("quarters"), "t10k");
  }
  void SetUp() override {
#ifndef FRIT_MPIRUN
    GTEST_SKIP() << "frit was built without MPI";
#endif
  }

  static std::vector<std::string> learn(const std::vector<std::string>& more, const std::string& data = "quarters") {
    return with({"train", "classifier", "--model-config", tiny_classifier, "--data", data, "--batch-size", "32", "--dtype", "f64",
                 "--deterministic", "--quiet"},
                more);
  }

  /// One program for each of the processes.
  ProgramLaunch several(const std::vector<std::vector<std::string>>& programs) const {
#ifdef FRIT_MPIRUN
    ProgramLaunch start{.arguments = {}, .directory = folder, .program = FRIT_MPIRUN};
#else
    ProgramLaunch start{.arguments = {}, .directory = folder};
#endif
    start.environment = {"FRIT_THREADS=1",
                         "FRIT_COMMUNICATION_TIMEOUT=60",
                         "ASAN_OPTIONS=detect_leaks=0",  // MPI's
                         "OMPI_ALLOW_RUN_AS_ROOT=1",
                         "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                         "OMPI_MCA_rmaps_base_oversubscribe=1",
                         "OMPI_MCA_btl_vader_single_copy_mechanism=none"};
    for (const std::vector<std::string>& program : programs) {
      if (!start.arguments.empty()) start.arguments.emplace_back(":");
      start.arguments.insert(start.arguments.end(), {"-n", "1"});
      start.arguments.insert(start.arguments.end(), program.begin(), program.end());
    }
    return start;
  }
  static std::vector<std::string> program(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), FRIT_PROGRAM);
    return arguments;
  }
  Outcome on(int processes, const std::vector<std::string>& arguments) const {
    if (processes == 1) return run(arguments);
    return run_program(several(std::vector(static_cast<std::size_t>(processes), program(arguments))));
  }
  void good_on(int processes, const std::vector<std::string>& arguments) const {
    const Outcome outcome = on(processes, arguments);
    ASSERT_EQ(outcome.code, 0) << processes << " processes: " << outcome;
  }
  void refused_on(int processes, int code, const std::string& message, const std::vector<std::string>& arguments) const {
    expect_refusal(on(processes, arguments), code, message);
  }
  /// The message once, and nothing of the result.
  static void expect_refusal(const Outcome& outcome, int code, const std::string& message) {
    EXPECT_EQ(outcome.code, code) << outcome;
    const std::regex line("frit: error: " + message);
    const auto begin = std::sregex_iterator(outcome.errors.begin(), outcome.errors.end(), line);
    EXPECT_EQ(std::distance(begin, std::sregex_iterator()), 1) << outcome << "\nexpected " << message;
    EXPECT_EQ(outcome.output, "");
  }

  /// The tensors of two runs' last checkpoints, relative to the largest value of each.
  void expect_equal(const std::string& run, const std::string& wanted) const {
    const TensorFile found = read_safetensors(path(run + "/checkpoints/last.safetensors")),
                     expected = read_safetensors(path(wanted + "/checkpoints/last.safetensors"));
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::string name(expected.entry(i).name);
      const std::vector<double> a = found.at(name).to_vector<double>(), b = expected.tensor(i).to_vector<double>();
      ASSERT_EQ(a.size(), b.size());
      double difference = 0, largest = 1e-300;
      for (std::size_t k = 0; k < b.size(); ++k) {
        difference = std::max(difference, std::abs(a[k] - b[k]));
        largest = std::max(largest, std::abs(b[k]));
      }
      EXPECT_LE(difference / largest, 1e-10) << run << ": " << name;
    }
    EXPECT_EQ(found.metadata().at("training"), expected.metadata().at("training")) << "as far as the other";
  }
};

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
  for (const auto& [part, count] : {std::pair("volumes/train", 10), std::pair("volumes/test", 9)}) {
    fs::create_directories(path(part));
    const Tensor inputs = Tensor::empty({count, 1, 4, 8, 8}), targets = Tensor::empty({count, 4, 8, 8}, DType::u8);
    fill_normal(inputs, 0, 1, /*seed=*/1, /*stream=*/static_cast<std::uint64_t>(count));
    for (std::int64_t i = 0; i < inputs.elements(); ++i) {
      const bool ignored = count == 10 && i % 7 < i / 256;
      targets.data<std::uint8_t>()[i] = ignored ? 255 : static_cast<std::uint8_t>((inputs.data<float>()[i] > 0.4F) + (i % 5 == 0 ? 2 : 0));
    }
    write_npy(path(std::string(part) + "/inputs.npy"), inputs);
    write_npy(path(std::string(part) + "/targets.npy"), targets);
  }
  const std::vector<std::string> arguments = {"train",           "unet3d",  "--model-config", R"({"channels": [3, 4], "num_classes": 4})",
                                              "--data",          "volumes", "--batch-size",   "4",
                                              "--optimizer",     "sgd",     "--lr",           "0.1",
                                              "--flip",          "hw",      "--ignore-index", "255",
                                              "--epochs",        "3",       "--dtype",        "f64",
                                              "--deterministic", "--quiet", "--json",         "--run-dir"};
  const auto score = [](const Outcome& outcome) {
    nlohmann::json json = nlohmann::json::parse(outcome.output);
    json.erase("peak_memory_bytes");
    json.erase("run_directory");
    return json;
  };
  const nlohmann::json expected = score(good(with(arguments, {"1"})));
  const Outcome outcome = on(2, with(arguments, {"2"}));
  ASSERT_EQ(outcome.code, 0) << outcome;
  const nlohmann::json found = score(outcome);
  ASSERT_EQ(found.size(), expected.size()) << found;
  for (const char* const figure : {"loss", "accuracy", "dice", "iou"}) EXPECT_NEAR(found[figure], expected[figure], 1e-10) << figure;
  EXPECT_EQ(content("2/confusion.csv"), content("1/confusion.csv"));
  expect_equal("2", "1");
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

TEST_F(Distributed, AnInterruptOfOneStopsAll) {
  const std::vector<std::string> arguments = learn({"--epochs", "60", "--checkpoint-every", "1000e"}), run_in = {"--run-dir", "run"};
  // The second process tells its number before it becomes the program.
  std::vector<std::string> told = with(program(with(arguments, run_in)), {});
  told.insert(told.begin(), {"/bin/sh", "-c", "echo $$ > number.tmp && mv number.tmp number && exec \"$0\" \"$@\""});
  Process process(several({program(with(arguments, run_in)), told}));
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
