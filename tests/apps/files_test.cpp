// What a command reads it does not write, and what it is given as a file is one.

#include <sys/stat.h>

#include "apps/fixtures.h"
#include "apps/program.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

class Files : public ProgramTest {
 protected:
  Files() {
    const Metadata metadata = checkpoint_metadata(tiny_model());
    write("model.safetensors", serialize_safetensors(tiny_parameters(), metadata));
    write("weights.safetensors", serialize_safetensors(tiny_parameters(), metadata));
    for (const char* const name : {"data.safetensors", "validation.safetensors"}) {
      write(name, serialize_safetensors({{"input", random_tensor({8, 3, 8, 8})}, {"target", random_tensor({8, 4, 3, 3})}}));
    }
    for (const char* const name : {"pairs", "set/train", "set/test", "in", "ref", "out"}) fs::create_directories(path(name));
    for (const char* const name : {"pairs", "set/train", "set/test"}) {
      write(name + std::string("/inputs.npy"), serialize_npy(random_tensor({8, 3, 8, 8})));
      write(name + std::string("/targets.npy"), serialize_npy(random_tensor({8, 4, 3, 3})));
    }
    for (const char* const name : {"x.npy", "in/a.npy", "in/b.npy", "ref/a.npy", "ref/b.npy"}) {
      write(name, serialize_npy(random_tensor({2, 3, 8, 8})));
    }
    write("model.json", tiny_model().config);
    write("run.toml", std::string("[train]\nepochs = 1\n"));
    QuarterImages(20, /*seed=*/1).write(path("quarters"), "train");
  }

  static std::vector<std::string> train(std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "conv2d-groupnorm-pool", "--model-config", "@model.json", "--epochs", "1", "--quiet"});
    if (std::find(more.begin(), more.end(), "--data") == more.end()) more.insert(more.end(), {"--data", "data.safetensors"});
    if (std::find(more.begin(), more.end(), "--run-dir") == more.end()) more.insert(more.end(), {"--run-dir", "none"});
    return more;
  }
  static std::vector<std::string> infer(std::vector<std::string> more) {
    more.insert(more.begin(), {"infer"});
    return more;
  }

  /// Every file below the folder, with what it holds.
  std::map<std::string, std::string> everything() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string name = fs::relative(entry.path(), folder);
      found[name] = entry.is_regular_file() ? content(name) : "";
    }
    return found;
  }

  void refused(int code, const std::string& message, const std::vector<std::string>& arguments) const {
    const std::map<std::string, std::string> before = everything();
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << message << outcome;
    EXPECT_NE(outcome.errors.find("frit: error: " + message), std::string::npos) << message << outcome;
    EXPECT_EQ(outcome.output, "") << message;
    EXPECT_EQ(everything(), before) << message;
  }
};

TEST_F(Files, AnEmptyValueIsRefused) {
  write("run.toml", std::string("[train]\nweights = \"\"\n"));
  for (const char* const option : {"--data", "--validation", "--weights", "--resume", "--save", "--profile", "--run-dir", "--freeze",
                                   "--model-config", "--plan-cache", "--device", "--flip", "--config"}) {
    refused(2, concat("train: ", option, ": the value is empty"), {"train", "classifier", option, "", "--quiet"});
    refused(2, concat("train: ", option, ": the value is empty"), {"train", "classifier", std::string(option) + "=", "--quiet"});
  }
  refused(3, "run.toml: line 2: --weights: the value is empty", train({"--config", "run.toml"}));
  refused(2, "info: MODEL|CHECKPOINT: the value is empty", {"info", ""});
  refused(2, "verify: CASE: the value is empty", {"verify", "x.npy", ""});
  refused(2, "infer: --ref: the value is empty", infer({"model.safetensors", "--input", "x.npy", "--output", "y.npy", "--ref", ""}));
}

TEST_F(Files, AConfigurationIsARegularFileOfItsSize) {
  refused(4, "/dev/zero: not a regular file, expected a text file", train({"--config", "/dev/zero"}));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const Outcome pipe = run(train({"--config", "pipe"}));
  EXPECT_EQ(pipe.code, 4) << pipe;
  EXPECT_NE(pipe.errors.find("pipe: not a regular file"), std::string::npos) << pipe;
  fs::remove(path("pipe"));
  write("large.toml", std::string());
  fs::resize_file(path("large.toml"), std::uintmax_t{3} << 29);
  const Outcome outcome = run_program(
      {.arguments = train({"--config", "large.toml"}), .directory = folder, .memory_limit = sanitized ? 0 : std::size_t{1} << 30});
  EXPECT_EQ(outcome.code, 3) << outcome;
  EXPECT_NE(outcome.errors.find("large.toml: has 1610612736 bytes, limit 1048576"), std::string::npos) << outcome;
}

}  // namespace
}  // namespace frit
