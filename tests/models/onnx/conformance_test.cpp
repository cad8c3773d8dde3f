// The ONNX project's own test data, as Debian's package libonnx-testdata installs it: each case is a model with inputs and the outputs that
// are expected of it. A case is claimed if all of its operators are in frit's table; of the claimed ones none may give a wrong result.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "frit/graph/pipeline.h"
#include "frit/graph/program.h"
#include "frit/models/onnx/call.h"
#include "frit/models/onnx/onnx_model.h"
#include "frit/models/onnx/tensor_data.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

const fs::path test_data = "/usr/share/libonnx-testdata/data";

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

/// Empty if they agree as ONNX's own runner asks for.
std::string difference(const Tensor& found, const Tensor& expected) {
  if (found.shape() != expected.shape()) return concat("shape ", found.shape(), ", expected ", expected.shape());
  if (found.dtype() != expected.dtype()) return concat("dtype ", found.dtype(), ", expected ", expected.dtype());
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!same && !(std::abs(a[i] - b[i]) <= 1e-7 + 1e-3 * std::abs(b[i]))) return concat("element ", i, " is ", a[i], ", expected ", b[i]);
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

std::string run_case(const fs::path& folder) {
  const OnnxModel model((folder / "model.onnx").string());
  for (int set = 0; fs::exists(folder / ("test_data_set_" + std::to_string(set))); ++set) {
    const fs::path data = folder / ("test_data_set_" + std::to_string(set));
    const std::vector<Tensor> inputs = read_tensors(data, "input"), expected = read_tensors(data, "output");
    const Graph graph = graph::for_inference(imported(model, inputs));
    const auto state = std::make_shared<State>();
    state->prepare(graph);
    Bindings bindings;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::string& name = model.inputs()[i].name;
      if (graph.find(graph::NodeKind::input, name) != nullptr) bindings[name] = inputs[i];
    }
    Program program(graph, state);
    const graph::Executable& results = program.run(bindings);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::string found = difference(results.output(model.outputs().at(i).name), expected[i]);
      if (!found.empty()) return concat("output ", i, ": ", found);
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

Tally run_all(const std::string& category) {
  Tally tally;
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(test_data / category)) folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  for (const fs::path& folder : folders) {
    ++tally.cases;
    const std::string name = folder.filename().string();
    if (is_random(name) || !is_claimed(read_message<onnx::ModelProto>(folder / "model.onnx").graph())) continue;
    ++tally.claimed;
    try {
      const std::string wrong = run_case(folder);
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
  int passed;  ///< at least
};

class OnnxConformance : public testing::TestWithParam<Expectation> {};

TEST_P(OnnxConformance, EveryClaimedCaseGivesWhatIsExpected) {
  if (!fs::exists(test_data)) GTEST_SKIP() << "libonnx-testdata is not installed";
  const auto& [category, passed] = GetParam();
  const Tally tally = run_all(category);
  std::string refusals;
  // Of claimed operators with element types or attributes that are not.
  for (const std::string& refusal : tally.refused) {
    EXPECT_NE(refusal.find("not supported"), std::string::npos) << refusal;
    refusals += "\n" + refusal;
  }
  RecordProperty("passed", tally.passed);
  RecordProperty("claimed", tally.claimed);
  RecordProperty("cases", tally.cases);
  for (const std::string& wrong : tally.wrong) ADD_FAILURE() << wrong;
  EXPECT_GE(tally.passed, passed) << "of " << tally.claimed << " claimed and " << tally.cases << " in all; refused:" << refusals;
}

INSTANTIATE_TEST_SUITE_P(Data, OnnxConformance,
                         testing::Values(Expectation{"node", 743}, Expectation{"pytorch-converted", 82},
                                         Expectation{"pytorch-operator", 35}, Expectation{"simple", 7}),
                         [](const auto& expectation) {
                           std::string name = expectation.param.category;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace frit
