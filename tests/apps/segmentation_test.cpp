// Masks as targets: what `frit train` says of each class, and what `frit infer --ref` does.

#include <nlohmann/json.hpp>
#include <regex>

#include "apps/fixtures.h"
#include "apps/program.h"
#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/io/png.h"
#include "frit/models/predictor.h"
#include "frit/models/sliding_window.h"
#include "frit/ops/loss/loss.h"

namespace frit {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Segmentation : public ProgramTest {
 protected:
  /// Volumes of noise, in which what is bright is of class 1.
  Segmentation() {
    for (const char* const part : {"volumes/train", "volumes/test"}) {
      fs::create_directories(path(part));
      const Tensor inputs = Tensor::empty({12, 1, 4, 8, 8}), targets = Tensor::empty({12, 4, 8, 8}, DType::u8);
      fill_normal(inputs, 0, 1, part == std::string("volumes/train") ? 1 : 2, 0);
      for (std::int64_t i = 0; i < inputs.elements(); ++i) targets.data<std::uint8_t>()[i] = inputs.data<float>()[i] > 0.4F ? 1 : 0;
      write_npy(path(std::string(part) + "/inputs.npy"), inputs);
      write_npy(path(std::string(part) + "/targets.npy"), targets);
    }
  }

  static constexpr const char* config = R"({"channels": [6, 8], "num_classes": 2})";

