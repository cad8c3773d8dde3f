// `frit train --dry-run`: the memory that it foretells is what the training then takes.

#include <nlohmann/json.hpp>

#include "apps/fixtures.h"
#include "apps/program.h"

namespace frit {
namespace {

using nlohmann::json;

class TrainMemory : public ProgramTest {
 protected:
  json result(std::vector<std::string> arguments, const std::vector<std::string>& more) const {
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {"--json", "--quiet"});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome;
    return json::parse(outcome.output);
  }

  /// Compares what is foretold with what the allocator handed out at most; returns the former.
  json expect_as_foretold(const std::vector<std::string>& arguments) const {
    const json foretold = result(arguments, {"--dry-run"})["memory_bytes"];
    const double total = foretold["total"], taken = result(arguments, {"--run-dir", "none", "--epochs", "2"})["peak_memory_bytes"];
    EXPECT_NEAR(total, taken, 0.02 * taken) << testing::PrintToString(arguments) << foretold;
    return foretold;
  }
};

TEST_F(TrainMemory, IsAsForetold) {
  write("data.safetensors", serialize_safetensors({{"input", random_tensor({50, 3, 32, 32})}, {"target", random_tensor({50, 4, 15, 15})}}));
  write("other.safetensors",
        serialize_safetensors({{"input", random_tensor({40, 3, 32, 32})}, {"target", random_tensor({40, 4, 15, 15})}}));
  const auto arguments = [](const std::string& batch_size, std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "conv2d-groupnorm-pool", "--model-config", tiny_model().config, "--data", "data.safetensors",
                               "--batch-size", batch_size});
    return more;
  };
  const std::vector<std::string> measured = {"--validation", "other.safetensors"};
  const json with_rest = expect_as_foretold(arguments("32", measured));
  EXPECT_GT(with_rest["last_batch"], 0.4 * with_rest["training"].get<double>()) << "18 of 32 examples";
  const json whole = expect_as_foretold(arguments("10", measured));
  EXPECT_EQ(whole["last_batch"], 0);
  const json all = expect_as_foretold(arguments("1000", measured));
  EXPECT_EQ(all["last_batch"], 0) << "one batch has all examples";
  EXPECT_EQ(expect_as_foretold(arguments("32", {}))["validation"], 0);
  for (const std::vector<std::string>& kind : std::vector<std::vector<std::string>>{{"--accumulate", "2", "--clip-norm", "1"},
                                                                                    {"--dtype", "f64"},
                                                                                    {"--precision", "bf16", "--prefetch", "0"},
                                                                                    {"--overfit-one-batch"}}) {
    expect_as_foretold(arguments("32", kind));
  }
  std::vector<std::string> averages = measured;
  averages.insert(averages.end(), {"--average-decay", "0.9", "--accumulate", "2"});
  expect_as_foretold(arguments("32", averages));
}

TEST_F(TrainMemory, OfAClassifierIsAsForetold) {
  QuarterImages(1000, /*seed=*/1).write(path("quarters"), "train");
  QuarterImages(300, /*seed=*/2).write(path("quarters"), "t10k");
  const std::string config = R"({"image_size": [8, 8], "num_classes": 4, "out_channels": 16, "num_groups": 4})";
  for (const char* const batch_size : {"600", "500", "128"}) {
    expect_as_foretold({"train", "classifier", "--model-config", config, "--data", "quarters", "--batch-size", batch_size});
  }
}

TEST_F(TrainMemory, TheLargestBatchFitsWithTheLastOnes) {
  // More than a machine can hold, in files that take no space.
  const auto write_zeros = [&](const std::string& name, const std::string& shape, std::uint64_t bytes) {
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
    header += std::string(118 - header.size() - 1, ' ') + '\n';
    write(name, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header);
    std::error_code error;
    std::filesystem::resize_file(folder / name, 128 + bytes, error);
    return !error;
  };
  std::filesystem::create_directory(path("zeros"));
  constexpr std::uint64_t examples = 1'000'003;
  if (!write_zeros("zeros/inputs.npy", "(1000003, 3, 256, 256)", examples * 3 * 256 * 256 * 4) ||
      !write_zeros("zeros/targets.npy", "(1000003, 4, 127, 127)", examples * 4 * 127 * 127 * 4)) {
    GTEST_SKIP() << "files cannot have holes here";
  }
  const std::vector<std::string> arguments = {
      "train", "conv2d-groupnorm-pool", "--model-config", tiny_model().config, "--data", "zeros", "--dry-run", "--batch-size"};
  const json any = result(arguments, {"8"});
  const std::int64_t largest = any["largest_batch"];
  ASSERT_GT(largest, 1) << any;
  if (largest == static_cast<std::int64_t>(examples)) GTEST_SKIP() << "this machine can hold it after all";
  const double available = any["memory_bytes"]["available"];
  const json memory = result(arguments, {std::to_string(largest)})["memory_bytes"];
  EXPECT_LE(memory["total"], available) << largest;
  EXPECT_GT(memory["total"], 0.8 * available) << largest;
}

}  // namespace
}  // namespace frit
