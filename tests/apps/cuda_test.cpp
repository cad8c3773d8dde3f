// The program on a GPU.

#include <cmath>
#include <filesystem>
#include <regex>

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

TEST_F(CudaProgram, TrainsAsTheCpuDoes) {
  std::filesystem::create_directory(path("quarters"));
  const QuarterImages train(200, /*seed=*/1), test(50, /*seed=*/2);
  write("quarters/train-images-idx3-ubyte", train.images);
  write("quarters/train-labels-idx1-ubyte", train.labels);
  write("quarters/t10k-images-idx3-ubyte", test.images);
  write("quarters/t10k-labels-idx1-ubyte", test.labels);
  std::vector<double> losses;
  for (const char* const device : {"cpu", "cuda"}) {
    const Outcome outcome = run({"train", "classifier", "--config", tiny_classifier, "--data", "quarters", "--batch-size", "32", "--lr",
                                 "0.01", "--epochs", "15", "--device", device, "--math", "strict"});
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
  const Outcome outcome =
      run({"train", "conv2d-groupnorm-pool", "--config", R"({"in_channels": 3, "out_channels": 4, "num_groups": 2, "pool_kernel_size": 2})",
           "--data", "infinite.safetensors", "--batch-size", "4", "--device", "cuda", "--save", "model.safetensors"});
  EXPECT_EQ(outcome.code, 7) << outcome;
  EXPECT_TRUE(std::regex_search(outcome.errors, std::regex("loss is -?nan at step [1-3] "))) << outcome;
  EXPECT_FALSE(std::filesystem::exists(path("model.safetensors")));
}

}  // namespace
}  // namespace frit
