// What every command has in common: options from files and the environment, JSON, completion.

#include <nlohmann/json.hpp>
#include <regex>

#include "apps/fixtures.h"
#include "apps/program.h"

namespace frit {
namespace {

using nlohmann::json;

class CommandLine : public ProgramTest {
 protected:
  /// The words that a shell would offer.
  std::vector<std::string> offered(std::vector<std::string> words) const {
    words.insert(words.begin(), "__complete");
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << outcome;
    EXPECT_EQ(outcome.errors, "");
    std::vector<std::string> found;
    std::istringstream lines(outcome.output);
    for (std::string line; std::getline(lines, line);) found.push_back(line.substr(0, line.find('\t')));
    return found;
  }

  static bool holds(const std::vector<std::string>& words, const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  }

  static std::string line_of(const std::string& text, const std::string& key) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(key + " = ")) return line.substr(key.size() + 3);
    }
    return "";
  }
};

TEST_F(CommandLine, APrintedConfigurationGivesTheSameRun) {
  const std::string odd = "a \"b\" #c, 'd'\n\\ \xC3\xA9";
  const std::vector<std::vector<std::string>> lines = {
      {"train", "classifier", "--data", odd, "--model-config", tiny_classifier, "--lr", "0.0125", "--seed", "18446744073709551615", "-q"},
      {"infer", "m.safetensors", "--input", "true", "--output", "1e5", "--precision", "bf16", "--deterministic"},
      {"verify", "one.safetensors", "two, three.safetensors", "--dtype", "f32"},
      {"gradcheck", "--all", "--full"},
      {"graph", "classifier", "--input-shape", "1,1,28,28"},
      {"bench", "classifier", "--format", "csv"},
      {"info"},
  };
  for (std::vector<std::string> line : lines) {
    line.emplace_back("--print-config");
    const Outcome first = run(line);
    ASSERT_EQ(first.code, 0) << first;
    EXPECT_EQ(first.output.substr(0, line[0].size() + 3), '[' + line[0] + "]\n");
    write("run.toml", first.output);
    const Outcome second = run({line[0], "--config", "run.toml", "--print-config"});
    EXPECT_EQ(second.code, 0) << second;
    EXPECT_EQ(first.output, second.output);
  }
  EXPECT_NE(run(lines[0]).code, 0) << "without the flag it runs";
}

TEST_F(CommandLine, AFileTrainsAsTheCommandLineDoes) {
  const QuarterImages images(40, 1);
  std::filesystem::create_directory(path("quarters"));
  for (const char* const split : {"train", "t10k"}) {
    write(concat("quarters/", split, "-images-idx3-ubyte"), images.images);
    write(concat("quarters/", split, "-labels-idx1-ubyte"), images.labels);
  }
  const std::vector<std::string> common = {"train", "classifier", "--data", "quarters", "--model-config", tiny_classifier};
  std::vector<std::string> line = common;
  line.insert(line.end(), {"--epochs", "2", "--batch-size", "8", "--save", "line.safetensors", "--seed", "3"});
  ASSERT_EQ(run(line).code, 0);
  line.emplace_back("--print-config");
  write("run.toml", run(line).output);
  ASSERT_EQ(run({"train", "--config", "run.toml", "--save", "file.safetensors"}).code, 0);
  EXPECT_EQ(content("line.safetensors"), content("file.safetensors"));
}

TEST_F(CommandLine, OptionsWinOverTheFileAndTheFileOverTheEnvironment) {
  write("run.toml",
        std::string("threads = 3  # before a section: for any command\n\n; a remark\n[bench]\nmode = 'train'\n[train]\nthreads = 9\n"));
  const auto threads = [&](std::vector<std::string> more, std::vector<std::string> environment) {
    more.insert(more.begin(), {"bench", "classifier", "--print-config"});
    const Outcome outcome = run_program({.arguments = more, .directory = folder, .environment = std::move(environment)});
    EXPECT_EQ(outcome.code, 0) << outcome;
    return line_of(outcome.output, "threads");
  };
  EXPECT_EQ(threads({}, {"FRIT_THREADS="}), "");
  EXPECT_EQ(threads({}, {"FRIT_THREADS=2"}), "2");
  EXPECT_EQ(threads({"--config", "run.toml"}, {"FRIT_THREADS=2"}), "3");
  EXPECT_EQ(threads({"--config", "run.toml", "--threads", "4"}, {"FRIT_THREADS=2"}), "4");
  EXPECT_EQ(line_of(run({"--config", "run.toml", "bench", "classifier", "--print-config"}).output, "mode"), "\"train\"");
}

