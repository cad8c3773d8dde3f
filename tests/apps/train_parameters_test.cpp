// `frit train`: parameters with settings of their own, and averages of them.

#include <nlohmann/json.hpp>

#include "apps/resume_run.h"

namespace frit {
namespace {

using nlohmann::json;

class TrainParameters : public Resume {
 protected:
  std::vector<float> values(const std::string& file, const std::string& tensor) const {
    return read_safetensors(path(file)).at(tensor).to_vector<float>();
  }
  /// The parameters of both files that differ.
  std::vector<std::string> changed(const std::string& a, const std::string& b) const {
    const TensorFile file = read_safetensors(path(a));
    std::vector<std::string> names;
    for (std::size_t i = 0; i < file.size(); ++i) {
      const std::string name(file.entry(i).name);
      if (file.tensor(i).to_vector<float>() != values(b, name)) names.push_back(name);
    }
    return names;
  }
  /// Trains a little from there on.
  void tune(const std::vector<std::string>& more) const {
    good(with(train({"--epochs", "1", "--optimizer", "sgd", "--run-dir", "none", "--weights", "start.safetensors", "--save",
                     "tuned.safetensors"}),
              more));
  }
};

using Names = std::vector<std::string>;

TEST_F(TrainParameters, GroupsHaveRatesAndDecaysOfTheirOwn) {
  good(train({"--epochs", "2", "--run-dir", "none", "--save", "start.safetensors"}));
  tune({"--groups", "rank=0-1 lr=0"});
  EXPECT_EQ(changed("start.safetensors", "tuned.safetensors"), (Names{"block.conv.weight", "block.scale", "linear.weight"}));
  tune({"--groups", "names=linear.* lr=0.02; rank=1 lr=0;names=*.weight lr=0 "});
  EXPECT_EQ(changed("start.safetensors", "tuned.safetensors"), (Names{"block.scale", "linear.bias", "linear.weight"}))
      << "the first that fits counts";

  // One group of all is the whole training with that rate and decay.
  tune({"--groups", "names=* lr=0.03 weight-decay=0.1"});
  const std::string grouped = content("tuned.safetensors");
  std::vector<std::string> arguments = train({"--epochs", "1", "--optimizer", "sgd", "--run-dir", "none", "--weights", "start.safetensors",
                                              "--save", "tuned.safetensors", "--weight-decay", "0.1"});
  *(std::find(arguments.begin(), arguments.end(), "--lr") + 1) = "0.03";
  good(arguments);
  EXPECT_EQ(content("tuned.safetensors"), grouped);
}

TEST_F(TrainParameters, GroupsThatAreNoneAreRefused) {
  const std::vector<std::pair<std::string, std::string>> refusals = {
      {"lr", "--groups: lr: the value is empty"},
      {"lr=", "--groups: lr: the value is empty"},
      {"lr=fast", "--groups: lr: expected a number from 0 to 1e\\+06, got \"fast\""},
      {"lr=-1", "--groups: lr: expected a number from 0 to 1e\\+06, got \"-1\""},
      {"weight-decay=nan", "--groups: weight-decay: expected a number from 0 to 1e\\+06, got \"nan\""},
      {"wieght-decay=0", "--groups: expected names=, rank=, lr= or weight-decay=, got \"wieght-decay=0\"; did you mean \"weight-decay\""},
      {"rank=0-1", "--groups: \"rank=0-1\" has no lr= or weight-decay= of its own"},
      {"lr=1; names=a.*", "--groups: \" names=a\\.\\*\" has no lr= or weight-decay= of its own"},
      {"rank=2-1 lr=1", "--groups: rank: expected a number from 0 to 8 or two, such as 0-1, got \"2-1\""},
      {"rank=9 lr=1", "--groups: rank: expected a number from 0 to 8 or two, such as 0-1, got \"9\""},
      {"rank=1- lr=1", "--groups: rank: expected a number from 0 to 8 or two, such as 0-1, got \"1-\""},
      {"names=linaer.* lr=1", "no trained parameter has a name like \"linaer\\.\\*\" and a rank from 0 to 8"},
      {"names=linear.weight rank=1 lr=1", "no trained parameter has a name like \"linear.weight\" and a rank from 1 to 1"},
  };
  for (const auto& [groups, message] : refusals) refused(2, message, train({"--groups", groups, "--run-dir", "none"}));
  refused(2, "--groups: the value is empty", train({"--groups", ""}));
  std::vector<std::string> at_rest = train({"--groups", "rank=1 lr=0.1", "--run-dir", "none"});
  *(std::find(at_rest.begin(), at_rest.end(), "--lr") + 1) = "0";
  refused(2, "a group's learning rate is 0.1, no multiple of the step's, which is 0", at_rest);
  EXPECT_EQ(files(), (Names{"quarters"}));
}

TEST_F(TrainParameters, AveragesAreWhatIsMeasuredSavedAndServed) {
  const std::vector<std::string> arguments = {"--epochs",  "4",   "--average-decay", "0.95",
                                              "--run-dir", "run", "--save",          "averages.safetensors"};
  const json said = json::parse(good(with(train({"--json"}), arguments)).output);
  good(train({"--epochs", "4", "--run-dir", "plain", "--save", "plain.safetensors"}));
  EXPECT_EQ(changed("plain.safetensors", "averages.safetensors").size(), 7u) << "all of them";
  const std::string last = "run/checkpoints/last.safetensors";
  EXPECT_EQ(changed("plain.safetensors", last), Names()) << "the averages do not act on the training";
  EXPECT_EQ(values(last, "optimizer.linear.weight.average"), values("averages.safetensors", "linear.weight"));

  const auto infer = [&](const std::string& model, const std::vector<std::string>& more) {
    good(with({"infer", model, "--input", "quarters/t10k-images-idx3-ubyte", "--output", "logits.npy", "--quiet"}, more));
    return read_npy(path("logits.npy")).to_vector<float>();
  };
  const std::vector<float> averaged = infer(last, {});
  EXPECT_EQ(averaged, infer("averages.safetensors", {}));
  EXPECT_EQ(infer(last, {"--last-parameters"}), infer("plain.safetensors", {}));
  EXPECT_NE(averaged, infer("plain.safetensors", {}));

  // The loss that was measured is that of these logits.
  const std::string labels = content("quarters/t10k-labels-idx1-ubyte").substr(8);
  double loss = 0;
  for (std::size_t n = 0; n < labels.size(); ++n) {
    double sum = 0;
    for (std::size_t c = 0; c < 4; ++c) sum += std::exp(static_cast<double>(averaged[4 * n + c]));
    loss += std::log(sum) - static_cast<double>(averaged[4 * n + static_cast<std::size_t>(labels[n])]);
  }
  EXPECT_NEAR(said["loss"], loss / static_cast<double>(labels.size()), 1e-5);
  good(train({"--epochs", "1", "--weights", last, "--lr-schedule", "constant", "--groups", "names=* lr=0", "--save", "same.safetensors",
              "--run-dir", "none"}));
  EXPECT_EQ(changed("averages.safetensors", "same.safetensors"), Names()) << "a new run begins with them";
}

TEST_F(TrainParameters, AveragesNeedADecayBelowOne) {
  refused(2, "--average-decay: expected a number from 0 to 0.999999, got \"1\"", train({"--average-decay", "1"}));
  good(train({"--epochs", "1", "--run-dir", "run", "--average-decay", "0.9"}));
  refused(2, "does not go with --average-decay 0.5: the run that is to go on has 0.9",
          train({"--epochs", "2", "--run-dir", "run", "--resume", "auto", "--average-decay", "0.5"}));
  refused(2, "does not go with --groups \"rank=1 lr=0\": the run that is to go on has \"\"",
          train({"--epochs", "2", "--run-dir", "run", "--resume", "auto", "--average-decay", "0.9", "--groups", "rank=1 lr=0"}));
}

}  // namespace
}  // namespace frit
