// The program on a GPU.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "apps/fixtures.h"
#include "apps/program.h"
#include "frit/core/cuda/device.h"
#include "frit/core/plan_cache.h"

namespace frit {
namespace {

using nlohmann::json;

class CudaProgram : public ProgramTest {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
  Outcome run(std::vector<std::string> arguments) const {
    return run_program({.arguments = std::move(arguments), .directory = folder, .gpu = true});
  }

  /// What a forward pass of a convolution that is worth timing says of its plans.
  json plans(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"bench",
                                          model,
                                          "--device",
                                          "cuda",
                                          "--input-shape",
                                          shape,
                                          "--mode",
                                          "forward",
                                          "--plans",
                                          "--repeats",
                                          "2",
                                          "--warmup",
                                          "1",
                                          "--format",
                                          "json",
                                          "--plan-cache",
                                          "plans.json",
                                          "--search",
                                          search};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.code, 0) << outcome;
    warnings = outcome.errors;
    return json::parse(outcome.output, nullptr, false)["plans"];
  }

  std::string model = "conv2d-groupnorm-pool", shape = "8,8,40,40", search = "exhaustive";
  mutable std::string warnings;
};

TEST_F(CudaProgram, EveryGradientEqualsDifferences) {
  const Outcome outcome = run({"gradcheck", "--all", "--device", "cuda"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(outcome.output.find("FAILED"), std::string::npos) << outcome.output;
}

TEST_F(CudaProgram, InfersWhatTheCpuInfers) {
  write("x.npy", serialize_npy(random_tensor({3, 3, 12, 12})));
  write("model.safetensors", serialize_safetensors(tiny_parameters(), checkpoint_metadata(tiny_model())));
  for (const char* const device : {"cpu", "cuda"}) {
    const Outcome outcome =
        run({"infer", "model.safetensors", "--input", "x.npy", "--output", concat(device, ".npy"), "--device", device, "--math", "strict"});
    ASSERT_EQ(outcome.code, 0) << outcome;
  }
  const std::vector<double> expected = read_npy(path("cpu.npy")).to_vector<double>(),
                            found = read_npy(path("cuda.npy")).to_vector<double>();
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-5);
}

TEST_F(CudaProgram, ExplainsHowEachStepIsComputed) {
  const Outcome outcome =
      run({"graph", "conv3d-instnorm-max", "--input-shape", "8,3,16,32,32", "--explain", "--device", "cuda", "--plan-cache", "off"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(outcome.output.find("\n# schedules: inference on cuda:0\n"), std::string::npos) << outcome;
  const std::regex step("\nconvolution_scale_instance_norm_clamp_scale_max +in every run +(taps on tensor cores|in turn, )");
  EXPECT_TRUE(std::regex_search(outcome.output, step)) << outcome;
}

TEST_F(CudaProgram, DeterministicTrainingGoesOnWithTheSameBits) {
  for (const char* const split : {"train", "t10k"}) QuarterImages(150, /*seed=*/1).write(path("quarters"), split);
  for (const std::vector<std::string>& kind :
       std::vector<std::vector<std::string>>{{"--accumulate", "2"}, {"--precision", "f16", "--lr-schedule", "cosine"}}) {
    std::vector<std::string> arguments = {"train",
                                          "classifier",
                                          "--model-config",
                                          tiny_classifier,
                                          "--data",
                                          "quarters",
                                          "--batch-size",
                                          "32",
                                          "--lr",
                                          "0.01",
                                          "--quiet",
                                          "--deterministic",
                                          "--device",
                                          "cuda",
                                          "--epochs",
                                          "4",
                                          "--checkpoint-every",
                                          "3",
                                          "--keep",
                                          "50",
                                          "--run-dir"};
    arguments.insert(arguments.end() - 1, kind.begin(), kind.end());
    std::vector<std::string> whole = arguments, part = arguments;
    whole.emplace_back("whole");
    part.insert(part.end(), {"part", "--resume", "whole/checkpoints/step-000000000009.safetensors", "--prefetch", "0"});
    for (const std::vector<std::string>& training : {whole, part}) {
      const Outcome outcome = run(training);
      ASSERT_EQ(outcome.code, 0) << outcome;
    }
    EXPECT_EQ(content("part/checkpoints/last.safetensors"), content("whole/checkpoints/last.safetensors"));
    for (const char* const directory : {"whole", "part"}) std::filesystem::remove_all(path(directory));
  }
}

TEST_F(CudaProgram, AStepThatIsNotFiniteIsExplainedAndReplayed) {
  const Tensor target = Tensor::full({40, 4, 3, 3}, 0.25);
  target.data<float>()[25 * 36 + 3] = 1e30f;  // its square is infinite
  write("data.safetensors", serialize_safetensors({{"input", random_tensor({40, 3, 8, 8})}, {"target", target}}));
  const Outcome outcome = run({"train", "conv2d-groupnorm-pool", "--model-config", tiny_model().config, "--data", "data.safetensors",
                               "--batch-size", "4", "--run-dir", "run", "--quiet", "--seed", "2", "--device", "cuda"});
  EXPECT_EQ(outcome.code, 7) << outcome;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(outcome.errors, found, std::regex("the loss is inf at step [0-9]+ .*: operator .*`frit replay (.*)` runs")))
      << outcome;
  const Outcome replay = run({"replay", found[1], "--device", "cuda"});
  EXPECT_EQ(replay.code, 7) << replay;
}

TEST_F(CudaProgram, DeterministicTrainingGivesTheSameBitsInTwoProcesses) {
  for (const auto& [network, input, target] : std::vector<std::tuple<std::string, Shape, Shape>>{
           {"conv3d-instnorm-max", {64, 3, 8, 16, 16}, {64, 6, 14, 14}}, {"convt3d-logsumexp", {16, 3, 4, 12, 12}, {16, 1, 7, 23, 23}}}) {
    std::filesystem::create_directories(path("data"));
    write("data/inputs.npy", serialize_npy(random_tensor(input)));
    write("data/targets.npy", serialize_npy(random_tensor(target)));
    for (const char* const name : {"one.safetensors", "two.safetensors"}) {
      const Outcome outcome = run({"train", network, "--data", "data", "--epochs", "3", "--batch-size", "16", "--deterministic", "--device",
                                   "cuda", "--seed", "5", "--save", name, "--plan-cache", "off"});
      ASSERT_EQ(outcome.code, 0) << network << outcome;
    }
    EXPECT_EQ(content("one.safetensors"), content("two.safetensors")) << network;
  }
}

TEST_F(CudaProgram, PlansOutliveTheProcess) {
  const json searched = plans({}), remembered = plans({});
  ASSERT_FALSE(searched.empty());
  for (const json& choice : searched) EXPECT_EQ(choice["chosen"], "by time") << choice;
  ASSERT_FALSE(remembered.empty());
  for (const json& choice : remembered) {
    EXPECT_EQ(choice["chosen"], "from the plan cache") << choice;
    EXPECT_EQ(choice["plans"].size(), 1u);
    const auto same = [&](const json& first) { return first["problem"] == choice["problem"] && first["plans"][0] == choice["plans"][0]; };
    EXPECT_TRUE(std::any_of(searched.begin(), searched.end(), same)) << choice;
  }
  const Outcome info = run({"info", "--plan-cache", "plans.json"});
  EXPECT_NE(info.output.find("plans.json, "), std::string::npos) << info;
  for (const auto& [key, entry] : json::parse(content("plans.json"))["entries"].items()) EXPECT_TRUE(key.starts_with(build_name())) << key;
}

TEST_F(CudaProgram, AHeuristicIsNotKeptAndTakesWhatASearchFound) {
  model = "resnet", shape = "8,3,64,64", search = "heuristic";  // the other's likely lowering needs no plan
  const json guessed = plans({});
  ASSERT_FALSE(guessed.empty());
  for (const json& choice : guessed) {
    EXPECT_EQ(choice["chosen"], "by heuristic") << choice;
    EXPECT_LE(choice["plans"].size(), 3u) << choice;  // at most one of each graph
  }
  EXPECT_FALSE(std::filesystem::exists(path("plans.json")));
  search = "exhaustive";
  const auto chosen = [](const json& choices, std::string_view how) {
    return std::count_if(choices.begin(), choices.end(), [&](const json& choice) { return choice["chosen"] == how; });
  };
  const auto searched = chosen(plans({}), "by time");  // small ones are not worth it
  EXPECT_GT(searched, 0);
  search = "heuristic";
  EXPECT_GT(chosen(plans({}), "from the plan cache"), 0);
}

TEST_F(CudaProgram, TuneFindsWhatLaterRunsTake) {
  const std::vector<std::string> tune = {"tune",    "conv2d-groupnorm-pool", "--input-shape", "8,8,40,40", "--mode",
                                         "forward", "--plan-cache",          "plans.json",    "--json",    "--repeats",
                                         "2"};
  const Outcome first = run(tune), again = run(tune);
  ASSERT_EQ(first.code, 0) << first;
  const json report = json::parse(first.output, nullptr, false);
  EXPECT_GT(report["searched"], 0) << first;
  EXPECT_GT(report["results"][0]["tuned_microseconds"], 0) << first;
  EXPECT_NE(first.errors.find(" plans, the fastest takes "), std::string::npos) << first;
  EXPECT_EQ(json::parse(again.output, nullptr, false)["searched"], 0) << again;
  search = "heuristic";
  for (const json& choice : plans({})) EXPECT_EQ(choice["chosen"], "from the plan cache") << choice;
}

TEST_F(CudaProgram, APlanThatCannotBeBuiltIsSearchedAgain) {
  ASSERT_FALSE(plans({}).empty());
  json file = json::parse(content("plans.json"));
  for (json& entry : file["entries"]) {
    if (entry.contains("engine")) entry["engine"] = 987654;
  }
  write("plans.json", file.dump());
  for (const json& choice : plans({})) EXPECT_EQ(choice["chosen"], "by time") << choice;
  for (const json& choice : plans({})) EXPECT_EQ(choice["chosen"], "from the plan cache") << choice;
}

TEST_F(CudaProgram, WhatIsNoPlanCacheIsLeftAlone) {
  write("plans.json", std::string("{ broken"));
  for (int run = 0; run < 2; ++run) {
    for (const json& choice : plans({})) EXPECT_EQ(choice["chosen"], "by time") << choice;
    EXPECT_NE(warnings.find("frit: warning: the plan cache is left alone"), std::string::npos) << warnings;
  }
  EXPECT_EQ(content("plans.json"), "{ broken");
}

TEST_F(CudaProgram, DeterministicPlansAreNeitherTimedNorKept) {
  for (const json& choice : plans({"--deterministic"})) EXPECT_EQ(choice["chosen"], "by heuristic") << choice;
  EXPECT_FALSE(std::filesystem::exists(path("plans.json")));
}

TEST_F(CudaProgram, PlansKeepToTheWorkspaceLimit) {
  for (const json& choice : plans({"--workspace-limit", "4096"})) {
    for (const json& plan : choice["plans"]) EXPECT_LE(plan["workspace"].get<std::int64_t>(), 4096) << choice;
  }
}

TEST_F(CudaProgram, TrainsAsTheCpuDoes) {
  QuarterImages(200, /*seed=*/1).write(path("quarters"), "train");
  QuarterImages(50, /*seed=*/2).write(path("quarters"), "t10k");
  std::vector<double> losses;
  for (const char* const device : {"cpu", "cuda"}) {
    const Outcome outcome = run({"train", "classifier", "--model-config", tiny_classifier, "--data", "quarters", "--batch-size", "32",
                                 "--lr", "0.01", "--epochs", "15", "--device", device, "--math", "strict"});
    ASSERT_EQ(outcome.code, 0) << outcome;
    losses.push_back(std::stod(outcome.output.substr(std::string("test loss ").size())));
    EXPECT_NE(outcome.errors.find("epoch 15/15  loss "), std::string::npos) << outcome;
  }
  EXPECT_NEAR(losses[1], losses[0], 0.02 + 0.05 * losses[0]);
}

TEST_F(CudaProgram, StopsAtALossThatIsNotFinite) {
  const Tensor input = random_tensor({40, 3, 8, 8});
  input.slice(0, 20, 40).fill(INFINITY);
  write("infinite.safetensors", serialize_safetensors({{"input", input}, {"target", random_tensor({40, 4, 3, 3})}}));
  const Outcome outcome = run({"train", "conv2d-groupnorm-pool", "--model-config",
                               R"({"in_channels": 3, "out_channels": 4, "num_groups": 2, "pool_kernel_size": 2})", "--data",
                               "infinite.safetensors", "--batch-size", "4", "--device", "cuda", "--save", "model.safetensors"});
  EXPECT_EQ(outcome.code, 7) << outcome;
  EXPECT_TRUE(std::regex_search(outcome.errors, std::regex("loss is -?nan at step [1-3] "))) << outcome;
  EXPECT_FALSE(std::filesystem::exists(path("model.safetensors")));
}

}  // namespace
}  // namespace frit
