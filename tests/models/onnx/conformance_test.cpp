// The ONNX project's own test data, as Debian's package libonnx-testdata installs it: each case is a model with inputs and the outputs that
// are expected of it. A case is claimed if all of its operators are in frit's table; of the claimed ones none may give a wrong result.
// FRIT_ONNX_TEST_DATA names another such folder: the one of the Python package `onnx`, .../onnx/backend/test/data, which alone has the nine
// real models, or what write_node_cases.py has written.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/models/onnx/call.h"
#include "frit/models/onnx/onnx_model.h"
#include "frit/models/onnx/tensor_data.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

const fs::path installed = "/usr/share/libonnx-testdata/data";

fs::path test_data() {
  const char* const folder = std::getenv("FRIT_ONNX_TEST_DATA");
  return folder == nullptr ? installed : fs::path(folder);
}

std::string lacks(const std::string& category) {
  return concat(test_data(), " has no folder \"", category,
                "\": libonnx-testdata is not installed, or FRIT_ONNX_TEST_DATA names another folder");
}

template <class Message>
Message read_message(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  Message message;
  EXPECT_TRUE(message.ParseFromString(std::string(std::istreambuf_iterator<char>(stream), {}))) << path;
  return message;
}

/// "input_0.pb", "input_1.pb", ... in that order.
std::vector<Tensor> read_tensors(const fs::path& folder, const std::string& kind) {
  std::vector<Tensor> tensors;
  for (int i = 0; fs::exists(folder / (kind + "_" + std::to_string(i) + ".pb")); ++i) {
    tensors.push_back(onnx::read_tensor(read_message<onnx::TensorProto>(folder / (kind + "_" + std::to_string(i) + ".pb")), ""));
  }
  return tensors;
}

/// Empty if they agree as ONNX's own runner asks for: to 0.001, in halves two of their last places.
std::string difference(const Tensor& found, const Tensor& expected) {
  if (found.shape() != expected.shape()) return concat("shape ", found.shape(), ", expected ", expected.shape());
  if (found.dtype() != expected.dtype()) return concat("dtype ", found.dtype(), ", expected ", expected.dtype());
  const double tolerance = found.dtype() == DType::bf16 ? 0x1p-6 : found.dtype() == DType::f16 ? 0x1p-9 : 1e-3;
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!same && !(std::abs(a[i] - b[i]) <= 1e-7 + tolerance * std::abs(b[i])))
      return concat("element ", i, " is ", a[i], ", expected ", b[i]);
  }
  return {};
}

bool is_claimed(const onnx::GraphProto& graph) {
  return std::all_of(graph.node().begin(), graph.node().end(),
                     [](const onnx::NodeProto& node) { return node.domain().empty() && onnx::operator_table().contains(node.op_type()); });
}

/// The graph for inputs of these shapes. An input that the import has to know, as the shape of a Reshape, is a constant of the graph.
Graph imported(const OnnxModel& model, const std::vector<Tensor>& inputs) {
  OnnxOptions options;
  for (std::size_t i = 0; i < inputs.size(); ++i) options.shapes[model.inputs().at(i).name] = inputs[i].shape();
  const auto give = [&](const auto& is_given) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (is_given(i)) options.values[model.inputs()[i].name] = inputs[i];
    }
  };
  for (int attempt = 0;; ++attempt) {
    try {
      return import_onnx(model, options);
    } catch (const Error& error) {
      const std::string message = error.what();
      const std::regex unknown("input \"([^\"]+)\" must be known");
      if (attempt > 8 || message.find("must be known") == std::string::npos) throw;
      const std::size_t before = options.values.size();
      for (std::sregex_iterator match(message.begin(), message.end(), unknown), end; match != end; ++match) {
        give([&](std::size_t i) { return model.inputs()[i].name == (*match)[1]; });
      }
      // Or what it is computed from: integers.
      if (options.values.size() == before) give([&](std::size_t i) { return !is_floating(inputs[i].dtype()); });
    }
  }
}

/// The model's first outputs.
std::vector<Tensor> run(const OnnxModel& model, const std::vector<Tensor>& inputs, std::size_t outputs, Device device) {
  const Graph graph = graph::for_inference(imported(model, inputs));
  Bindings bindings;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = model.inputs()[i].name;
    if (graph.find(graph::NodeKind::input, name) != nullptr) bindings[name] = inputs[i];
  }
  Program program(graph, std::make_shared<State>(device));
  const graph::Executable& results = program.run(bindings);
  std::vector<Tensor> found;
  for (std::size_t i = 0; i < outputs; ++i) found.push_back(results.output(model.outputs().at(i).name).to(Device::cpu()).clone());
  return found;
}

std::string run_case(const fs::path& folder, Device device) {
  const OnnxModel model((folder / "model.onnx").string());
  for (int set = 0; fs::exists(folder / ("test_data_set_" + std::to_string(set))); ++set) {
    const fs::path data = folder / ("test_data_set_" + std::to_string(set));
    const std::vector<Tensor> expected = read_tensors(data, "output");
    const std::vector<Tensor> found = run(model, read_tensors(data, "input"), expected.size(), device);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::string wrong = difference(found[i], expected[i]);
      if (!wrong.empty()) return concat("output ", i, ": ", wrong);
    }
  }
  return {};
}

/// Numbers that NumPy draws: frit draws others, and none at inference.
bool is_random(const std::string& name) { return name == "test_training_dropout" || name == "test_training_dropout_default"; }

struct Tally {
  int cases = 0, claimed = 0, passed = 0;
  std::vector<std::string> wrong, refused;
};

