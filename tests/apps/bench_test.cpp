// `frit bench`: what it prints and refuses. Never how long anything takes.

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/program.h"
#include "frit/models/model.h"
#include "frit/ops/operator/operator.h"

namespace frit {
namespace {

using nlohmann::json;
using Counts = std::map<std::string, int>;

class BenchCommand : public ProgramTest {
 protected:
  /// A run that takes moments.
  Outcome bench(std::vector<std::string> arguments) const {
    const std::vector<std::string> quick = {"bench", "--device", "cpu", "--warmup", "1", "--repeats", "2"};
    arguments.insert(arguments.begin(), quick.begin(), quick.end());
    return run(arguments);
  }

  /// How often each operator stands in a stage's graph; views, which run nothing, left out.
  Counts operators_of_graph(const std::string& model, const std::string& shape, const std::string& stage,
                            const std::string& config = "") const {
    std::vector<std::string> arguments = {"graph", model, "--input-shape", shape, "--stage", stage};
    if (!config.empty()) arguments.insert(arguments.end(), {"--model-config", config});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome;
    Counts counts;
    std::istringstream lines(outcome.output);
    for (std::string line; std::getline(lines, line) && !line.starts_with("# memory");) {
      const std::size_t end = line.find('('), equals = line.rfind("= ", end);
      if (end == std::string::npos) continue;
      const std::size_t begin = equals == std::string::npos ? 0 : equals + 2;
      const std::string name = line.substr(begin, end - begin);
      if (!ops::registry().find(name).view) ++counts[name];
    }
    return counts;
  }
};

/// One line of a CSV file.
std::vector<std::string> csv_fields(const std::string& line) {
  std::vector<std::string> fields = {""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += c;
  }
  return fields;
}

TEST_F(BenchCommand, JsonNamesEveryOperatorThatRuns) {
  for (const auto& [model, shape] : std::map<std::string, std::string>{{"conv3d-instnorm-max", "2,3,4,5,5"},
                                                                       {"conv2d-groupnorm-pool", "2,8,10,11"},
                                                                       {"convt3d-logsumexp", "2,3,2,3,2"},
                                                                       {"classifier", "2,1,28,28"}}) {
    const Outcome outcome = bench({model, "--input-shape", shape, "--format", "json", "--per-operator", "--optimizer", "adam"});
    ASSERT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(outcome.errors, "");
    const json report = json::parse(outcome.output);
    EXPECT_EQ(report["model"], model);
    EXPECT_EQ(report["device"], "cpu");
    EXPECT_EQ(report["repeats"], 2);
    EXPECT_EQ(report["search"]["mode"], "heuristic");
    EXPECT_GT(report["copy_gigabytes_per_second"].get<double>(), 0);
    std::vector<std::string> modes;
    for (const json& result : report["results"]) {
      const std::string mode = modes.emplace_back(result["mode"]);
      for (const char* const key : {"median", "p10", "p90"}) EXPECT_GT(result["microseconds"][key].get<double>(), 0) << key;
      EXPECT_GT(result["first_step_seconds"].get<double>(), 0);
      if (mode == "backward") continue;  // which is a part of training
      Counts counts;
      for (const json& row : result["operators"]) {
        counts[row["operator"]] += row["calls"].get<int>();
        EXPECT_GT(row["bytes"].get<std::int64_t>(), 0) << row;
        EXPECT_FALSE(row["types"].get<std::string>().empty()) << row;
        const std::string name = row["operator"];
        const bool several = name.starts_with("conv");  // ways on a CPU
        EXPECT_EQ(row["schedule"].get<std::string>().empty(), !several) << row;
        for (const char* const key : {"microseconds", "gigabytes_per_second", "floor_share", "total_share"}) {
          EXPECT_TRUE(row[key].is_number()) << key << row;
        }
      }
      Counts expected = operators_of_graph(model, shape, mode == "forward" ? "inference" : mode);
      for (Counts* const without : {&counts, &expected}) without->erase("cast");  // layouts are chosen later, and converted by some
      EXPECT_EQ(counts, expected) << model << ' ' << mode;
    }
    EXPECT_EQ(modes, (std::vector<std::string>{"forward", "backward", "train"}));
  }
}

TEST_F(BenchCommand, WhatIsComputedOnceIsNoPartOfARun) {
  const std::string config = R"({"blocks": [1, 1, 1, 1], "bottleneck": false, "width": 8, "num_classes": 10})", shape = "2,3,32,32";
  const std::vector<std::string> arguments = {"resnet", "--model-config", config, "--input-shape", shape, "--per-operator"};
  std::vector<std::string> as_json = arguments;
  as_json.emplace_back("--json");
  const Outcome outcome = bench(as_json);
  ASSERT_EQ(outcome.code, 0) << outcome;
  const json results = json::parse(outcome.output)["results"];
  int calls = 0, products = 0, in_graph = 0;
  for (const json& row : results[0]["operators"]) {
    calls += row["calls"].get<int>();
    const std::string way = concat(row["operator"].get<std::string>(), " ", row["schedule"].get<std::string>());
    if (way.find("conv2d") != std::string::npos || way.starts_with("linear ")) products += row["calls"].get<int>();
  }
  for (const auto& [name, count] : operators_of_graph("resnet", shape, "inference", config)) in_graph += count;
  EXPECT_EQ(results[0]["mode"], "forward");
  EXPECT_GT(results[0]["computed_once"]["steps"], 10);
  EXPECT_GT(results[0]["computed_once"]["microseconds"], 0);
  EXPECT_GT(products, 10);  // whose weights are packed once
  EXPECT_EQ(results[0]["computed_once"]["steps"].get<int>() + calls, in_graph + products);
  EXPECT_EQ(results[2]["mode"], "train");
  EXPECT_EQ(results[2]["computed_once"]["steps"], 0);
  const Outcome table = bench(arguments);
  EXPECT_NE(table.output.find("not in these: " + results[0]["computed_once"]["steps"].dump() + " steps, "), std::string::npos) << table;
}

TEST_F(BenchCommand, CsvHasARowForEachStepAndOperator) {
  const Outcome outcome = bench({"conv2d-groupnorm-pool", "--input-shape", "2,8,10,11", "--format", "csv", "--per-operator"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  std::istringstream lines(outcome.output);
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> header = csv_fields(line);
  EXPECT_EQ(header[5], "operator");
  Counts steps;
  bool convolution = false;
  while (std::getline(lines, line)) {
    const std::vector<std::string> fields = csv_fields(line);
    ASSERT_EQ(fields.size(), header.size()) << line;
    EXPECT_EQ(fields[1], "2x8x10x11");
    if (fields[5] == "step") ++steps[fields[4]];
    convolution = convolution ||
                  (fields[5] == "conv2d" && fields[6] == "f32 2x8x10x11 channels-last, f32 64x8x3x3, f32 64 -> f32 2x64x8x9 channels-last");
  }
  EXPECT_EQ(steps, (Counts{{"forward", 1}, {"backward", 1}, {"train", 1}}));
  EXPECT_TRUE(convolution) << outcome;
}

TEST_F(BenchCommand, TheTableHasOperatorsWhereTheyAreAskedFor) {
  const std::vector<std::string> arguments = {"convt3d-logsumexp", "--input-shape", "2,3,2,3,2", "--mode", "train"};
  const Outcome plain = bench(arguments);
  ASSERT_EQ(plain.code, 0) << plain;
  EXPECT_NE(plain.output.find("median us"), std::string::npos) << plain;
  EXPECT_NE(plain.output.find("\ntrain "), std::string::npos) << plain;
  EXPECT_EQ(plain.output.find("\nforward "), std::string::npos) << plain;
  EXPECT_EQ(plain.output.find("conv_transpose3d"), std::string::npos) << plain;
  std::vector<std::string> detailed = arguments;
  detailed.emplace_back("--per-operator");
  const Outcome outcome = bench(detailed);
  for (const char* const name : {"\nconv_transpose3d ", "\nlogsumexp_sigmoid_scale_subtract_clamp_backward ", "\nsgd_update "}) {
    EXPECT_NE(outcome.output.find(name), std::string::npos) << name << outcome;
  }
}

TEST_F(BenchCommand, TakesBatchSizeDtypeAndConfiguration) {
  const Outcome outcome = bench({"classifier", "--batch-size", "3", "--input-shape", "1,1,8,8", "--dtype", "bf16", "--mode", "forward",
                                 "--model-config", R"({"image_size": [8, 8], "out_channels": 4, "num_groups": 2})", "--format", "json"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  const json report = json::parse(outcome.output);
  EXPECT_EQ(report["input"], (json{3, 1, 8, 8}));
  EXPECT_EQ(report["dtype"], "bf16");
  EXPECT_EQ(report["config"]["out_channels"], 4);
  EXPECT_EQ(report["results"].size(), 1u);
  EXPECT_FALSE(report["results"][0].contains("operators"));
}

TEST_F(BenchCommand, ListsThePlansThatAreNoneOnTheCpu) {
  const std::vector<std::string> arguments = {"convt3d-logsumexp", "--input-shape", "2,3,2,3,2", "--plans", "--plan-cache", "plans.json"};
  const Outcome table = bench(arguments);
  ASSERT_EQ(table.code, 0) << table;
  EXPECT_NE(table.output.find("\nplans for 0 convolutions"), std::string::npos) << table;
  EXPECT_NE(table.output.find(", search heuristic; "), std::string::npos) << table;
  std::vector<std::string> as_json = arguments;
  as_json.insert(as_json.end(), {"--format", "json"});
  EXPECT_EQ(json::parse(bench(as_json).output)["plans"], json::array());
  EXPECT_FALSE(std::filesystem::exists(path("plans.json")));
}

TEST_F(BenchCommand, SaysWhichSearchGaveItsPlans) {
  const auto mode = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"bench", "relu", "--device", "cpu", "--mode", "forward", "--repeats", "1", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run_program({.arguments = arguments, .directory = folder, .environment = {"FRIT_SEARCH=exhaustive"}});
    return json::parse(outcome.output, nullptr, false)["search"]["mode"];
  };
  EXPECT_EQ(mode({}), "exhaustive");
  EXPECT_EQ(mode({"--search", "heuristic"}), "heuristic");
}

TEST_F(BenchCommand, TimesMixedPrecisionFromAFloat32Input) {
  const Outcome outcome =
      bench({"conv2d-groupnorm-pool", "--input-shape", "2,8,10,11", "--precision", "f16", "--per-operator", "--format", "json"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  const json report = json::parse(outcome.output);
  EXPECT_EQ(report["dtype"], "f32");
  EXPECT_EQ(report["precision"], "f16");
  const std::string text = report.dump();
  for (const char* const part :
       {"f32 2x8x10x11 channels-last -> f16 2x8x10x11 channels-last", "f32 2x8x10x11 channels-last, f16 64x8x3x3", "update_loss_scale"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << outcome;
  }
}

TEST_F(BenchCommand, WritesATraceOfEveryOperator) {
  const Outcome outcome =
      bench({"conv2d-groupnorm-pool", "--input-shape", "2,8,10,11", "--trace", "trace.json", "--per-operator", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  const json trace = json::parse(content("trace.json")), report = json::parse(outcome.output);
  Counts expected, found;
  for (const json& mode : report["results"]) {
    if (mode["mode"] == "backward") continue;  // is traced with training
    for (const json& row : mode["operators"]) expected[row["operator"]] += 3 * row["calls"].get<int>();
  }
  double runs_end = -1;
  int runs = 0;
  bool memory = false;
  for (const json& event : trace["traceEvents"]) {
    const std::string kind = event["ph"];
    if (kind == "C") memory = memory || event["args"]["bytes"].get<std::int64_t>() > 0;
    if (kind != "X") continue;
    EXPECT_GE(event["dur"].get<double>(), 0) << event;
    if (event["cat"] == "runs") {
      EXPECT_GE(event["ts"].get<double>(), runs_end) << "runs stand one after another";
      runs_end = event["ts"].get<double>() + event["dur"].get<double>();
      ++runs;
      continue;
    }
    ++found[event["name"]];
    EXPECT_LE(event["ts"].get<double>() + event["dur"].get<double>(), runs_end + 0.01) << event;
    EXPECT_GT(event["args"]["bytes"].get<std::int64_t>(), 0) << event;
    EXPECT_NE(event["args"]["types"].get<std::string>().find("f32 "), std::string::npos) << event;
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(runs, 6);
  EXPECT_TRUE(memory);
  EXPECT_EQ(bench({"conv2d-groupnorm-pool", "--trace", "nowhere/trace.json"}).code, 4);
}

TEST_F(BenchCommand, RefusesWhatItCannotDo) {
  const std::map<std::string, std::vector<std::string>> refused = {
      {"unknown model or operator \"sqare\"; did you mean \"square\"?", {"sqare"}},
      {"argmax has no gradient", {"argmax", "--mode", "backward"}},
      {"--model-config goes with a model", {"square", "--model-config", "{}"}},
      {"conv2d: ", {"conv2d", "--input-shape", "5,7"}},
      {"--input-shape: input of model \"classifier\": expected [N, 1, 28, 28], got [2, 3]", {"classifier", "--input-shape", "2,3"}},
      {"--format: expected table, csv, json, got \"xml\"", {"classifier", "--format", "xml"}},
      {"--mode: expected forward, backward, train, all, got \"update\"", {"classifier", "--mode", "update"}},
      {"--optimizer: expected sgd, adam, adamw", {"classifier", "--optimizer", "lbfgs"}},
      {"--batch-size: expected an integer", {"classifier", "--batch-size", "0"}},
      {"--dtype: expected", {"classifier", "--dtype", "i64"}},
      {"unknown option \"--per-op\"", {"classifier", "--per-op"}},
      {"--model-config: ", {"classifier", "--model-config", "{"}},
      {"--plans does not go with --format csv", {"classifier", "--plans", "--format", "csv"}},
      {"--search: expected heuristic, exhaustive, got \"quick\"", {"classifier", "--search", "quick"}},
      {"--workspace-limit: expected an integer from 0", {"classifier", "--workspace-limit", "1G"}},
  };
  for (const auto& [message, arguments] : refused) {
    const Outcome outcome = bench(arguments);
    EXPECT_EQ(outcome.code, 2) << message << outcome;
    EXPECT_EQ(outcome.output, "") << message;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << message << outcome;
  }
  for (const char* const option : {"--repeats", "--warmup"}) EXPECT_EQ(run({"bench", "classifier", option, "0"}).code, 2) << option;
}

TEST_F(BenchCommand, TuneRefusesWhereNothingCanBeFoundOrKept) {
  const std::map<std::string, std::vector<std::string>> refused = {
      {"frit tune: plans are a GPU's, and the device is cpu", {"--plan-cache", "plans.json"}},
      {"frit tune: what is found is kept in the plan cache, which is off", {"--plan-cache", "off"}},
      {"frit tune: --deterministic chooses by rule", {"--deterministic", "--plan-cache", "plans.json"}},
      {"unknown option \"--search\"", {"--search", "exhaustive"}},
      {"expected [N, 1, 28, 28], got [2, 3]", {"--input-shape", "2,3", "--plan-cache", "plans.json"}},
  };
  for (const auto& [message, more] : refused) {
    std::vector<std::string> arguments = {"tune", "classifier", "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << message << outcome;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << message << outcome;
  }
  EXPECT_FALSE(std::filesystem::exists(path("plans.json")));
}

TEST(FullInput, IsThePublishedSize) {
  EXPECT_EQ(make_model("conv3d-instnorm-max").full_input, (Shape{128, 3, 16, 32, 32}));
  EXPECT_EQ(make_model("conv2d-groupnorm-pool").full_input, (Shape{128, 8, 128, 128}));
  EXPECT_EQ(make_model("convt3d-logsumexp").full_input, (Shape{128, 3, 16, 32, 32}));
  EXPECT_EQ(make_model("classifier").full_input, (Shape{128, 1, 28, 28}));
}

TEST_F(BenchCommand, OperatorsAreTimedOnASample) {
  const Outcome outcome = bench({"conv2d", "--batch-size", "3", "--per-operator", "--format", "json"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  const json report = json::parse(outcome.output);
  EXPECT_EQ(report["input"][0], 3);
  ASSERT_EQ(report["results"].size(), 3);
  EXPECT_EQ(report["results"][0]["mode"], "forward");
  EXPECT_EQ(report["results"][0]["operators"][0]["operator"], "conv2d");
  EXPECT_GT(report["results"][2]["operators"].size(), 1) << "with the gradient";
}

TEST_F(BenchCommand, OperatorsTakeAnInputShape) {
  const Outcome outcome = bench({"add", "--input-shape", "5,7", "--mode", "forward", "--per-operator", "--dtype", "f64"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(outcome.output.find("f64 5x7, f64 5x7 -> f64 5x7"), std::string::npos) << outcome;
}

}  // namespace
}  // namespace frit
