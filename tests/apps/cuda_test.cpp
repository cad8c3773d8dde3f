// The program on a GPU.

#include "apps/fixtures.h"
#include "apps/program.h"
#include "frit/core/cuda/device.h"

namespace frit {
namespace {

class CudaProgram : public ProgramTest {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
  Outcome run(std::vector<std::string> arguments) const {
    return run_program({.arguments = std::move(arguments), .directory = folder, .gpu = true});
  }
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

}  // namespace
}  // namespace frit