Tally run_all(const std::string& category, Device device) {
  Tally tally;
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(test_data() / category)) {
    if (fs::exists(entry.path() / "model.onnx")) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    ++tally.cases;
    const std::string name = folder.filename().string();
    if (is_random(name) || !is_claimed(read_message<onnx::ModelProto>(folder / "model.onnx").graph())) continue;
    ++tally.claimed;
    try {
      const std::string wrong = run_case(folder, device);
      if (wrong.empty()) ++tally.passed;
      if (!wrong.empty()) tally.wrong.push_back(name + ": " + wrong);
    } catch (const Error& error) {
      const bool is_refusal = error.kind() == ErrorKind::format;
      (is_refusal ? tally.refused : tally.wrong).push_back(name + ": " + error.what());
    }
  }
  return tally;
}

struct Expectation {
  const char* category;
  int passed;  ///< at least, of what Debian installs
};

class OnnxConformance : public testing::TestWithParam<Expectation> {
 protected:
  void SetUp() override {
    if (!fs::exists(test_data() / GetParam().category)) GTEST_SKIP() << lacks(GetParam().category);
  }

  void expect_that_cases_pass(Device device) {
    const auto& [category, passed] = GetParam();
    const Tally tally = run_all(category, device);
    std::string refusals;
    // Of claimed operators with element types or attributes that are not.
    for (const std::string& refusal : tally.refused) {
      EXPECT_NE(refusal.find("not supported"), std::string::npos) << refusal;
      refusals += "\n" + refusal;
    }
    RecordProperty("passed", tally.passed);
    RecordProperty("claimed", tally.claimed);
    RecordProperty("cases", tally.cases);
    RecordProperty("refused", refusals);
    for (const std::string& wrong : tally.wrong) ADD_FAILURE() << wrong;
    const int expected = test_data() == installed ? passed : 1;
    EXPECT_GE(tally.passed, expected) << "of " << tally.claimed << " claimed and " << tally.cases << " in all; refused:" << refusals;
  }
};

TEST_P(OnnxConformance, EveryClaimedCaseGivesWhatIsExpected) { expect_that_cases_pass(Device::cpu()); }

TEST_P(OnnxConformance, CudaGivesWhatIsExpectedOfEveryClaimedCase) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  set_numerics({.tf32 = false, .deterministic = true});
  expect_that_cases_pass({DeviceKind::cuda, 0});
  set_numerics({});
}

INSTANTIATE_TEST_SUITE_P(Data, OnnxConformance,
                         testing::Values(Expectation{"node", 770}, Expectation{"pytorch-converted", 82},
                                         Expectation{"pytorch-operator", 35}, Expectation{"simple", 15}),
                         [](const auto& expectation) {
                           std::string name = expectation.param.category;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

/// Of the standard's operators that node cases have, each is either in the table or in the README's list of those that are not.
TEST(OnnxOperatorList, OfWhatIsNotSupportedIsTrue) {
  std::ifstream stream(concat(FRIT_SOURCE_DIR, "/models/README.md"));
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const std::string begin = "<!-- not supported -->";
  const std::size_t first = text.find(begin) + begin.size(), last = text.find("<!-- end -->", first);
  ASSERT_NE(last, std::string::npos);
  std::istringstream words(text.substr(first, last - first));
  const std::set<std::string> listed{std::istream_iterator<std::string>(words), {}};
  EXPECT_GT(listed.size(), 40u);
  for (const std::string& op : listed) EXPECT_FALSE(onnx::operator_table().contains(op)) << op << " is supported";
  if (!fs::exists(test_data() / "node")) GTEST_SKIP() << lacks("node");
  for (const fs::directory_entry& entry : fs::directory_iterator(test_data() / "node")) {
    const auto model = read_message<onnx::ModelProto>(entry.path() / "model.onnx");
    for (const onnx::NodeProto& node : model.graph().node()) {
      const bool known = !node.domain().empty() || onnx::operator_table().contains(node.op_type()) || listed.contains(node.op_type());
      EXPECT_TRUE(known) << node.op_type() << " is neither supported nor listed";
    }
  }
}

/// Networks that ONNX's own runner gives an image of i / count; their weights are constants, so that files are small.
class OnnxRealModel : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!fs::exists(test_data() / "light")) GTEST_SKIP() << lacks("light");
  }

  void expect_outputs(Device device) {
    const std::string path = test_data() / "light" / ("light_" + GetParam());
    const OnnxModel model(path + ".onnx");
    ASSERT_EQ(model.inputs().size(), 1u);
    const Tensor input = Tensor::empty(Shape(model.inputs()[0].sizes)),
                 expected = onnx::read_tensor(read_message<onnx::TensorProto>(path + "_output_0.pb"), "");
    const auto count = static_cast<double>(input.elements());
    for (double i = 0; float& value : input.span<float>()) value = static_cast<float>(i++ / count);
    const Tensor found = run(model, {input}, 1, device).at(0);
    EXPECT_EQ(difference(found, expected), "");
    const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
    RecordProperty("largest_relative_difference", concat(largest));
  }
};

TEST_P(OnnxRealModel, GivesWhatIsExpected) { expect_outputs(Device::cpu()); }

TEST_P(OnnxRealModel, CudaGivesWhatIsExpected) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  set_numerics({.tf32 = false, .deterministic = true});
  expect_outputs({DeviceKind::cuda, 0});
  set_numerics({});
}

INSTANTIATE_TEST_SUITE_P(All, OnnxRealModel,
                         testing::Values("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
                                         "squeezenet", "vgg19", "zfnet512"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace frit
