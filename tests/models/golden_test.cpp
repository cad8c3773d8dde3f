// Every golden file, float64, float32 and mixed precision: the reference models, their training traces, and the operators.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/models/training/verify.h"
#include "frit/ops/operator/operator.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> golden_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(FRIT_SOURCE_DIR) / "tests/golden" / folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = fs::path(info.param).stem();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

/// What float32 keeps on the CPU; verify_case allows it more.
constexpr double float32_tolerance = 5e-6;

void expect_all_pass(const std::string& path, DType dtype, Device device = {}) {
  const std::vector<VerifyRow> rows = verify_case(read_safetensors(path), dtype, device);
  EXPECT_FALSE(rows.empty());
  for (const VerifyRow& row : rows) {
    EXPECT_TRUE(row.passed) << row.name << ' ' << row.shape << ": relative difference " << row.relative << ", tolerance " << row.tolerance
                            << ' ' << row.remark;
    if (dtype == DType::f32 && device == Device::cpu()) {
      EXPECT_LE(row.relative, float32_tolerance) << row.name << ' ' << row.shape;
    }
  }
}

/// Outputs always; gradients unless the rounding of stored values moved a maximum to another element, with which its gradient goes: never
/// in the model without one, and in f16 rarely. The gradient of that model's convolution bias is a sum that nearly cancels: where its terms
/// are stored in bf16, it may be off by half as much again.
void expect_models_to_agree_in_halves(Device device) {
  for (const DType precision : {DType::f16, DType::bf16}) {
    int moved = 0;
    for (const std::string& path : golden_files("models")) {
      bool agrees = true;
      for (const VerifyRow& row : verify_case(read_safetensors(path), DType::f32, device, precision)) {
        agrees = agrees && row.passed;
        if (row.name != "output" && path.find("logsumexp") == std::string::npos) continue;
        const bool cancels = precision == DType::bf16 && row.name == "grad.conv_transpose.bias";
        EXPECT_TRUE(row.passed || (cancels && row.remark.empty() && row.relative < 3e-2))
            << path << ' ' << precision << ' ' << row.name << ": relative difference " << row.relative << ' ' << row.remark;
      }
      moved += agrees ? 0 : 1;
    }
    EXPECT_LE(moved, precision == DType::f16 ? 4 : 12) << precision;
  }
}

TEST(GoldenModels, AgreeInHalves) { expect_models_to_agree_in_halves(Device::cpu()); }

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, AgreesInFloat64) { expect_all_pass(GetParam(), DType::f64); }
TEST_P(Golden, AgreesInFloat32) { expect_all_pass(GetParam(), DType::f32); }

INSTANTIATE_TEST_SUITE_P(Model, Golden, testing::ValuesIn(golden_files("models")), test_name);
INSTANTIATE_TEST_SUITE_P(Operator, Golden, testing::ValuesIn(golden_files("operators")), test_name);

class GoldenTrace : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTrace, LossesAgreeInFloat64) { expect_all_pass(GetParam(), DType::f64); }
TEST_P(GoldenTrace, LossesAgreeInHalves) {
  for (const DType precision : {DType::f16, DType::bf16}) {
    const VerifyRow row = verify_case(read_safetensors(GetParam()), DType::f32, {}, precision).at(0);
    EXPECT_TRUE(row.passed) << row.name << ' ' << precision << ": relative difference " << row.relative;
  }
}

INSTANTIATE_TEST_SUITE_P(Trace, GoldenTrace, testing::ValuesIn(golden_files("traces")), test_name);

TEST(GoldenCase, AResultOfAnotherShapeIsNotComputed) {
  const std::string attributes = R"({"shape": [1048576, 1048576]})";
  const std::vector<std::byte> bytes = serialize_safetensors({{"0.input.0", Tensor::zeros({1})}, {"0.output", Tensor::zeros({1})}},
                                                             {{"operator", "expand"}, {"0.attributes", attributes}});
  const std::vector<VerifyRow> rows = verify_case(parse_safetensors(bytes, "case"), DType::f32);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_FALSE(rows[0].passed);
  EXPECT_EQ(rows[0].remark, "the shape is 1048576x1048576");
}

class CudaGolden : public testing::TestWithParam<std::string> {
 protected:
  static constexpr Device gpu{DeviceKind::cuda, 0};

  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
  void TearDown() override { set_numerics({}); }
};

TEST_P(CudaGolden, AgreesInFloat64) { expect_all_pass(GetParam(), DType::f64, gpu); }
TEST_P(CudaGolden, AgreesInStrictFloat32) {
  set_numerics({.tf32 = false});
  expect_all_pass(GetParam(), DType::f32, gpu);
}
/// Outputs only: where a rounded factor moves a maximum to another element, the gradient goes with it.
TEST_P(CudaGolden, OutputsAgreeInTf32) {
  int outputs = 0;
  for (const VerifyRow& row : verify_case(read_safetensors(GetParam()), DType::f32, gpu)) {
    if (!row.name.ends_with("output")) continue;
    ++outputs;
    EXPECT_TRUE(row.passed) << row.name << ' ' << row.shape << ": relative difference " << row.relative << ' ' << row.remark;
  }
  EXPECT_GT(outputs, 0);
}

INSTANTIATE_TEST_SUITE_P(Model, CudaGolden, testing::ValuesIn(golden_files("models")), test_name);
INSTANTIATE_TEST_SUITE_P(Operator, CudaGolden, testing::ValuesIn(golden_files("operators")), test_name);

TEST(CudaGoldenModels, AgreeInHalves) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  expect_models_to_agree_in_halves({DeviceKind::cuda, 0});
}

class CudaGoldenTrace : public CudaGolden {};

TEST_P(CudaGoldenTrace, LossesAgreeInFloat64) { expect_all_pass(GetParam(), DType::f64, gpu); }

INSTANTIATE_TEST_SUITE_P(Trace, CudaGoldenTrace, testing::ValuesIn(golden_files("traces")), test_name);

TEST(GoldenFiles, AreThereForEveryModelAndOperator) {
  EXPECT_EQ(golden_files("models").size(), 36u);  // 12 a model
  EXPECT_EQ(golden_files("traces").size(), 6u);
  std::vector<std::string> covered;
  for (const std::string& path : golden_files("operators")) {
    const SafetensorsHeader header = read_safetensors_header(path);
    covered.push_back(header.metadata().at("operator"));
    EXPECT_GE(std::stoi(header.metadata().at("cases")), 20) << path;
  }
  for (const ops::Operator* op : ops::registry().all()) {
    // What becomes another operator once sizes are known has that one's.
    const bool other = op->decompose || op->at_known_sizes;
    const bool needed = !op->name.ends_with("_backward") && op->mutates.empty() && !op->collective && !other && op->name != "dropout";
    const bool found = std::find(covered.begin(), covered.end(), op->name) != covered.end();
    EXPECT_TRUE(found || !needed) << op->name << " has no golden cases";
  }
}

}  // namespace
}  // namespace frit
