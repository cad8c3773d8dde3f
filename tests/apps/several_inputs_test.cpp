// A network that reads an image, facts and a scanner's number, and gives a mask and a diagnosis, from data to inference.

#include <nlohmann/json.hpp>

#include "apps/fixtures.h"
#include "apps/mpirun.h"
#include "apps/program.h"
#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"

namespace frit {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

class SeveralInputs : public ProgramTest {
 protected:
  /// What is bright is of class 1: more of it by the first and less by the second scanner. The diagnosis is whether the first fact is above
  /// 0.
  static TensorMap patients(std::int64_t count, std::uint64_t seed) {
    const Tensor input = Tensor::empty({count, 1, 8, 8}), before = Tensor::empty({count, 1, 8, 8}), facts = Tensor::empty({count, 2});
    const Tensor mask = Tensor::empty({count, 8, 8}, DType::u8), scanner = Tensor::empty({count}, DType::i64),
                 diagnosis = Tensor::empty({count}, DType::i64);
    fill_normal(input, 0, 1, seed, 0);
    fill_normal(facts, 0, 1, seed, 1);
    fill_normal(before, 0, 1, seed, 2);
    for (std::int64_t i = 0; i < count; ++i) {
      scanner.data<std::int64_t>()[i] = i % 2;
      diagnosis.data<std::int64_t>()[i] = facts.data<float>()[2 * i] > 0 ? 1 : 0;
    }
    for (std::int64_t i = 0; i < input.elements(); ++i) {
      mask.data<std::uint8_t>()[i] = input.data<float>()[i] > (i / 64 % 2 == 0 ? -0.8F : 0.8F) ? 1 : 0;
    }
    return {{"input", input},  {"target", mask}, {"facts", facts}, {"scanner", scanner}, {"target.diagnosis", diagnosis},
            {"before", before}};
  }
  static TensorMap without(TensorMap tensors, const std::string& name) {
    tensors.erase(name);
    return tensors;
  }
  static std::string npz(const TensorMap& tensors) {
    std::vector<ZipEntry> entries;
    for (const auto& [name, tensor] : tensors) {
      const std::vector<std::byte> bytes = serialize_npy(tensor);
      entries.push_back({name + ".npy", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
    }
    return zip_file(entries);
  }

  SeveralInputs() {
    write_safetensors(path("learnt.safetensors"), learnt_);
    write_safetensors(path("unseen.safetensors"), unseen_);
  }

  Outcome patient(const Words& arguments) const {
    return run_program({.arguments = arguments, .directory = folder, .program = FRIT_SEGMENTER});
  }
  static Words with(Words arguments, const Words& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static Words learn(const std::string& data, int epochs, const Words& more) {
    return with({"train", "patient", "--data", data, "--validation", "unseen.safetensors", "--batch-size", "8", "--lr", "0.03", "--epochs",
                 std::to_string(epochs), "--quiet", "--json"},
                more);
  }
  Json good(const Words& arguments) const {
    const Outcome outcome = patient(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome;
    return outcome.output.empty() ? Json() : Json::parse(outcome.output);
  }
  void refused(int code, const std::string& message, const Words& arguments) const {
    const Outcome outcome = patient(arguments);
    EXPECT_EQ(outcome.code, code) << outcome;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << outcome << "\nexpected " << message;
  }
  void expect_same_checkpoints(const std::string& a, const std::string& b) const {
    const TensorFile one = read_safetensors(path(a + "/checkpoints/last.safetensors")),
                     other = read_safetensors(path(b + "/checkpoints/last.safetensors"));
    ASSERT_EQ(one.size(), other.size());
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_EQ(serialize_npy(one.tensor(i)), serialize_npy(other.tensor(i))) << one.entry(i).name;
  }

  TensorMap learnt_ = without(patients(36, 1), "before"), unseen_ = without(patients(20, 2), "before");
};

TEST_F(SeveralInputs, AreLearntResumedAndInferred) {
  const Json whole = good(learn("learnt.safetensors", 12, {"--run-dir", "whole"}));
  EXPECT_GT(whole["accuracy"], 0.9) << "of the mask, for which the scanner must be known";
  good(learn("learnt.safetensors", 5, {"--run-dir", "parts"}));
  EXPECT_EQ(good(learn("learnt.safetensors", 12, {"--run-dir", "parts", "--resume", "auto"}))["loss"], whole["loss"]);
  expect_same_checkpoints("parts", "whole");

  const Words infer = {"infer", "whole/checkpoints/last.safetensors", "--input", "unseen.safetensors", "--quiet"};
  good(with(infer, {"--output", "said.safetensors", "--batch-size", "7"}));
  const TensorFile said = read_safetensors(path("said.safetensors"));
  ASSERT_EQ(said.size(), 2u);
  const std::vector<float> logits = said.at("diagnosis").to_vector<float>();
  ASSERT_EQ(said.at("diagnosis").shape(), (Shape{20, 3}));
  int right = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    const float* const row = logits.data() + 3 * i;
    right += std::max_element(row, row + 3) - row == unseen_["target.diagnosis"].data<std::int64_t>()[i];
  }
  EXPECT_GE(right, 17) << "of 20 diagnoses";
  good(with(infer, {"--ref", "said.safetensors", "--batch-size", "20"}));
  EXPECT_FALSE(fs::exists(path("masks.npy")));
  const Outcome masks = patient(with(infer, {"--output", "masks.npy", "--batch-size", "7"}));
  EXPECT_NE(masks.errors.find("of 2 outputs only \"output\" is written; a .safetensors file for --output has all of them"),
            std::string::npos)
      << masks;
  EXPECT_EQ(serialize_npy(read_npy(path("masks.npy"))), serialize_npy(said.at("output")));
  write_npy(path("classes.npy"), unseen_["target"]);
  EXPECT_NEAR(good({"infer", "whole/checkpoints/last.safetensors", "--input", "unseen.safetensors", "--ref", "classes.npy", "--json",
                    "--quiet"})["classes"]["accuracy"],
              whole["accuracy"], 1e-12);
  write_safetensors(path("other.safetensors"), {{"output", said.at("output")}, {"diagnosis", Tensor::zeros({20, 3})}});
  refused(1, "other.safetensors: \"diagnosis\": ", with(infer, {"--ref", "other.safetensors"}));
  write_safetensors(path("other.safetensors"), {{"mask", said.at("output")}});
  refused(3, "other.safetensors: there is no output \"mask\"", with(infer, {"--ref", "other.safetensors"}));

  // Windows as large as the image say what the image does, each with its own facts.
  const Words windows = with(infer, {"--window", "8,8", "--batch-size", "3"});
  good(with(windows, {"--output", "blended.npy"}));
  EXPECT_EQ(serialize_npy(read_npy(path("blended.npy"))), serialize_npy(said.at("output")));
  good(with(infer, {"--window", "4,6", "--batch-size", "5", "--output", "blended.npy", "--warmup", "1"}));
  EXPECT_EQ(read_npy(path("blended.npy")).shape(), (Shape{20, 2, 8, 8}));
}

TEST_F(SeveralInputs, AreReadFromAFolderAndFromNpz) {
  const auto loss = [&](const std::string& data) { return good(learn(data, 1, {"--run-dir", "none"}))["loss"]; };
  const Json expected = loss("learnt.safetensors");
  fs::create_directory(path("arrays"));
  for (const auto& [name, tensor] : learnt_)
    write_npy(path("arrays/" + name + (name == "input" || name == "target" ? "s.npy" : ".npy")), tensor);
  EXPECT_EQ(loss("arrays"), expected);
  FRIT_SKIP_WITHOUT("libzip");
  write("learnt.npz", npz(learnt_));
  EXPECT_EQ(loss("learnt.npz"), expected);
}

TEST_F(SeveralInputs, AreCroppedWithTheImageAndNormalisedApart) {
  write_safetensors(path("learnt.safetensors"), patients(36, 1));
  write_safetensors(path("unseen.safetensors"), patients(20, 2));
  const Json learnt = good(learn("learnt.safetensors", 2,
                                 {"--model-config", R"({"before": true})", "--crop", "6,6", "--flip", "w", "--normalize", "mean-std",
                                  "--run-dir", "none", "--save", "m.safetensors"}));
  EXPECT_GT(learnt["accuracy"], 0.5);
  good({"infer", "m.safetensors", "--input", "unseen.safetensors", "--output", "y.npy", "--quiet"});
  EXPECT_EQ(read_npy(path("y.npy")).shape(), (Shape{20, 2, 8, 8})) << "as large as the images that are given";
  refused(2, "--window does not go with \"before\", an input as large as the image",
          {"infer", "m.safetensors", "--input", "unseen.safetensors", "--output", "y.npy", "--window", "4,4"});
}

TEST_F(SeveralInputs, AreRefusedByName) {
  const auto data = [&](const TensorMap& tensors, const std::string& message) {
    write_safetensors(path("bad.safetensors"), tensors);
    refused(3, message, learn("bad.safetensors", 1, {"--run-dir", "none"}));
  };
  data({{"input", learnt_["input"]}, {"target", learnt_["target"]}, {"age", learnt_["scanner"]}},
       "bad.safetensors: expected the arrays \"input\", \"target\", \"facts\", \"scanner\", \"target.diagnosis\"; missing: \"facts\", "
       "\"scanner\", \"target.diagnosis\"; not expected: \"age\"");
  TensorMap wrong = learnt_;
  wrong["facts"] = Tensor::zeros({36, 3});
  wrong["scanner"] = Tensor::zeros({36});
  data(wrong,
       "bad.safetensors: inputs of model \"patient\": \"facts\": expected f32 8x2, got f32 8x3; \"scanner\": expected i64 8, got f32 8");
  wrong = learnt_;
  wrong["target.diagnosis"] = Tensor::zeros({36, 2}, DType::i64);
  data(wrong, "the targets \"target.diagnosis\" of a batch have shape 8x2, the model needs 8");
  wrong["target.diagnosis"] = Tensor::zeros({36});
  data(wrong, "the targets \"target.diagnosis\" are f32, a classifier needs integers");
  wrong["target.diagnosis"] = Tensor::full({36}, 3, DType::i64);
  data(wrong, "expected an index in [0, 3)");
  wrong = unseen_;
  wrong["scanner"] = Tensor::zeros({20, 1}, DType::i64);
  write_safetensors(path("bad.safetensors"), wrong);
  refused(3, "\"scanner\" of a validation example is 1, of a training example scalar",
          {"train", "patient", "--data", "learnt.safetensors", "--validation", "bad.safetensors", "--run-dir", "none"});

  write_npy(path("x.npy"), unseen_["input"]);
  refused(3, "x.npy: inputs of model \"patient\": missing: \"facts\", \"scanner\"",
          {"infer", "patient", "--input", "x.npy", "--output", "y.npy"});
  write_safetensors(path("x.safetensors"), {{"input", unseen_["input"]}, {"facts", Tensor::zeros({19, 2})}, {"sex", Tensor::zeros({20})}});
  refused(3,
          "x.safetensors: inputs of model \"patient\": missing: \"scanner\"; not expected: \"sex\"; \"facts\": expected f32 20x2, got f32 "
          "19x2",
          {"infer", "patient", "--input", "x.safetensors", "--output", "y.npy"});
}

TEST_F(SeveralInputs, GoThroughTheOtherCommands) {
  for (const char* const config : {"{}", R"({"before": true})"}) {
    const Words model = {"patient", "--model-config", config};
    const Json info = good(with({"info", "--json"}, model));
    EXPECT_EQ(info["heads"][0], (Json{{"name", "diagnosis"}, {"task", "classification"}, {"weight", 0.5}}));
    EXPECT_EQ(info["side_inputs"][1], (Json{{"name", "scanner"}, {"dtype", "i64"}, {"shape", Json::array()}}));
    good(with({"bench", "--json", "--batch-size", "2", "--input-shape", "2,1,6,6", "--warmup", "1", "--repeats", "1"}, model));
    const Json graph = good(with({"graph", "--stage", "inference", "--json"}, model));
    EXPECT_EQ(graph["inference"]["outputs"].size(), 2u);
    EXPECT_EQ(patient(with({"graph", "--lint"}, model)).output, "every parameter can learn\n");
  }
  const Json checked = good({"gradcheck", "patient", "--json"});
  EXPECT_EQ(checked["failed"], 0);
  int facts = 0;
  for (const Json& row : checked["gradients"]) facts += row["with_respect_to"] == "facts";
  EXPECT_EQ(facts, 1);
  const Json plan = good(learn("learnt.safetensors", 1, {"--dry-run"}))["memory_bytes"];
  write_safetensors(path("learnt.safetensors"), patients(36, 1));
  write_safetensors(path("unseen.safetensors"), patients(20, 2));
  const Json more = good(learn("learnt.safetensors", 1, {"--dry-run", "--model-config", R"({"before": true})"}))["memory_bytes"];
  EXPECT_EQ(more["batches"].get<int>() - plan["batches"].get<int>(), 2 * 3 * 8 * 64 * 4) << "three batches to learn, three to measure on";
}

TEST_F(SeveralInputs, GoOutAsOnnxAndComeBack) {
  if (patient({"export", "--help"}).code != 0) GTEST_SKIP() << "frit was built without ONNX";
  good(learn("learnt.safetensors", 1, {"--run-dir", "none", "--save", "m.safetensors"}));
  good({"export", "m.safetensors", "--output", "m.onnx"});
  good({"infer", "m.safetensors", "--input", "unseen.safetensors", "--output", "said.safetensors", "--quiet"});
  good({"infer", "m.onnx", "--input", "unseen.safetensors", "--ref", "said.safetensors", "--quiet"});
  TensorMap once = without(unseen_, "target.diagnosis");  // of which a file does not say the task
  once["target"] = Tensor::zeros({20, 2, 8, 8});
  write_safetensors(path("once.safetensors"), once);  // the last batch has 4
  good({"train", "m.onnx", "--data", "once.safetensors", "--epochs", "1", "--batch-size", "8", "--run-dir", "none", "--json", "--quiet"});
}

TEST_F(SeveralInputs, AreLearntByTwoProcessesAsByOne) {
  if (mpirun == nullptr) GTEST_SKIP() << "frit was built without MPI";
  const auto arguments = [](const std::string& run) {
    return learn("learnt.safetensors", 2, {"--dtype", "f64", "--deterministic", "--run-dir", run});
  };
  const Json one = good(arguments("one"));
  Words program = arguments("two");
  program.insert(program.begin(), FRIT_SEGMENTER);
  const Outcome two = run_program(under_mpirun(folder, {program, program}));
  ASSERT_EQ(two.code, 0) << two;
  EXPECT_NEAR(Json::parse(two.output)["loss"], one["loss"], 1e-10);
  EXPECT_EQ(Json::parse(two.output)["accuracy"], one["accuracy"]);
}

}  // namespace
}  // namespace frit
