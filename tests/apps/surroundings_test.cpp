// Good input where the rest is odd: limits, no reader, another locale, names of files, numbers that are none.

#include <sched.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>

#include "apps/fixtures.h"
#include "apps/program.h"

namespace frit {
namespace {

/// A folder with a model, its input, and an output file that no failure may touch.
class Surroundings : public ProgramTest {
 protected:
  static constexpr const char* old = "old.npy";

  Surroundings() {
    write("model.safetensors", serialize_safetensors(tiny_parameters(), checkpoint_metadata(tiny_model())));
    write("input.npy", serialize_npy(random_tensor({2, 3, 8, 8})));
    write(old, "what was there before");
  }

  static std::vector<std::string> infer(const std::string& output, const std::string& input = "input.npy",
                                        std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"infer", "model.safetensors", "--input", input, "--output", output});
    return more;
  }
};

TEST_F(Surroundings, FileSizeLimitLeavesTheOldOutput) {
  const Outcome outcome = run_program({.arguments = infer(old), .directory = folder, .file_limit = 256});
  EXPECT_EQ(outcome.code, 4) << outcome;
  EXPECT_TRUE(std::regex_search(outcome.errors, std::regex("old.npy.*file too large"))) << outcome;
  EXPECT_EQ(content(old), "what was there before");
  for (const std::string& name : files()) EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
}

TEST_F(Surroundings, MemoryLimitIsToldWithoutTheNameOfAnException) {
  if (sanitized) GTEST_SKIP() << "a sanitizer reserves more address space than any limit allows";
  write("large.npy", serialize_npy(Tensor::zeros({64, 3, 200, 200})));
  const auto run_within = [&](const std::string& input, const std::string& output, std::size_t limit) {
    return run_program({.arguments = infer(output, input, {"--threads", "1"}), .directory = folder, .memory_limit = limit});
  };
  // What the program and its libraries need themselves differs between builds.
  std::size_t too_little = 0, enough = std::size_t{8} << 30;
  while (enough - too_little > (4u << 20)) {
    const std::size_t middle = (too_little + enough) / 2;
    (run_within("input.npy", "small.npy", middle).code == 0 ? enough : too_little) = middle;
  }
  const Outcome outcome = run_within("large.npy", old, enough + (4u << 20));
  EXPECT_EQ(outcome.code, 6) << outcome;
  EXPECT_EQ(outcome.errors.find("bad_alloc"), std::string::npos) << outcome;
  EXPECT_EQ(content(old), "what was there before");
}

TEST_F(Surroundings, AThreadForEachCoreThatTheProcessMayUse) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  for (const cpu_set_t& allowed : {one, before}) {
    ASSERT_EQ(sched_setaffinity(0, sizeof allowed, &allowed), 0);  // which the program inherits
    const Outcome outcome = run_program({.arguments = {"info", "--json"}, .directory = folder});
    EXPECT_EQ(nlohmann::json::parse(outcome.output, nullptr, false)["threads"], CPU_COUNT(&allowed)) << outcome;
  }
}

TEST_F(Surroundings, OutputOfNoReaderIsAQuietFailure) {
  for (const auto output : {ProgramLaunch::closed, ProgramLaunch::no_reader}) {
    for (const char* const command : {"info", "--help", "--version"}) {
      const Outcome outcome = run_program({.arguments = {command}, .directory = folder, .output = output});
      EXPECT_EQ(outcome.code, 4) << command << outcome;
      EXPECT_EQ(outcome.errors, "") << command;
    }
  }
}

TEST_F(Surroundings, OutputThatFindsNoRoomIsTold) {
  const std::vector<std::vector<std::string>> lines = {{"info"},
                                                       {"info", "classifier"},
                                                       {"info", "--json"},
                                                       {"graph", "classifier"},
                                                       {"--help"},
                                                       {"completion", "bash"},
                                                       {"gradcheck", "relu"},
                                                       {"train", "--help"},
                                                       {"graph", "classifier", "--stage", "train"}};
  for (const std::vector<std::string>& line : lines) {
    const Outcome outcome = run_program({.arguments = line, .directory = folder, .output = ProgramLaunch::full});
    EXPECT_EQ(outcome.code, 4) << line[0] << outcome;
    EXPECT_NE(outcome.errors.find("frit: error: standard output: no space left on device\n"), std::string::npos) << line[0] << outcome;
  }
}

TEST_F(Surroundings, ALocaleWithDecimalCommaChangesNothing) {
  write("data.safetensors", serialize_safetensors({{"input", random_tensor({8, 3, 8, 8})}, {"target", random_tensor({8, 4, 3, 3})}}));
  const std::vector<std::string> arguments = {"train",          "conv2d-groupnorm-pool",
                                              "--model-config", tiny_model().config,
                                              "--data",         "data.safetensors",
                                              "--lr",           "0.5",
                                              "--epochs",       "1",
                                              "--quiet"};
  const Outcome plain = run(arguments);
  const Outcome german =
      run_program({.arguments = arguments, .directory = folder, .environment = {"LC_ALL=de_DE.UTF-8", "LC_NUMERIC=de_DE.UTF-8"}});
  EXPECT_EQ(plain.code, 0) << plain;
  EXPECT_EQ(german.code, 0) << german;
  EXPECT_EQ(plain.output, german.output);
}

TEST_F(Surroundings, OddPathsWork) {
  for (const char* const name : {"with space.npy", "with\nnewline.npy",
                                 "with\xff\xfe"
                                 "bytes.npy",
                                 "-starts-with-dash.npy"}) {
    std::filesystem::copy_file(path("input.npy"), folder / name);
    const std::string output = std::string("out ") + name;
    const Outcome outcome = run({"infer", "model.safetensors", "--input=" + std::string(name), "--output", output});
    EXPECT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(read_npy(path(output)).shape(), (Shape{2, 4, 3, 3}));
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome;
  }
}

TEST_F(Surroundings, NanInTheInputIsCountedAndKept) {
  const Tensor input = random_tensor({2, 3, 8, 8});
  input.data<float>()[0] = NAN;
  write("nan.npy", serialize_npy(input));
  const Outcome outcome = run(infer("out.npy", "nan.npy"));
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(outcome.errors.find("warning: the input has 1 NaN values"), std::string::npos) << outcome;
  EXPECT_NE(outcome.errors.find("warning: the output has "), std::string::npos) << outcome;
  EXPECT_TRUE(std::isnan(read_npy(path("out.npy")).to_vector<float>()[0]));
}

}  // namespace
}  // namespace frit
