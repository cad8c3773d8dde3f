// `frit bench --communication` and `--scaling`: what they print and refuse. Never how long anything takes.

#include "apps/scaling/scaling.h"

#include <nlohmann/json.hpp>

#include "apps/mpirun.h"

namespace frit {
namespace {

using apps::CallCost, apps::Cluster, apps::ScalingOptions;

class Scaling : public ProgramTest {
 protected:
  static std::vector<std::string> bench(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"bench", "--device", "cpu", "--warmup", "1", "--repeats", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  /// Of two processes that mpirun starts.
  Outcome of_two(const std::vector<std::string>& more) const {
    std::vector<std::string> program = bench(more);
    program.insert(program.begin(), FRIT_PROGRAM);
    return run_program(under_mpirun(folder, {program, program}));
  }

  const std::vector<std::string> small = {"classifier", "--input-shape", "2,1,8,8", "--model-config",
                                          R"({"image_size": [8, 8], "out_channels": 4, "num_groups": 2})"};
  std::vector<std::string> small_with(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = small;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
};

TEST_F(Scaling, CommunicationOfTwoProcessesIsTimed) {
  if (mpirun == nullptr) GTEST_SKIP() << "frit was built without MPI";
  const Outcome outcome = of_two({"--communication", "--largest-tensor", "65536", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  const auto report = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(report["processes"], 2);
  EXPECT_EQ(report["machines"], 1);
  std::vector<std::string> calls;
  for (const auto& result : report["results"])
    calls.push_back(concat(result["call"].get<std::string>(), ' ', result["dtype"].get<std::string>()));
  EXPECT_EQ(calls, (std::vector<std::string>{"all_reduce f32", "reduce_scatter f32", "all_gather f32", "all_reduce f16",
                                             "reduce_scatter f16", "all_gather f16"}));
  for (const auto& result : report["results"]) {
    EXPECT_GE(result["fit"]["latency_microseconds"].get<double>(), 0);
    EXPECT_TRUE(result["fit"].contains("bus_gigabytes_per_second"));  // null where large calls happened to take no longer
    EXPECT_EQ(result["sizes"].front()["bytes"], 4096);
    EXPECT_EQ(result["sizes"].back()["bytes"], 65536);
    for (const auto& size : result["sizes"]) {
      EXPECT_GT(size["microseconds"]["best"].get<double>(), 0);
      EXPECT_GE(size["microseconds"]["median"], size["microseconds"]["best"]);
      const double share = result["call"] == "all_reduce" ? 1 : 0.5;
      EXPECT_DOUBLE_EQ(size["bus_gigabytes_per_second"], share * size["gigabytes_per_second"].get<double>());
    }
  }
}

TEST_F(Scaling, TwoProcessesPredictAndMeasure) {
  if (mpirun == nullptr) GTEST_SKIP() << "frit was built without MPI";
  const Outcome outcome = of_two(small_with({"--mode", "train", "--scaling", "1,2,64", "--per-machine", "2", "--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome;
  const auto scaling = nlohmann::json::parse(outcome.output)["scaling"];
  ASSERT_EQ(scaling["predictions"].size(), 3u);
  EXPECT_EQ(scaling["predictions"][0]["efficiency"], 1.0);
  EXPECT_EQ(scaling["predictions"][2]["machines"], 32);
  EXPECT_GT(scaling["predictions"][2]["microseconds"], scaling["predictions"][1]["microseconds"]);
  EXPECT_GT(scaling["measured"]["microseconds"].get<double>(), 0);
  EXPECT_EQ(scaling["measured"]["predicted"]["processes"], 2);
  EXPECT_DOUBLE_EQ(scaling["links"]["network"]["gigabytes_per_second"], 50);
}

TEST_F(Scaling, OneProcessIsToldWhatItsLinksAre) {
  const Outcome outcome =
      run(bench(small_with({"--mode", "train", "--scaling", "1,8", "--json", "--link-latency", "3", "--link-bandwidth", "10"})));
  ASSERT_EQ(outcome.code, 0) << outcome;
  const auto scaling = nlohmann::json::parse(outcome.output)["scaling"];
  EXPECT_EQ(scaling["predictions"][1]["machines"], 1);
  EXPECT_EQ(scaling["links"]["machine"]["latency_microseconds"], 3);
  EXPECT_FALSE(scaling.contains("measured"));
  const double bytes = scaling["reduced_bytes"];
  EXPECT_NEAR(scaling["predictions"][1]["communication_microseconds"].get<double>(), 2 * 2 * 3 * 3 + 1.75 * bytes / 10e3, 1e-6)
      << "of the gradients and of the loss";
}

TEST_F(Scaling, TheTableSaysOnWhatTimeGoes) {
  const Outcome table =
      run(bench(small_with({"--mode", "train", "--scaling", "1,8,64", "--link-latency", "3e6", "--link-bandwidth", "10"})));
  ASSERT_EQ(table.code, 0) << table;
  for (const char* const text : {"\na step by itself takes ", "\nwhat is reduced in a step of 64 processes", " 100.0 % ", " latency\n",
                                 "links: of 8 processes of a machine 3000000.0 us, 10.00 GB/s; of machines 20.0 us, 50.00 GB/s"})
    EXPECT_NE(table.output.find(text), std::string::npos) << text << table;
}

TEST_F(Scaling, RefusesWhatItCannotDo) {
  const std::map<std::string, std::vector<std::string>> refused = {
      {"MODEL|OPERATOR is required, or --communication", {}},
      {"--communication times no model, and MODEL|OPERATOR is classifier", {"classifier", "--communication"}},
      {"--communication is between processes: start several", {"--communication"}},
      {"--communication and --scaling do not go with --format csv", {"--communication", "--format", "csv"}},
      {"--largest-tensor goes with --communication", {"classifier", "--largest-tensor", "65536"}},
      {"--communication does not go with --scaling", {"--communication", "--scaling", "8"}},
      {"--scaling does not go with --sync-batch-norm", {"resnet", "--mode", "train", "--scaling", "8", "--sync-batch-norm"}},
      {"--scaling: expected numbers of processes such as 8,64,1024, got \"8,,64\"", {"classifier", "--scaling", "8,,64"}},
      {"--scaling: expected numbers of processes such as 8,64,1024, got \"0\"", {"classifier", "--scaling", "0"}},
      {"--scaling goes with a model, not with an operator", {"relu", "--scaling", "8"}},
      {"--scaling is of --mode train", {"classifier", "--scaling", "8", "--mode", "forward"}},
      {"--scaling: one process measures no link", {"classifier", "--scaling", "8"}},
      {"--scaling: one process measures no link", {"classifier", "--scaling", "8", "--link-latency", "3"}},
      {"--per-machine, --link-... and --network-... go with --scaling", {"classifier", "--network-latency", "3"}},
      {"--network-bandwidth: expected a number from 1e-06", {"classifier", "--scaling", "8", "--network-bandwidth", "0"}},
      {"--gpus 2 takes GPUs, and --device is cpu", {"--communication", "--gpus", "2"}},
  };
  for (const auto& [message, arguments] : refused) {
    const Outcome outcome = run(bench(arguments));
    EXPECT_EQ(outcome.code, 2) << message << outcome;
    EXPECT_EQ(outcome.output, "") << message;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << message << outcome;
  }
}

TEST(ScalingOptions, TakeWhatIsMeasuredForTheLinksItIsOf) {
  const CallCost mean{12, 1 / 100e3};
  const Cluster one_machine = ScalingOptions{}.cluster(mean, 2, 1);
  EXPECT_EQ(one_machine.per_machine, 8);
  EXPECT_DOUBLE_EQ(one_machine.machine.latency, 6);
  EXPECT_DOUBLE_EQ(one_machine.machine.bandwidth, 100);
  EXPECT_DOUBLE_EQ(one_machine.network.latency, 20);
  EXPECT_DOUBLE_EQ(one_machine.network.bandwidth, 50);
  const Cluster two_machines = ScalingOptions{}.cluster(mean, 4, 2);
  EXPECT_EQ(two_machines.per_machine, 2);
  EXPECT_DOUBLE_EQ(two_machines.network.latency, 6);
  EXPECT_DOUBLE_EQ(two_machines.network.bandwidth, 150);
  ScalingOptions given;
  given.per_machine = 4;
  given.network_bandwidth = 3200;
  given.link_latency = 1;
  const Cluster cluster = given.cluster(mean, 2, 1);
  EXPECT_EQ(cluster.per_machine, 4);
  EXPECT_DOUBLE_EQ(cluster.network.bandwidth, 400);
  EXPECT_DOUBLE_EQ(cluster.machine.latency, 1);
}

}  // namespace
}  // namespace frit
