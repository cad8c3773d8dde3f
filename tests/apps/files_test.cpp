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

TEST_F(Files, NoOutputOfTrainingTakesTheFileOfAnInput) {
  fs::create_symlink("data.safetensors", path("link"));
  fs::create_hard_link(path("data.safetensors"), path("hard"));
  refused(2, "--profile would overwrite --data: data.safetensors", train({"--profile", "data.safetensors"}));
  refused(2, "--profile would overwrite --data: link", train({"--profile", "link"}));
  refused(2, "--profile would overwrite --data: hard", train({"--profile", "hard"}));
  refused(2, "--profile would overwrite --data: ./link", train({"--data", "hard", "--profile", "./link"}));
  refused(2, "--profile would overwrite --weights: ", train({"--weights", "weights.safetensors", "--profile", "weights.safetensors"}));
  refused(2, "--profile would overwrite --validation: ",
          train({"--validation", "validation.safetensors", "--profile", "validation.safetensors"}));
  refused(2, "--profile would overwrite --model-config: ", train({"--profile", "model.json"}));
  refused(2, "--profile would overwrite --resume: ", train({"--resume", "weights.safetensors", "--profile", "weights.safetensors"}));
  refused(2, "--profile would overwrite --config: ", train({"--config", "run.toml", "--profile", "run.toml"}));
  refused(2, "--save would overwrite --config: ", train({"--config", "run.toml", "--save", "run.toml"}));
  refused(2, "--save would overwrite --resume: ", train({"--resume", "weights.safetensors", "--save", "weights.safetensors"}));
  refused(2, "--plan-cache would overwrite --data: ", train({"--plan-cache", "data.safetensors"}));
  write("run.toml", std::string("[train]\nprofile = \"data.safetensors\"\n"));
  refused(2, "--profile would overwrite --data: ", train({"--config", "run.toml"}));
}

TEST_F(Files, NorAFileOfAFolderOfData) {
  refused(2, "--profile would overwrite --data: pairs/targets.npy", train({"--data", "pairs", "--profile", "pairs/targets.npy"}));
  refused(2, "--save would overwrite --data: set/test/inputs.npy", train({"--data", "set", "--save", "set/test/inputs.npy"}));
  refused(2, "--save would overwrite --validation: ", train({"--validation", "set", "--save", "set/train/inputs.npy"}));
  const std::string labels = "quarters/train-labels-idx1-ubyte";
  refused(2, "--profile would overwrite --data: " + labels, train({"--data", "quarters", "--profile", labels}));
  fs::create_hard_link(path("pairs/inputs.npy"), path("elsewhere"));
  refused(2, "--save would overwrite --data: elsewhere", train({"--data", "pairs", "--save", "elsewhere"}));
  fs::create_directory_symlink("pairs", path("linked"));
  refused(2, "--save would overwrite --data: pairs/inputs.npy", train({"--data", "linked", "--save", "pairs/inputs.npy"}));
}

TEST_F(Files, TwoOutputsAreTwoFiles) {
  refused(2, "--save and --profile would write the same file: ./new", train({"--save", "new", "--profile", "./new"}));
  refused(2, "--save and --plan-cache would write the same file: ", train({"--save", "new", "--plan-cache", "new"}));
  fs::create_directories(path("run/checkpoints"));
  refused(2, "--save and --run-dir would write the same file: run/report.html", train({"--save", "run/report.html", "--run-dir", "run"}));
  refused(2, "--run-dir and --profile would write the same file: ", train({"--profile", "run/steps.csv", "--run-dir", "run"}));
  refused(2, "--save and --run-dir would write the same file: ", train({"--save", "run/checkpoints/best.safetensors", "--run-dir", "run"}));
  fs::copy_file(path("model.json"), path("run/epochs.csv"));
  std::vector<std::string> arguments = train({"--run-dir", "run"});
  *(std::find(arguments.begin(), arguments.end(), "--model-config") + 1) = "@run/epochs.csv";
  refused(2, "--run-dir would overwrite --model-config: run/epochs.csv", arguments);
  const Outcome devices = run(train({"--save", "/dev/null", "--profile", "/dev/null"}));
  EXPECT_EQ(devices.code, 0) << "there is nothing to lose" << devices;
}

TEST_F(Files, ARunGoesOnInItsOwnFolderAndBesideItsData) {
  const auto good = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = run(train(arguments));
    EXPECT_EQ(outcome.code, 0) << outcome;
  };
  // What lies below the data's folder is not data by that alone.
  good({"--data", "pairs", "--run-dir", "pairs/run", "--save", "pairs/model.safetensors", "--profile", "pairs/trace.json"});
  good({"--data", "pairs", "--run-dir", "pairs/run", "--save", "pairs/model.safetensors", "--profile", "pairs/trace.json", "--resume",
        "auto"});
  good({"--data", "pairs", "--run-dir", "pairs/run", "--resume", "pairs/run/checkpoints/last.safetensors"});
}

TEST_F(Files, NoOtherCommandWritesWhatItReads) {
  refused(2, "--output would overwrite MODEL|CHECKPOINT: ./model.safetensors",
          infer({"model.safetensors", "--input", "x.npy", "--output", "./model.safetensors"}));
  refused(2, "--output would overwrite --config: ",
          infer({"model.safetensors", "--input", "x.npy", "--output", "run.toml", "--config", "run.toml"}));
  refused(2, "--output would overwrite --input: in/a.npy", infer({"model.safetensors", "--input", "in", "--output", "in"}));
  refused(2, "--output would overwrite --ref: ref/a.npy", infer({"model.safetensors", "--input", "in", "--output", "ref", "--ref", "ref"}));
  fs::create_hard_link(path("in/b.npy"), path("out/a.npy"));
  refused(2, "--output would overwrite --input: out/a.npy", infer({"model.safetensors", "--input", "in", "--output", "out"}));
  refused(2, "--plan-cache would overwrite MODEL|CHECKPOINT: ", {"info", "model.safetensors", "--plan-cache", "model.safetensors"});
  refused(2, "--plan-cache would overwrite CASE: ", {"verify", "x.npy", "model.safetensors", "--plan-cache", "model.safetensors"});
  refused(2, "--trace would overwrite --model-config: ",
          {"bench", "conv2d-groupnorm-pool", "--model-config", "@model.json", "--trace", "model.json"});
  refused(2, "--plan-cache and --trace would write the same file: ", {"bench", "relu", "--trace", "new", "--plan-cache", "new"});
  refused(2, "--plan-cache would overwrite --config: ", {"gradcheck", "relu", "--config", "run.toml", "--plan-cache", "run.toml"});
  write("in/state.safetensors", content("model.safetensors"));
  refused(2, "--plan-cache would overwrite BUNDLE: in/state.safetensors", {"replay", "in", "--plan-cache", "in/state.safetensors"});
}

TEST_F(Files, AnEmptyValueIsRefused) {
  write("run.toml", std::string("[train]\nweights = \"\"\n"));
  for (const char* const option : {"--data", "--validation", "--weights", "--resume", "--save", "--profile", "--run-dir", "--freeze",
                                   "--groups", "--model-config", "--plan-cache", "--device", "--flip", "--config"}) {
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