TEST_F(CommandLine, BadConfigurationsAreRefusedByLine) {
  const std::vector<std::tuple<std::string, int, std::string>> refused = {
      {"[train]\nepochs = 0\n", 3, "run.toml: line 2: --epochs: expected an integer from 1 to 1000000, got \"0\""},
      {"\n[train]\nepoch = 3\n", 3, "run.toml: line 3: unknown option \"epoch\" of train; did you mean \"epochs\"?"},
      {"[trian]\n", 3, "run.toml: line 1: expected the section of a command, got \"[trian]\"; did you mean \"train\"?"},
      {"[train\n", 3, "run.toml: line 1: expected the section of a command"},
      {"epochs\n", 3, "run.toml: line 1: expected OPTION = VALUE, got \"epochs\""},
      {"epochs =\n", 3, "run.toml: line 1: a value is missing"},
      {"epochs = [1, 2]\n", 3, "run.toml: line 1: \"epochs\" takes one value"},
      {"epochs = 1\nepochs = 2\n", 3, "run.toml: line 2: \"epochs\" stands here a second time"},
      {"save = \"a\n", 3, "run.toml: line 1: a string ends with \" on the same line"},
      {"save = 'a\n", 3, "run.toml: line 1: a string ends with ' on the same line"},
      {"save = [1, 2\n", 3, "run.toml: line 1: a list ends with ] on the same line"},
      {"save = \"a\" b\n", 3, "run.toml: line 1: unexpected \"b\" after the value"},
      {"save = \"\\x\"\n", 3, "run.toml: line 1: a backslash in a string is followed by"},
      {"save = \"\\u12\"\n", 3, "run.toml: line 1: a backslash in a string is followed by"},
      {"config = x\n", 3, "run.toml: line 1: unknown option \"config\" of train"},
      {"quiet = perhaps\n", 3, "run.toml: line 1: "},
      {std::string(2 << 20, '\n'), 3, "run.toml: has 2097152 bytes, limit 1048576"},
  };
  for (const auto& [text, code, message] : refused) {
    write("run.toml", text);
    const Outcome outcome = run({"train", "classifier", "--data", "nowhere", "--config", "run.toml"});
    EXPECT_EQ(outcome.code, code) << text.substr(0, 100) << outcome;
    EXPECT_EQ(outcome.errors.substr(0, 13 + message.size()), "frit: error: " + message) << outcome;
    EXPECT_EQ(std::count(outcome.errors.begin(), outcome.errors.end(), '\n'), 1) << outcome;
  }
  EXPECT_EQ(run({"info", "--config", "nowhere.toml"}).code, 4);
  const Outcome of_a_folder = run({"info", "--config", "."});
  EXPECT_EQ(of_a_folder.code, 4) << of_a_folder;
  EXPECT_NE(of_a_folder.errors.find("is a directory"), std::string::npos) << of_a_folder;
}

TEST_F(CommandLine, ABadEnvironmentVariableIsNamed) {
  const Outcome outcome = run_program({.arguments = {"bench", "classifier"}, .directory = folder, .environment = {"FRIT_THREADS=many"}});
  EXPECT_EQ(outcome.code, 2) << outcome;
  EXPECT_NE(outcome.errors.find("got \"many\" in $FRIT_THREADS"), std::string::npos) << outcome;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"info"}, {"graph", "classifier"}, {"bench", "relu", "--threads", "1"}}) {
    const Outcome other = run_program({.arguments = arguments, .directory = folder, .environment = {"FRIT_THREADS=many"}});
    EXPECT_NE(other.errors.find("got \"many\" in $FRIT_THREADS"), std::string::npos) << "an option of other commands " << other;
  }
  const Outcome quiet = run_program({.arguments = {"bench", "relu"}, .directory = folder, .environment = {"FRIT_QUIET=x"}});
  EXPECT_NE(quiet.errors.find("--quiet = x in $FRIT_QUIET"), std::string::npos) << quiet;
  const Outcome given =
      run_program({.arguments = {"bench", "relu", "--threads", "few"}, .directory = folder, .environment = {"FRIT_THREADS=2"}});
  EXPECT_EQ(given.errors.find("FRIT_THREADS"), std::string::npos) << given;
  const Outcome device = run_program({.arguments = {"verify", "x"}, .directory = folder, .environment = {"FRIT_DEVICE=tpu"}});
  EXPECT_EQ(device.code, 2) << device;
}

