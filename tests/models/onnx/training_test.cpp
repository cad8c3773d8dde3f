// Networks that PyTorch exported (tests/golden/make_onnx.py): inference, 20 steps of training, and the program on them.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "apps/program.h"
#include "frit/core/io/npy.h"
#include "frit/frit.h"
#include "frit/models/onnx/onnx_export.h"
#include "frit/models/onnx/onnx_model.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

std::string golden(const std::string& file) { return concat(FRIT_SOURCE_DIR, "/tests/golden/onnx/", file); }

void expect_within(const Tensor& found, const Tensor& expected, double tolerance) {
  ASSERT_EQ(found.shape(), expected.shape());
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "element " << i;
}

class OnnxGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { add_onnx_format(); }

  const std::string path_ = golden(GetParam() + ".onnx");
  const TensorFile file_ = read_safetensors(golden(GetParam() + ".safetensors"));
};

TEST_P(OnnxGolden, PredictorGivesPyTorchsOutputForAnyBatch) {
  Predictor predict(path_, {.device = Device::cpu(), .precision = DType::f64});
  const Tensor input = file_.at("input"), output = file_.at("output");
  expect_within(predict(input), output, 1e-10);
  expect_within(predict(input.slice(0, 1, 2)), output.slice(0, 1, 2), 1e-10);
  Predictor in_float32(path_, {.device = Device::cpu()});
  expect_within(in_float32(input), output, 1e-5);
}

TEST_P(OnnxGolden, TrainingGivesPyTorchsLosses) {
  const Model model = make_model(path_);
  Graph graph;
  const Tensor target = file_.at("target");
  const Value output = model.add_to(Scope(graph, "", DType::f64), file_.at("input").shape()).at("output");
  const bool classes = target.dtype() == DType::i64;
  const Value wanted = graph.input("target", target.shape(), target.dtype());
  TrainStep step(classes ? cross_entropy(output, wanted) : mean_squared_error(output, wanted), Sgd{.learning_rate = 0.05, .momentum = 0.9},
                 Device::cpu());
  for (const double expected : file_.at("losses").to_vector<double>()) {
    EXPECT_NEAR(step({{"input", file_.at("input")}, {"target", target}}), expected, 1e-9);
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, OnnxGolden, testing::Values("resnet", "unet3d", "functions"));

class OnnxProgram : public testing::Test {
 protected:
  OnnxProgram() {
    fs::create_directories(folder_);
    fs::copy_file(golden("resnet.onnx"), folder_ / "resnet.onnx");
    const TensorFile file = read_safetensors(golden("resnet.safetensors"));
    write_npy(folder_ / "x.npy", file.at("input").to(DType::f32));
    write_npy(folder_ / "y.npy", file.at("output").to(DType::f32));
    fs::create_directories(folder_ / "data");
    write_npy(folder_ / "data" / "inputs.npy", file.at("input").to(DType::f32));
    write_npy(folder_ / "data" / "targets.npy", file.at("target"));
  }
  ~OnnxProgram() override { fs::remove_all(folder_); }

  Outcome frit(std::vector<std::string> arguments) const {
    return Process({.arguments = std::move(arguments), .directory = folder_}).finish();
  }

  fs::path folder_ = fs::temp_directory_path() / concat("frit_onnx_program_", ::getpid());
};

TEST_F(OnnxProgram, ServesAFileAndWhatItBecameByTraining) {
  Outcome outcome = frit({"infer", "resnet.onnx", "--input", "x.npy", "--output", "o.npy", "--ref", "y.npy", "--device", "cpu"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(outcome.errors.find("fresh parameters"), std::string::npos) << outcome;
  outcome = frit(
      {"train", "resnet.onnx", "--data", "data", "--epochs", "2", "--batch-size", "3", "--save", "tuned.safetensors", "--device", "cpu"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  outcome = frit({"infer", "tuned.safetensors", "--input", "x.npy", "--output", "tuned.npy", "--device", "cpu"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(read_npy(folder_ / "tuned.npy").to_vector<float>(), read_npy(folder_ / "o.npy").to_vector<float>());
  outcome = frit({"export", "tuned.safetensors", "--output", "tuned.onnx"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  outcome = frit({"infer", "tuned.onnx", "--input", "x.npy", "--output", "again.npy", "--ref", "tuned.npy", "--device", "cpu"});
  EXPECT_EQ(outcome.code, 0) << outcome;
}

/// Shapes that the file computes have the batch in them.
TEST_F(OnnxProgram, LearnsASmallerLastBatch) {
  Outcome outcome = frit({"export", "classifier", "--output", "classifier.onnx"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  fs::create_directories(folder_ / "pictures");
  write_npy(folder_ / "pictures" / "inputs.npy", Tensor::full({5, 1, 28, 28}, 0.5));
  write_npy(folder_ / "pictures" / "targets.npy", Tensor::from<std::int64_t>({0, 1, 2, 3, 4}, {5}));
  outcome = frit(
      {"train", "classifier.onnx", "--data", "pictures", "--epochs", "1", "--batch-size", "2", "--run-dir", "none", "--device", "cpu"});
  EXPECT_EQ(outcome.code, 0) << outcome;
}

TEST_F(OnnxProgram, DescribesAndMeasuresAFile) {
  Outcome outcome = frit({"info", "resnet.onnx"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(outcome.output.find("fc.weight"), std::string::npos) << outcome;
  outcome = frit({"graph", "resnet.onnx", "--stage", "inference"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(outcome.output.find("conv2d"), std::string::npos) << outcome;
  outcome = frit({"bench", "resnet.onnx", "--input-shape", "2,3,32,32", "--device", "cpu"});
  EXPECT_EQ(outcome.code, 0) << outcome;
}

TEST_F(OnnxProgram, SaysWhatIsWrongWithAFile) {
  std::ofstream(folder_ / "bad.onnx") << "no model";
  Outcome outcome = frit({"infer", "bad.onnx", "--input", "x.npy", "--output", "o.npy"});
  EXPECT_EQ(outcome.code, 3) << outcome;
  EXPECT_EQ(outcome.errors, "frit: error: bad.onnx: not an ONNX model, or cut short\n");
  outcome = frit({"infer", "none.onnx", "--input", "x.npy", "--output", "o.npy"});
  EXPECT_EQ(outcome.code, 4) << outcome;
  write_npy(folder_ / "gray.npy", Tensor::zeros({1, 1, 32, 32}));
  outcome = frit({"infer", "resnet.onnx", "--input", "gray.npy", "--output", "o.npy"});
  EXPECT_EQ(outcome.code, 3) << outcome;
}

}  // namespace
}  // namespace frit
