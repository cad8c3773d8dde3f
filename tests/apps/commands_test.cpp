// The commands that describe and check: info, graph, verify, gradcheck, infer, and the help.

#include <nlohmann/json.hpp>
#include <regex>

#include "apps/fixtures.h"
#include "apps/program.h"

namespace frit {
namespace {

const std::string golden = FRIT_SOURCE_DIR "/tests/golden/";

class Commands : public ProgramTest {
 protected:
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
};

TEST_F(Commands, HelpAndVersionGoToStdout) {
  for (const char* const command : {"train", "infer", "verify", "gradcheck", "graph", "bench", "tune", "info"}) {
    const Outcome outcome = run({command, "--help"});
    EXPECT_EQ(outcome.code, 0) << command;
    EXPECT_TRUE(has(outcome.output, std::string("Usage: frit ") + command)) << outcome;
    EXPECT_EQ(outcome.errors, "") << command;
  }
  EXPECT_TRUE(has(run({"--help"}).output, "Exit codes")) << run({"--help"});
  EXPECT_EQ(run({"--version"}).output.substr(0, 5), "frit ");
}

TEST_F(Commands, NoArgumentsGiveTheUsage) {
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.output, "");
  EXPECT_TRUE(has(outcome.errors, "Usage: frit")) << outcome;
}

TEST_F(Commands, InfoListsDevicesLibrariesAndOperators) {
  const Outcome outcome = run({"info"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  for (const char* const part :
       {"cpu", "code for ", "nlohmann json 3.", "zlib 1.", "CLI11 2.", "conv2d ", "none: integer result", "classifier"}) {
    EXPECT_TRUE(has(outcome.output, part)) << part << '\n' << outcome.output;
  }
}

TEST_F(Commands, InfoSaysWhereThePlanCacheIs) {
  EXPECT_TRUE(has(run({"info"}).output, "plan cache  off\n"));
  write("plans.json", std::string(R"({"format": "frit plan cache", "version": 1, "entries": {"a": {"engine": 1}, "b": {"form": ""}}})"));
  EXPECT_TRUE(has(run({"info", "--plan-cache", "plans.json"}).output, "plan cache  plans.json, 2 entries\n"));
  write("broken.json", std::string("{"));
  const Outcome broken = run({"info", "--plan-cache", "broken.json"});
  EXPECT_EQ(broken.code, 0) << broken;
  EXPECT_TRUE(has(broken.output, "broken.json, 0 entries\n")) << broken;
  EXPECT_EQ(
      broken.errors,
      "frit: warning: the plan cache is left alone, it cannot be used: broken.json: not JSON at byte 2: syntax error while parsing object "
      "key - unexpected end of input; expected string literal\n");
  EXPECT_EQ(content("broken.json"), "{");
  const auto place_of = [&](std::vector<std::string> environment) {
    return run_program({.arguments = {"info"}, .directory = folder, .environment = std::move(environment)}).output;
  };
  EXPECT_TRUE(has(place_of({"FRIT_PLAN_CACHE=plans.json"}), "plan cache  plans.json, 2 entries\n"));
  EXPECT_TRUE(has(place_of({"FRIT_PLAN_CACHE="}), "plan cache  off\n"));
}

TEST_F(Commands, InfoDescribesACheckpointAndAModel) {
  write("model.safetensors", serialize_safetensors(tiny_parameters(), checkpoint_metadata(tiny_model())));
  const Outcome checkpoint = run({"info", "model.safetensors"});
  ASSERT_EQ(checkpoint.code, 0) << checkpoint;
  for (const char* const part :
       {"model: conv2d-groupnorm-pool", R"("num_groups":2)", "conv.weight", "4x3x3x3", "108", "5 tensors, 124 elements"}) {
    EXPECT_TRUE(has(checkpoint.output, part)) << part << checkpoint;
  }
  const Outcome model = run({"info", "classifier"});
  ASSERT_EQ(model.code, 0) << model;
  EXPECT_TRUE(has(model.output, "109,002 elements")) << model;
  EXPECT_TRUE(has(model.output, "task: classification")) << model;
}

TEST_F(Commands, GraphShowsTheFusionAndTheMemory) {
  const Outcome both = run({"graph", "convt3d-logsumexp"});
  ASSERT_EQ(both.code, 0) << both;
  const std::size_t fused = both.output.find("# fused");
  ASSERT_NE(fused, std::string::npos) << both;
  EXPECT_TRUE(has(both.output.substr(0, fused), "= sigmoid(")) << both;
  EXPECT_FALSE(has(both.output.substr(fused), "= sigmoid(")) << both;
  EXPECT_TRUE(has(both.output.substr(fused), "= logsumexp_sigmoid_scale_subtract_clamp(")) << both;
  EXPECT_TRUE(has(both.errors, "fused: 2 operators, memory ")) << both;
  EXPECT_TRUE(has(both.errors, " -> ")) << both;

  const Outcome train = run({"graph", "classifier", "--stage", "train", "--input-shape", "16,1,28,28"});
  EXPECT_EQ(train.code, 0) << train;
  EXPECT_TRUE(has(train.output, "adam_update(")) << train;
  std::vector<std::string> step = {"graph", "convnext_tiny", "--stage", "train", "--input-shape", "4,3,64,64"};
  EXPECT_FALSE(has(run(step).output, "elementwise_row_sums("));
  step.push_back("--gpu");
  EXPECT_TRUE(has(run(step).output, "elementwise_row_sums(")) << "what only a GPU's kernels compute at once";
  EXPECT_TRUE(has(train.output, "16x1x28x28")) << train;
  for (const char* const part : {"\n# memory: ", "the start", "the end", "scratch memory"}) EXPECT_TRUE(has(train.output, part)) << part;

  const Outcome dot = run({"graph", "classifier", "--format", "dot"});
  EXPECT_EQ(dot.code, 0) << dot;
  EXPECT_EQ(dot.output.substr(0, 12), "digraph frit") << dot;
}

TEST_F(Commands, GraphExplainsWhatItFused) {
  const Outcome outcome = run({"graph", "conv3d-instnorm-max", "--explain"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  for (const char* const part : {"fused: scale_instance_norm_clamp_scale_max at %", "5 of the 5 operators of its decomposition",
                                 "instance_norm %", "# passes", "as written                     6", "fusion                         2"}) {
    EXPECT_TRUE(has(outcome.output, part)) << part << outcome;
  }
  EXPECT_EQ(run({"graph", "classifier", "--explain", "--precision", "bf16"}).code, 0);
  const nlohmann::json explained = nlohmann::json::parse(run({"graph", "conv3d-instnorm-max", "--explain", "--json"}).output);
  EXPECT_EQ(explained["fusion"][0]["operator"], "scale_instance_norm_clamp_scale_max");
  EXPECT_EQ(explained["fusion"][0]["fused"], true);
  EXPECT_EQ(explained["passes"][0]["operators"], 6);
}

TEST_F(Commands, GraphExplainsHowEachStepIsComputed) {
  const auto explained = [&](std::vector<std::string> options) {
    const std::vector<std::string> model = {"graph", "mobilenet_v2", "--input-shape", "2,3,64,64", "--explain"};
    options.insert(options.begin(), model.begin(), model.end());
    return run(options).output;
  };
  const std::string inference = explained({});
  EXPECT_TRUE(has(inference, "\n# schedules: inference on cpu\noperator ")) << inference;
  EXPECT_TRUE(std::regex_search(inference,
                                std::regex("\nchain +in every run +around conv2d: sums over runs of taps +f32 2x3x64x64 channels-last, ")))
      << inference;
  EXPECT_TRUE(std::regex_search(inference, std::regex("\nelementwise +once +the only one +f32 "))) << inference;
  EXPECT_TRUE(std::regex_search(explained({"--dtype", "f16"}), std::regex("\nmultiply +once +converted to f32 and back +f16 ")));
  EXPECT_TRUE(has(explained({"--stage", "train"}), "\n# schedules: training on cpu\n"));
  EXPECT_TRUE(has(explained({"--gpu"}), "\n# schedules: known where there is a GPU\n"));
  const nlohmann::json last = nlohmann::json::parse(explained({"--json"}))["schedules"].back();
  EXPECT_EQ(last["operator"], "linear");
  EXPECT_EQ(last["schedule"], "");
  EXPECT_EQ(last["types"], "f32 2x1280, f32 1000x1280, f32 1000 -> f32 2x1000");
  EXPECT_EQ(last["computed_once"], false);
}

TEST_F(Commands, GraphSaysWhatIsComputedOnce) {
  const std::vector<std::string> model = {"graph", "resnet", "--model-config",
                                          R"({"blocks": [1, 1, 1, 1], "bottleneck": false, "width": 8, "num_classes": 10})"};
  const auto shown = [&](std::vector<std::string> options) {
    options.insert(options.begin(), model.begin(), model.end());
    return run(options);
  };
  const nlohmann::json graph = nlohmann::json::parse(shown({"--stage", "inference", "--json"}).output)["inference"];
  const nlohmann::json once = graph["computed_once"];
  ASSERT_GT(once.size(), 10u);
  EXPECT_EQ(once.back().get<std::size_t>() - once.front().get<std::size_t>() + 1, once.size());
  const std::string line =
      concat("\n# computed once, and again when variables change: %", once.front().dump(), " to %", once.back().dump());
  EXPECT_TRUE(has(shown({"--stage", "inference"}).output, line));
  EXPECT_TRUE(has(shown({"--stage", "inference", "--format", "memory"}).output, ">in every run<"));
  EXPECT_TRUE(has(shown({"--stage", "inference", "--explain"}).output, " of these operators depend on parameters alone"));
  const Outcome train = shown({"--stage", "train"});
  EXPECT_FALSE(has(train.output, "computed once")) << train;
}

TEST_F(Commands, GraphShowsWhatIsFusedOnAGpu) {
  const std::vector<std::string> model = {"graph", "conv3d-instnorm-max", "--gpu", "--input-shape", "8,3,16,32,32"};
  const auto shown = [&](std::vector<std::string> options) {
    options.insert(options.begin(), model.begin(), model.end());
    return run(options);
  };
  constexpr const char* fused = "convolution_scale_instance_norm_clamp_scale_max";
  const Outcome inference = shown({"--stage", "inference"});
  EXPECT_TRUE(has(inference.output, concat(" = ", fused, '('))) << inference;
  EXPECT_FALSE(has(inference.output, "# memory")) << "which is a CPU's" << inference;
  EXPECT_TRUE(has(shown({"--stage", "train"}).output, concat(" = ", fused, "_backward(")));
  EXPECT_TRUE(has(shown({"--explain"}).output, concat("\nfused: ", fused, " at %")));
  EXPECT_EQ(shown({"--format", "memory"}).code, 2);
}

TEST_F(Commands, GraphAsJsonHasEveryNodeAndThePlan) {
  const Outcome outcome = run({"graph", "classifier", "--json", "--quiet"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(outcome.errors, "");
  const nlohmann::json graph = nlohmann::json::parse(outcome.output);
  EXPECT_GT(graph["forward"]["nodes"].size(), graph["fused"]["nodes"].size());
  EXPECT_GT(graph["fused"]["memory_bytes"]["arena"].get<std::int64_t>(), 0);
  EXPECT_EQ(graph["fused"]["outputs"].size(), 1u);
}

TEST_F(Commands, GraphDrawsTheMemoryOfAStep) {
  const Outcome outcome = run({"graph", "classifier", "--stage", "train", "--format", "memory"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(outcome.output.substr(0, 4), "<svg");
  for (const char* const part :
       {"classifier, train, input 1x1x28x28", "gradients", "backward and update", ">conv2d<", ">adam_update<", "<title>"}) {
    EXPECT_TRUE(has(outcome.output, part)) << part;
  }
  EXPECT_TRUE(has(run({"graph", "classifier", "--format", "memory"}).output, "classifier, inference"));
}

TEST_F(Commands, GraphIsDrawnByGraphvizOrSaysThatItIsMissing) {
  const std::vector<std::string> arguments = {"graph", "classifier", "--stage", "train", "--format", "svg"};
  const Outcome missing = run_program({.arguments = arguments, .directory = folder, .environment = {"PATH=/nowhere"}});
  EXPECT_EQ(missing.code, 4) << missing;
  EXPECT_EQ(missing.output, "");
  EXPECT_EQ(missing.errors, "frit: error: dot: not found; hint: install Graphviz, or take --format dot and draw it elsewhere\n");
  if (std::system("command -v dot >/dev/null") != 0) GTEST_SKIP() << "Graphviz is not installed";
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_TRUE(has(outcome.output, "<svg ")) << outcome;
  EXPECT_TRUE(has(outcome.output, "group_norm_scale_max_pool_clamp_backward"));
}

TEST_F(Commands, VerifyPassesAModelAndATrace) {
  const Outcome outcome =
      run({"verify", golden + "models/conv2d-groupnorm-pool.3.safetensors", golden + "traces/train.convt3d-logsumexp.sgd.safetensors"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_TRUE(has(outcome.output, "grad.conv.weight")) << outcome;
  EXPECT_TRUE(has(outcome.output, "losses")) << outcome;
  EXPECT_TRUE(has(outcome.output, "11 of 11 tensors of 2 files are within tolerance")) << outcome;
  EXPECT_EQ(run({"verify", "--dtype", "f32", golden + "models/conv2d-groupnorm-pool.3.safetensors"}).code, 0);
  const Outcome half = run({"verify", "--precision", "f16", golden + "models/convt3d-logsumexp.3.safetensors"});
  EXPECT_EQ(half.code, 0) << half;
  EXPECT_TRUE(has(half.output, "in f16 on cpu")) << half;
}

TEST_F(Commands, VerifyFailsWhereAnythingDiffers) {
  const TensorFile file = read_safetensors(golden + "models/convt3d-logsumexp.3.safetensors");
  TensorMap tensors = file.tensors();
  tensors["grad.bias"] = Tensor::full({1, 1, 1, 1}, 7, DType::f64);
  tensors["output"] = tensors["output"].clone();
  tensors["output"].data<double>()[2] = std::numeric_limits<double>::quiet_NaN();
  write("changed.safetensors", serialize_safetensors(tensors, file.metadata()));
  const Outcome outcome = run({"verify", "changed.safetensors"});
  EXPECT_EQ(outcome.code, 1) << outcome;
  EXPECT_TRUE(has(outcome.output, "element 2: expected nan, got ")) << outcome;
  EXPECT_TRUE(has(outcome.errors, "frit: error: 2 of 5 tensors differ")) << outcome;
}

TEST_F(Commands, VerifyTakesNoMemoryForACaseWhoseResultHasAnotherShape) {
  const Tensor image = Tensor::zeros({1, 1, 2, 2}, DType::f64);
  write("case.safetensors", serialize_safetensors({{"0.input.0", image}, {"0.input.1", image}, {"0.output", image}},
                                                  {{"operator", "conv2d"}, {"0.attributes", R"({"padding": 1000000})"}}));
  const Outcome shape = run({"verify", "case.safetensors"});
  EXPECT_EQ(shape.code, 1) << shape;
  EXPECT_TRUE(has(shape.output, "the shape is 1x1x2000001x2000001")) << shape;
  write("case.safetensors", serialize_safetensors({{"0.input.0", image}, {"0.input.1", image}, {"0.output", image}},
                                                  {{"operator", "sgd_update"}, {"0.attributes", "{}"}}));
  EXPECT_EQ(run({"verify", "case.safetensors"}).code, 3) << "of an operator without a result";
}

TEST_F(Commands, GradcheckShowsInputsKinksAndWhatIsSkipped) {
  const Outcome outcome = run({"gradcheck", "relu", "greater", "linear", "convt3d-logsumexp"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  for (const char* const part :
       {"relu ", "no gradient: integer result", "weight", "conv_transpose.bias", "equal the central differences"}) {
    EXPECT_TRUE(has(outcome.output, part)) << part << outcome;
  }
}

TEST_F(Commands, InferGivesAnEmptyOutputForAnEmptyBatch) {
  write("none.npy", serialize_npy(Tensor::empty({0, 3, 8, 8})));
  write("model.safetensors", serialize_safetensors(tiny_parameters(), checkpoint_metadata(tiny_model())));
  const Outcome outcome = run({"infer", "model.safetensors", "--input", "none.npy", "--output", "out.npy"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(read_npy(path("out.npy")).shape(), (Shape{0, 4, 3, 3}));
}

TEST_F(Commands, InferConvertsWeightsAndInputsAndSaysSo) {
  write("input.npy", serialize_npy(random_tensor({2, 3, 8, 8}, DType::f64)));
  write("wide.safetensors", serialize_safetensors(tiny_parameters(DType::f64), checkpoint_metadata(tiny_model())));
  const Outcome narrow = run({"infer", "wide.safetensors", "--input", "input.npy", "--output", "f32.npy"});
  EXPECT_EQ(narrow.code, 0) << narrow;
  EXPECT_TRUE(has(narrow.errors, "warning: 5 tensors converted from f64 to f32, such as \"conv.weight\"")) << narrow;
  EXPECT_TRUE(has(narrow.errors, "warning: the input was converted from f64 to f32")) << narrow;
  const Outcome wide = run({"infer", "wide.safetensors", "--input", "input.npy", "--output", "f64.npy", "--dtype", "f64"});
  EXPECT_EQ(wide.code, 0) << wide;
  EXPECT_FALSE(has(wide.errors, "converted")) << wide;
  const std::vector<double> a = read_npy(path("f32.npy")).to_vector<double>(), b = read_npy(path("f64.npy")).to_vector<double>();
  for (std::size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
}

TEST_F(Commands, InferInMixedPrecisionIsNearFloat32) {
  write("input.npy", serialize_npy(random_tensor({2, 3, 8, 8})));
  write("model.safetensors", serialize_safetensors(tiny_parameters(), checkpoint_metadata(tiny_model())));
  const auto infer = [&](const std::string& precision) {
    const Outcome outcome = run({"infer", "model.safetensors", "--input", "input.npy", "--output", "y.npy", "--precision", precision});
    EXPECT_EQ(outcome.code, 0) << outcome;
    const Tensor y = read_npy(path("y.npy"));
    EXPECT_EQ(y.dtype(), DType::f32);
    return y.to_vector<double>();
  };
  const std::vector<double> expected = infer("f32");
  for (const char* const precision : {"f16", "bf16"}) {
    const std::vector<double> found = infer(precision);
    EXPECT_NE(found, expected) << precision;
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-2) << precision;
  }
}

TEST_F(Commands, InferReadsBigEndianNumbers) {
  write("plain.npy", serialize_npy(Tensor::from<float>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3}).expand({1, 3, 3, 3})));
  std::string swapped = content("plain.npy");
  const std::size_t descr = swapped.find("'<f4'");
  ASSERT_NE(descr, std::string::npos);
  swapped[descr + 1] = '>';
  for (std::size_t i = swapped.size() - 27 * 4; i < swapped.size(); i += 4)
    std::reverse(swapped.begin() + static_cast<std::ptrdiff_t>(i), swapped.begin() + static_cast<std::ptrdiff_t>(i) + 4);
  write("swapped.npy", swapped);
  const std::string config = R"({"in_channels": 3, "out_channels": 4, "num_groups": 2, "kernel_size": 1, "pool_kernel_size": 1})";
  for (const char* const name : {"plain", "swapped"}) {
    const Outcome outcome = run({"infer", "conv2d-groupnorm-pool", "--model-config", config, "--input", std::string(name) + ".npy",
                                 "--output", std::string(name) + ".out.npy"});
    EXPECT_EQ(outcome.code, 0) << outcome;
  }
  EXPECT_EQ(content("plain.out.npy"), content("swapped.out.npy"));
}

}  // namespace
}  // namespace frit