TEST_F(CommandLine, ResultsAsJson) {
  const std::string golden = FRIT_SOURCE_DIR "/tests/golden/";
  const auto parsed = [&](std::vector<std::string> arguments, int code = 0) {
    arguments.emplace_back("--json");
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome;
    return json::parse(outcome.output);
  };
  EXPECT_GT(parsed({"info"})["operators"].size(), 50u);
  EXPECT_EQ(parsed({"info", "classifier"})["parameters"][0]["shape"], (json{64, 1, 3, 3}));
  write("model.safetensors", serialize_safetensors(tiny_parameters(), checkpoint_metadata(tiny_model())));
  EXPECT_EQ(parsed({"info", "model.safetensors"})["tensors"].size(), 5u);
  const json verified = parsed({"verify", golden + "models/conv2d-groupnorm-pool.3.safetensors"});
  EXPECT_EQ(verified["failed"], 0);
  EXPECT_EQ(verified["files"][0]["tensors"].size(), verified["checked"]);
  const json gradients = parsed({"gradcheck", "relu", "greater"});
  EXPECT_EQ(gradients["gradients"][0]["verdict"], "ok");
  EXPECT_EQ(gradients["gradients"].back()["verdict"], "skipped");
  EXPECT_EQ(parsed({"bench", "convt3d-logsumexp", "--input-shape", "1,3,2,2,2", "--repeats", "1"})["results"].size(), 3u);
  write("data.safetensors", serialize_safetensors({{"input", random_tensor({8, 3, 8, 8})}, {"target", random_tensor({8, 4, 3, 3})}}));
  const json trained =
      parsed({"train", "conv2d-groupnorm-pool", "--model-config", tiny_model().config, "--data", "data.safetensors", "-q"});
  EXPECT_GT(trained["loss"].get<double>(), 0);
  EXPECT_TRUE(std::filesystem::exists(path(trained["run_directory"].get<std::string>() + "/report.html"))) << trained;
}

TEST_F(CommandLine, CompletesWhatTheParserKnows) {
  EXPECT_EQ(offered({"gra"}), (std::vector<std::string>{"gradcheck", "graph"}));
  const std::vector<std::string> commands = offered({""});
  for (const char* const command : {"train", "infer", "verify", "gradcheck", "graph", "bench", "tune", "info", "completion"}) {
    EXPECT_TRUE(holds(commands, command)) << command;
    // Every option of the help, and no other.
    const std::string help = run({command, "--help"}).output;
    const std::vector<std::string> options = offered({command, "--"});
    const std::regex option("  (?:-.,)?(--[a-z-]+)");
    std::vector<std::string> documented;
    for (std::sregex_iterator i(help.begin(), help.end(), option), end; i != end; ++i) documented.push_back((*i)[1]);
    for (const std::string& name : documented) EXPECT_TRUE(holds(options, name)) << command << ' ' << name;
    EXPECT_TRUE(holds(options, "--config")) << command;
  }
  EXPECT_EQ(offered({"train", "--optimizer", ""}), (std::vector<std::string>{"sgd", "adam", "adamw"}));
  EXPECT_EQ(offered({"train", "--optimizer=s"}), (std::vector<std::string>{"sgd"}));
  EXPECT_EQ(offered({"train", "--device", "c"}), (std::vector<std::string>{"cpu", "cuda"}));
  EXPECT_EQ(offered({"train", "cla"}), (std::vector<std::string>{"classifier"}));
  EXPECT_EQ(offered({"train", "--epochs", "3", "cla"}), (std::vector<std::string>{"classifier"}));
  EXPECT_EQ(offered({"train", "classifier", "cla"}), (std::vector<std::string>{})) << "there is one model";
  EXPECT_EQ(offered({"gradcheck", "relu", "gel"}), (std::vector<std::string>{"gelu", "gelu_backward"}));
  EXPECT_EQ(offered({"train", "--data", ""}), (std::vector<std::string>{})) << "a path";
  EXPECT_EQ(offered({"completion", ""}), (std::vector<std::string>{"bash", "zsh", "fish"}));
}

/// The shell's answer to a tab, where it is there.
TEST_F(CommandLine, BashCompletesThroughTheScript) {
  write("bash.sh", run({"completion", "bash"}).output + R"(
complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _frit; echo "${COMPREPLY[*]}"; }
complete_line )" FRIT_PROGRAM R"( train --opti
complete_line )" FRIT_PROGRAM R"( train --optimizer = ad
complete_line )" FRIT_PROGRAM R"( graph conv3
)");
  FILE* const shell = popen(("bash " + path("bash.sh")).c_str(), "r");
  ASSERT_NE(shell, nullptr);
  std::string answer;
  for (int c = 0; (c = std::fgetc(shell)) != EOF;) answer += static_cast<char>(c);
  EXPECT_EQ(pclose(shell), 0);
  EXPECT_EQ(answer, "--optimizer\nadam adamw\nconv3d-instnorm-max\n");
  for (const char* const name : {"zsh", "fish"}) {
    const Outcome outcome = run({"completion", name});
    EXPECT_EQ(outcome.code, 0) << outcome;
    EXPECT_NE(outcome.output.find("__complete"), std::string::npos) << outcome;
  }
  EXPECT_EQ(run({"completion", "tcsh"}).code, 2);
}

}  // namespace
}  // namespace frit