  Outcome train(int epochs, const std::vector<std::string>& more, const std::string& data = "volumes") const {
    std::vector<std::string> arguments = {"train", "unet3d", "--model-config", config, "--data", data, "--batch-size", "4", "--lr", "0.02"};
    arguments.insert(arguments.end(), {"--epochs", std::to_string(epochs)});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

TEST_F(Segmentation, IsLearntAndMeasuredByClass) {
  const Outcome outcome = train(30, {"--run-dir", "run", "--flip", "hw"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  std::smatch found;
  ASSERT_TRUE(std::regex_search(outcome.output, found,
                                std::regex("^test loss [0-9.]+\ntest accuracy ([0-9.]+) %\ntest Dice ([0-9.]+), IoU ([0-9.]+)\n$")))
      << outcome;
  const double accuracy = std::stod(found[1]), dice = std::stod(found[2]), iou = std::stod(found[3]);
  EXPECT_GT(dice, 0.9) << outcome;
  EXPECT_NEAR(iou, dice / (2 - dice), 2e-4) << "of one class, the background not counting";
  EXPECT_TRUE(std::regex_search(outcome.errors, std::regex("epoch 30/30  loss [0-9.]+  accuracy [0-9.]+ %  \\|  validation loss [0-9.]+  "
                                                           "accuracy [0-9.]+ %  Dice [0-9.]+  IoU [0-9.]+")))
      << outcome;
  EXPECT_TRUE(content("run/epochs.csv")
                  .starts_with("epoch,step,seconds,training_loss,training_accuracy,validation_loss,validation_accuracy,"
                               "validation_top5,validation_dice,validation_iou\n"));
  const std::string classes = content("run/classes.csv"), confusion = content("run/confusion.csv");
  long long counts[4] = {};
  ASSERT_EQ(std::sscanf(confusion.c_str(), "actual,predicted_0,predicted_1\n0,%lld,%lld\n1,%lld,%lld\n", counts, counts + 1, counts + 2,
                        counts + 3),
            4)
      << confusion;
  EXPECT_EQ(counts[0] + counts[1] + counts[2] + counts[3], 12 * 4 * 8 * 8);
  EXPECT_NEAR(100.0 * static_cast<double>(counts[0] + counts[3]) / (12 * 4 * 8 * 8), accuracy, 0.006);
  EXPECT_NEAR(2.0 * static_cast<double>(counts[3]) / static_cast<double>(2 * counts[3] + counts[1] + counts[2]), dice, 6e-5);
  EXPECT_TRUE(classes.starts_with(
      concat("class,actual,predicted,correct,dice,iou\n0,", counts[0] + counts[1], ',', counts[0] + counts[2], ',', counts[0], ",0.")))
      << classes;
  const std::string report = content("run/report.html");
  for (const char* const text : {"Dice and IoU of the validation", "Classes of the last validation", "taken for 1"})
    EXPECT_NE(report.find(text), std::string::npos) << text;

  const Outcome infer = run(
      {"infer", "run/checkpoints/last.safetensors", "--input", "volumes/test/inputs.npy", "--ref", "volumes/test/targets.npy", "--json"});
  ASSERT_EQ(infer.code, 0) << infer;
  const Json said = Json::parse(infer.output)["classes"];
  EXPECT_NEAR(said["dice"], dice, 6e-5);
  EXPECT_NEAR(said["iou"], iou, 6e-5);
  EXPECT_EQ(said["class_dice"][1], said["dice"]);
  EXPECT_EQ(said["confusion"], (Json{{counts[0], counts[1]}, {counts[2], counts[3]}}));
  const Outcome text =
      run({"infer", "run/checkpoints/last.safetensors", "--input", "volumes/test/inputs.npy", "--ref", "volumes/test/targets.npy"});
  EXPECT_NE(text.errors.find(concat("; accuracy ", found[1], " %  Dice ", found[2], "  IoU ", found[3], '\n')), std::string::npos) << text;
}

TEST_F(Segmentation, AnInterruptedRunEndsWithTheSameScores) {
  const Outcome whole = train(3, {"--run-dir", "whole", "--json"});
  ASSERT_EQ(whole.code, 0) << whole;
  ASSERT_EQ(train(1, {"--run-dir", "parts", "--json"}).code, 0);
  const Outcome rest = train(3, {"--run-dir", "parts", "--resume", "auto", "--json"});
  ASSERT_EQ(rest.code, 0) << rest;
  const Json a = Json::parse(whole.output), b = Json::parse(rest.output);
  for (const char* const key : {"loss", "accuracy", "dice", "iou"}) EXPECT_EQ(a[key], b[key]) << key;
  const Outcome ended = train(3, {"--run-dir", "parts", "--resume", "auto", "--json"});  // nothing is left to be done
  ASSERT_EQ(ended.code, 0) << ended;
  EXPECT_EQ(Json::parse(ended.output)["dice"], a["dice"]);
}

TEST_F(Segmentation, TargetsAreWholeNumbersOfClasses) {
  const auto refused = [&](const Tensor& targets, const std::string& message) {
    fs::create_directories(path("bad"));
    write_npy(path("bad/inputs.npy"), Tensor::zeros({2, 1, 2, 4, 4}));
    write_npy(path("bad/targets.npy"), targets);
    const Outcome outcome = train(1, {"--run-dir", "none"}, "bad");
    EXPECT_EQ(outcome.code, 3) << outcome;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << outcome;
  };
  refused(Tensor::full({2, 2, 4, 4}, 0.5), "bad: the targets are classes, expected whole numbers, got 0.5");
  refused(Tensor::full({2, 2, 4, 4}, 2, DType::i64),
          "bad: cross_entropy: input \"target\" has 2 at element 0, expected an index in [0, 2)");
  refused(Tensor::zeros({2, 1, 2, 4, 4}, DType::i64), "bad: the targets of a batch have shape 2x1x2x4x4, the model needs 2x2x4x4");
  refused(Tensor::zeros({2}, DType::i64), "bad: the targets of a batch have shape 2, the model needs 2x2x4x4");
}

TEST_F(Segmentation, FloatsThatAreWholeNumbersAreClasses) {
  write_npy(path("volumes/train/targets.npy"), read_npy(path("volumes/train/targets.npy")).to(DType::f32));
  const Outcome outcome = train(1, {"--run-dir", "none"});
  EXPECT_EQ(outcome.code, 0) << outcome;
}

/// Places of 255 are of no class: every third of each volume, and all of some batches, more than there are otherwise to measure on.
TEST_F(Segmentation, LeavesOutPlacesOfAnIgnoredNumber) {
  for (const char* const part : {"volumes/train", "volumes/test"}) {
    const Tensor targets = read_npy(path(std::string(part) + "/targets.npy"));
    for (std::int64_t i = 0; i < targets.elements(); i += 3) targets.data<std::uint8_t>()[i] = 255;
    targets.slice(0, 0, part == std::string("volumes/train") ? 4 : 7).fill(255);
    write_npy(path(std::string(part) + "/targets.npy"), targets);
  }
  const Outcome refused = train(1, {"--run-dir", "none"});
  EXPECT_EQ(refused.code, 3) << refused;
  EXPECT_NE(refused.errors.find("input \"target\" has 255 at element"), std::string::npos) << refused;
  const Outcome outcome = run({"train", "unet3d", "--model-config", config, "--data", "volumes", "--batch-size", "1", "--lr", "0.02",
                               "--epochs", "30", "--run-dir", "run", "--ignore-index", "255", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  const Json measured = Json::parse(outcome.output);

  // Its loss is that of one pass over all volumes.
  const Tensor targets = read_npy(path("volumes/test/targets.npy")).to(DType::i64);
  Predictor predict(path("run/checkpoints/last.safetensors"), {.device = Device::cpu()});
  Graph graph;
  graph.output("loss", cross_entropy(graph.constant(predict(read_npy(path("volumes/test/inputs.npy")))), graph.constant(targets),
                                     {.ignore_index = 255}));
  Program loss(graph, std::make_shared<State>());
  EXPECT_NEAR(measured["loss"], loss.run({}).output("loss").item(), 1e-6);

  const std::vector<std::string> infer = {"infer", "run/checkpoints/last.safetensors", "--input", "volumes/test/inputs.npy",
                                          "--ref", "volumes/test/targets.npy"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), infer.begin(), infer.end());
    return run(more);
  };
  const Outcome counted = with({"--json", "--ignore-index", "255"});
  ASSERT_EQ(counted.code, 0) << counted;
  const Json said = Json::parse(counted.output)["classes"];
  EXPECT_GT(said["dice"], 0.65) << "of eight small volumes of noise";
  std::int64_t total = 0;
  for (const Json& row : said["confusion"]) total += row[0].get<std::int64_t>() + row[1].get<std::int64_t>();
  const std::vector<double> classes = targets.to_vector<double>();
  EXPECT_EQ(total, std::ssize(classes) - std::count(classes.begin(), classes.end(), 255.0));
  const double right = said["confusion"][0][0].get<double>() + said["confusion"][1][1].get<double>();
  EXPECT_NEAR(said["accuracy"], right / static_cast<double>(total), 1e-12);
  EXPECT_NEAR(measured["accuracy"], said["accuracy"], 1e-12);

  const std::vector<std::tuple<Outcome, int, std::string>> refusals = {
      {with({}), 3, "volumes/test/targets.npy: targets: expected classes in [0, 2), got 255 at element 0"},
      {with({"--ignore-index", "many"}), 2, "--ignore-index: expected an integer from "},
      {run({"infer", "model.safetensors", "--input", "x.npy", "--output", "y.npy", "--ignore-index", "1"}), 2,
       "--ignore-index is of the classes in --ref, which is not given"},
      {run({"train", "classifier", "--data", "volumes", "--ignore-index", "1"}), 2,
       "--ignore-index goes with segmentations, whose masks may leave places out; classifier is none"},
  };
  for (const auto& [result, code, message] : refusals) {
    EXPECT_EQ(result.code, code) << result;
    EXPECT_NE(result.errors.find(message), std::string::npos) << message << result;
  }
}

TEST_F(Segmentation, IsInferredInWindows) {
  ASSERT_EQ(train(1, {"--run-dir", "none", "--save", "model.safetensors"}).code, 0);
  const auto infer = [&](const std::string& output, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"infer", "model.safetensors", "--input", "volumes/test/inputs.npy", "--output", output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const auto values = [&](const char* file) { return read_npy(path(file)).to_vector<float>(); };
  ASSERT_EQ(infer("whole.npy", {"--batch-size", "3"}).code, 0);
  const Outcome one = infer("one.npy", {"--window", "4,8,8", "--batch-size", "3"});
  ASSERT_EQ(one.code, 0) << one;
  EXPECT_EQ(values("one.npy"), values("whole.npy")) << "one window is the whole";
  for (const char* const at_a_time : {"1", "5"}) {
    const Outcome outcome = infer("blended.npy", {"--window", "4,4,6", "--overlap", "0.25", "--batch-size", at_a_time, "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome;
    // On the 8 places of an axis 3 windows of 4 or 2 of 6, of each of 12 examples.
    EXPECT_EQ(Json::parse(outcome.output)["batches"], at_a_time == std::string("1") ? 72 : 15) << outcome;
    EXPECT_EQ(read_npy(path("blended.npy")).shape(), (Shape{12, 2, 4, 8, 8}));
  }
  Predictor predict(path("model.safetensors"), {.device = Device::cpu()});
  const Tensor expected =
      predict_by_windows(predict, read_npy(path("volumes/test/inputs.npy")), {.window = {4, 4, 6}, .overlap = 0.25, .batch_size = 5});
  EXPECT_EQ(values("blended.npy"), expected.to_vector<float>());
  EXPECT_EQ(infer("y.npy", {"--window", "6,10,10", "--ref", "volumes/test/targets.npy"}).code, 0) << "larger than the images";

  const std::vector<std::tuple<std::vector<std::string>, int, std::string>> refused = {
      {{"--window", "4,4"}, 2, "--window 4x4: an image of unet3d has 3 axes"},
      {{"--window", "4,0,4"}, 2, "--window: expected sizes from 1 on, got 4x0x4"},
      {{"--window", "4,4,4", "--overlap", "1"}, 2, "--overlap: expected a number from 0 to 0.95, got \"1\""},
      {{"--overlap", "0.5"}, 2, "--overlap goes with --window"},
      {{"--window", "4,4,3"}, 3, "volumes/test/inputs.npy: input of model \"unet3d\": "},
  };
  for (const auto& [more, code, message] : refused) {
    const Outcome outcome = infer("n.npy", more);
    EXPECT_EQ(outcome.code, code) << message << outcome;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << message << outcome;
  }
  EXPECT_FALSE(fs::exists(path("n.npy")));
}

TEST_F(Segmentation, ComparesVolumesWithVolumes) {
  FRIT_SKIP_WITHOUT("libnifti2");
  ASSERT_EQ(train(20, {"--run-dir", "none", "--save", "model.safetensors"}).code, 0);
  for (const char* const name : {"in", "masks"}) fs::create_directory(path(name));
  std::string inputs = content("volumes/test/inputs.npy"), targets = content("volumes/test/targets.npy");
  for (int i = 0; i < 2; ++i) {  // of the arrays' 4 x 8 x 8 values
    const std::size_t end = static_cast<std::size_t>(i) * 256;
    write(concat("in/", i, ".nii"), nifti_file({.dim = {8, 8, 4}}, inputs.substr(inputs.size() - 4 * (end + 256), 1024)));
    write(concat("masks/", i, ".nii.gz"),
          gzipped(nifti_file({.dim = {8, 8, 4}, .type = 2, .bits = 8}, targets.substr(targets.size() - end - 256, 256))));
  }
  const Outcome all = run({"infer", "model.safetensors", "--input", "in", "--ref", "masks", "--window", "4,6,6", "--json"});
  ASSERT_EQ(all.code, 0) << all;
  EXPECT_GT(Json::parse(all.output)["classes"]["dice"], 0.7) << all;
  const Outcome other = run({"infer", "model.safetensors", "--input", "in/1.nii", "--ref", "masks/0.nii.gz", "--json"});
  ASSERT_EQ(other.code, 0) << other;
  EXPECT_LT(Json::parse(other.output)["classes"]["dice"], 0.6) << "that is another's mask";
}

class Masks : public ProgramTest {
 protected:
  /// Grey images of noise; what is bright is of class 1.
  void SetUp() override {
    FRIT_SKIP_WITHOUT("libpng");
    for (const char* const part : {"train", "test"}) {
      const std::string pictures = std::string("pictures/") + part;
      for (const char* const name : {"/images", "/masks"}) fs::create_directories(path(pictures + name));
      for (std::uint64_t i = 0; i < 12; ++i) {
        const Tensor image = Tensor::empty({1, 16, 16}), mask = Tensor::zeros({1, 16, 16});
        fill_uniform(image, 0, 1, part == std::string("train") ? 1 : 2, i);
        for (std::int64_t k = 0; k < 256; ++k) mask.data<float>()[k] = image.data<float>()[k] > 0.5F ? 1 / 255.0F : 0;
        write_png(path(concat(pictures, "/images/", i, ".png")), image);
        write_png(path(concat(pictures, "/masks/", i, ".png")), mask);
      }
    }
  }

  Outcome segmenter(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin() + 1, arguments[0] == "train" ? "segmenter" : "model.safetensors");
    return run_program({.arguments = std::move(arguments), .directory = folder, .program = FRIT_SEGMENTER});
  }
};

TEST_F(Masks, AreLearntFromAFolderAndComparedWithAFolder) {
  const Outcome learnt =
      segmenter({"train", "--data", "pictures", "--batch-size", "4",         "--lr", "0.03",   "--epochs",          "20",    "--flip", "hw",
                 "--pad", "2",      "--crop",   "12,14",        "--run-dir", "none", "--save", "model.safetensors", "--json"});
  ASSERT_EQ(learnt.code, 0) << learnt;
  EXPECT_GT(Json::parse(learnt.output)["dice"], 0.93) << learnt;
  for (const char* const window : {"16,16", "8,10", "20,8"}) {
    const Outcome outcome =
        segmenter({"infer", "--input", "pictures/test/images", "--ref", "pictures/test/masks", "--window", window, "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome;
    const Json said = Json::parse(outcome.output)["classes"];
    EXPECT_GT(said["dice"], 0.93) << window;
    EXPECT_GT(said["iou"], 0.87) << window;
    EXPECT_EQ(said["confusion"].size(), 2u);
  }
  write_png(path("pictures/test/masks/3.png"), Tensor::full({1, 16, 16}, 7 / 255.0F));
  const Outcome other = segmenter({"infer", "--input", "pictures/test/images", "--ref", "pictures/test/masks"});
  EXPECT_EQ(other.code, 3) << other;
  EXPECT_NE(other.errors.find("pictures/test/masks/3.png: targets: expected classes in [0, 2), got 7 at element 0"), std::string::npos)
      << other;
  fs::remove(path("pictures/test/masks/3.png"));
  const Outcome missing = segmenter({"infer", "--input", "pictures/test/images", "--ref", "pictures/test/masks"});
  EXPECT_EQ(missing.code, 4) << missing;
  EXPECT_NE(missing.errors.find("pictures/test/masks/3.npy: no such file"), std::string::npos) << missing;
}

class Classes : public ProgramTest {
 protected:
  Outcome infer(const std::string& reference) const {
    return run({"infer", "classifier", "--model-config", R"({"image_size": [8, 8], "num_classes": 7, "out_channels": 4, "num_groups": 2})",
                "--input", "images.npy", "--ref", reference, "--json"});
  }
};

TEST_F(Classes, AreCountedByInferToo) {
  write_npy(path("images.npy"), random_tensor({20, 1, 8, 8}));
  write_npy(path("classes.npy"), Tensor::from(std::vector<std::int64_t>(20, 3), {20}));
  const Outcome outcome = infer("classes.npy");
  ASSERT_EQ(outcome.code, 0) << outcome;
  const Json said = Json::parse(outcome.output)["classes"];
  std::int64_t row = 0;
  for (const Json& count : said["confusion"][3]) row += count.get<std::int64_t>();
  EXPECT_EQ(row, 20);
  EXPECT_EQ(said["accuracy"], said["confusion"][3][3].get<double>() / 20);
  EXPECT_GE(said["top5"], said["accuracy"]);
  EXPECT_EQ(said.count("dice"), 0u) << "is of segmentations";
  EXPECT_EQ(Json::parse(outcome.output).count("reference"), 0u);
  for (const auto& [classes, message] :
       {std::pair(Tensor::from(std::vector<std::int64_t>(20, 7), {20}),
                  "other.npy: targets: expected classes in [0, 7), got 7 at element 0"),
        std::pair(Tensor::zeros({19}, DType::i64), "other.npy: targets: expected 20 for logits 20x7, got 19")}) {
    write_npy(path("other.npy"), classes);
    const Outcome refused = infer("other.npy");
    EXPECT_EQ(refused.code, 3) << refused;
    EXPECT_NE(refused.errors.find(message), std::string::npos) << refused;
  }
}

}  // namespace
}  // namespace frit
