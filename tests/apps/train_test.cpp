// `frit train`: what it learns, prints and saves, the same for any number of threads, and how it ends early.

#include <map>
#include <nlohmann/json.hpp>
#include <regex>

#include "apps/fixtures.h"
#include "apps/program.h"
#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/data/files.h"
#include "frit/core/data/loader.h"
#include "frit/core/io/png.h"

namespace frit {
namespace {

class Train : public ProgramTest {
 protected:
  Train() {
    QuarterImages(200, /*seed=*/1).write(path("quarters"), "train");
    QuarterImages(60, /*seed=*/2).write(path("quarters"), "t10k");
  }

  /// Without a folder of the run, unless `more` names one.
  static std::vector<std::string> classifier(std::vector<std::string> more) {
    if (std::find(more.begin(), more.end(), "--run-dir") == more.end()) more.insert(more.begin(), {"--run-dir", "none"});
    more.insert(more.begin(),
                {"train", "classifier", "--model-config", tiny_classifier, "--data", "quarters", "--batch-size", "32", "--lr", "0.01"});
    return more;
  }

  static double number_after(const std::string& text, const std::string& label) {
    const std::size_t place = text.rfind(label);
    return place == std::string::npos ? -1 : std::stod(text.substr(place + label.size()));
  }
};

TEST_F(Train, LearnsClassesFromIdxFiles) {
  write("model.safetensors.tmp.99999999", "left by a process that was killed");
  const Outcome outcome = run(classifier({"--epochs", "15", "--save", "model.safetensors"}));
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_GT(number_after(outcome.output, "test accuracy "), 95) << outcome;
  EXPECT_TRUE(std::regex_search(outcome.output, std::regex("^test loss [0-9.]+\ntest accuracy [0-9.]+ %\n$"))) << outcome;
  EXPECT_NE(outcome.errors.find("epoch 15/15  loss "), std::string::npos) << outcome;
  EXPECT_EQ(outcome.errors.find('\x1b'), std::string::npos) << "a bar was drawn where there is no terminal";

  const TensorFile checkpoint = read_safetensors(path("model.safetensors"));
  EXPECT_EQ(model_of(checkpoint).name, "classifier");
  EXPECT_EQ(model_of(checkpoint).image_size, (Dims{8, 8}));
  EXPECT_EQ(checkpoint.at("linear.weight").shape(), (Shape{4, 36}));
  EXPECT_EQ(files(), (std::vector<std::string>{"model.safetensors", "quarters"}));
}

TEST_F(Train, CheckpointInfersWhatItLearnt) {
  ASSERT_EQ(run(classifier({"--epochs", "15", "--save", "model.safetensors"})).code, 0);
  const QuarterImages unseen(50, /*seed=*/3);
  const Tensor images = Tensor::empty({50, 1, 8, 8});
  for (std::int64_t i = 0; i < images.elements(); ++i) {
    images.data<float>()[i] = static_cast<float>(static_cast<unsigned char>(unseen.images[16 + static_cast<std::size_t>(i)])) / 255.0f;
  }
  write("images.npy", serialize_npy(images));
  for (const char* const batch_size : {"50", "7"}) {
    const std::string output = std::string("logits") + batch_size + ".npy";
    const Outcome outcome = run({"infer", "model.safetensors", "--input", "images.npy", "--output", output, "--batch-size", batch_size});
    ASSERT_EQ(outcome.code, 0) << outcome;
  }
  const std::vector<float> logits = read_npy(path("logits50.npy")).to_vector<float>(),
                           in_parts = read_npy(path("logits7.npy")).to_vector<float>();
  ASSERT_EQ(in_parts.size(), logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(in_parts[i], logits[i], 1e-5);
  int correct = 0;
  for (std::size_t n = 0; n < 50; ++n) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(4 * n);
    correct += std::max_element(row, row + 4) - row == unseen.labels[8 + n];
  }
  EXPECT_GE(correct, 47);
}

/// Images of `images` as PNG files in a folder a class.
void write_as_png(const QuarterImages& images, const std::string& folder) {
  for (char quarter = 0; quarter < 4; ++quarter)
    std::filesystem::create_directories(folder + "/quarter" + static_cast<char>('0' + quarter));
  for (std::size_t n = 0; n < images.labels.size() - 8; ++n) {
    const Tensor image = Tensor::empty({1, 8, 8});
    for (std::size_t i = 0; i < 64; ++i) {
      image.data<float>()[i] = static_cast<float>(static_cast<unsigned char>(images.images[16 + 64 * n + i])) / 255.0f;
    }
    write_png(concat(folder, "/quarter", static_cast<int>(images.labels[8 + n]), '/', n, ".png"), image);
  }
}

TEST_F(Train, LearnsFromFoldersOfImages) {
  FRIT_SKIP_WITHOUT("libpng");
  write_as_png(QuarterImages(200, /*seed=*/1), path("images/train"));
  write_as_png(QuarterImages(60, /*seed=*/2), path("images/test"));
  std::vector<std::string> arguments =
      classifier({"--epochs", "15", "--normalize", "mean-std", "--pad", "1", "--crop", "8,8", "--save", "a.safetensors"});
  std::replace(arguments.begin(), arguments.end(), std::string("quarters"), std::string("images"));
  const Outcome outcome = run(arguments);
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_GT(number_after(outcome.output, "test accuracy "), 90) << outcome;

  // What is random is the same for any number of threads.
  arguments.back() = "b.safetensors";
  arguments.insert(arguments.end(), {"--threads", "1"});
  ASSERT_EQ(run(arguments).code, 0);
  EXPECT_EQ(content("a.safetensors"), content("b.safetensors"));

  // The checkpoint's model begins with the normalisation: images go in as they were in training.
  const TensorFile checkpoint = read_safetensors(path("a.safetensors"));
  EXPECT_NE(checkpoint.metadata().find("normalization"), checkpoint.metadata().end());
  const std::shared_ptr<Dataset> unseen = read_dataset(path("images"), Split::test);
  for (const Batch& all : DataLoader(unseen, {.batch_size = unseen->size()})) {
    write("images.npy", serialize_npy(all["input"]));
    ASSERT_EQ(run({"infer", "a.safetensors", "--input", "images.npy", "--output", "logits.npy"}).code, 0);
    const std::vector<float> logits = read_npy(path("logits.npy")).to_vector<float>();
    std::int64_t right = 0;
    for (std::int64_t n = 0; n < all.size(); ++n) {
      const auto row = logits.begin() + 4 * n;
      right += std::max_element(row, row + 4) - row == all["target"].data<std::int64_t>()[n];
    }
    EXPECT_GT(right, 54) << "of 60";
  }
}

TEST_F(Train, LearnsFromPatchesOfVolumes) {
  FRIT_SKIP_WITHOUT("libnifti2");
  std::filesystem::create_directory(path("volumes"));
  std::vector<float> voxels(12 * 12 * 12);
  for (std::size_t i = 0; i < voxels.size(); ++i) voxels[i] = static_cast<float>(i % 7);
  const std::string volume = nifti_file({.dim = {12, 12, 12}}, bytes_of(voxels));
  write("volumes/inputs.nii.gz", gzipped(volume));
  write("volumes/targets.nii", volume);
  const Outcome outcome =
      run({"train", "conv3d-instnorm-max", "--model-config", R"({"in_channels": 1, "padding": 1})", "--data", "volumes", "--patch", "6,6,6",
           "--patches", "40", "--batch-size", "4", "--epochs", "3", "--normalize", "min-max", "--flip", "dhw"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(outcome.errors.find(" 40 examples"), std::string::npos) << outcome;
}

TEST_F(Train, SameSeedGivesTheSameBitsOnAnyNumberOfThreads) {
  for (const char* const threads : {"1", "2", "3"}) {
    const Outcome outcome = run(classifier({"--epochs", "2", "--threads", threads, "--save", std::string(threads) + ".safetensors"}));
    ASSERT_EQ(outcome.code, 0) << outcome;
  }
  ASSERT_EQ(run(classifier({"--epochs", "2", "--seed", "1", "--save", "other.safetensors"})).code, 0);
  EXPECT_EQ(content("1.safetensors"), content("2.safetensors"));
  EXPECT_EQ(content("1.safetensors"), content("3.safetensors"));
  EXPECT_NE(content("1.safetensors"), content("other.safetensors"));
}

TEST_F(Train, EveryOptimizerLowersTheLossOfARegression) {
  const Tensor input = random_tensor({24, 3, 8, 8});
  std::filesystem::create_directory(path("pairs"));
  write("pairs/inputs.npy", serialize_npy(input));
  write("pairs/targets.npy", serialize_npy(Tensor::full({24, 4, 3, 3}, 0.25)));
  for (const std::vector<std::string>& optimizer : std::vector<std::vector<std::string>>{
           {"sgd", "--momentum", "0.9", "--weight-decay", "1e-4"}, {"adam", "--clip-norm", "1"}, {"adamw", "--dtype", "f64"}}) {
    std::vector<std::string> arguments = {"train",          "conv2d-groupnorm-pool",
                                          "--model-config", tiny_model().config,
                                          "--data",         "pairs",
                                          "--batch-size",   "10",
                                          "--lr",           "0.02",
                                          "--epochs",       "8",
                                          "--run-dir",      "none",
                                          "--optimizer"};
    arguments.insert(arguments.end(), optimizer.begin(), optimizer.end());
    const Outcome outcome = run(arguments);
    ASSERT_EQ(outcome.code, 0) << outcome;
    const double first = std::stod(outcome.errors.substr(outcome.errors.find("epoch 1/8  loss ") + 16));
    EXPECT_LT(number_after(outcome.output, "training loss "), 0.9 * first) << optimizer[0] << outcome;
    EXPECT_EQ(outcome.output.find("accuracy"), std::string::npos);
  }
}

TEST_F(Train, LearnsInMixedPrecision) {
  for (const char* const precision : {"f16", "bf16"}) {
    const Outcome outcome =
        run(classifier({"--epochs", "15", "--clip-norm", "10", "--precision", precision, "--save", "model.safetensors"}));
    ASSERT_EQ(outcome.code, 0) << outcome;
    EXPECT_GT(number_after(outcome.output, "test accuracy "), 95) << outcome;
    const TensorFile checkpoint = read_safetensors(path("model.safetensors"));
    EXPECT_EQ(checkpoint.at("linear.weight").dtype(), DType::f32) << "a checkpoint has the parameters as they are updated";
  }
  const Outcome refused = run(classifier({"--precision", "f16", "--dtype", "f64"}));
  EXPECT_EQ(refused.code, 2) << refused;
}

TEST_F(Train, MeasuresOnAValidationSet) {
  const Outcome outcome = run(classifier({"--epochs", "1", "--validation", "quarters", "--quiet"}));
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_EQ(outcome.output.substr(0, 15), "validation loss") << outcome;
  EXPECT_EQ(outcome.errors, "");
}

TEST_F(Train, EndsAtTheNextStepWhenInterrupted) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Process process({.arguments = classifier({"--epochs", "1000000", "--save", "model.safetensors"}), .directory = folder});
    ASSERT_TRUE(process.wait_for_error_text("epoch 2/")) << process.finish();
    process.send(signal);
    const Outcome outcome = process.finish();
    EXPECT_EQ(outcome.code, 128 + signal) << outcome;
    EXPECT_NE(outcome.errors.find(signal == SIGINT ? "interrupted by SIGINT after step " : "interrupted by SIGTERM after step "),
              std::string::npos);
    EXPECT_NE(outcome.errors.find("saved model.safetensors"), std::string::npos);
    EXPECT_EQ(outcome.output, "");
    EXPECT_EQ(model_of(read_safetensors(path("model.safetensors"))).name, "classifier");
    EXPECT_EQ(files(), (std::vector<std::string>{"model.safetensors", "quarters"})) << "a temporary file was left";
  }
}

TEST_F(Train, ASecondSignalEndsItAtOnce) {
  Process process({.arguments = classifier({"--epochs", "1000000"}), .directory = folder});
  ASSERT_TRUE(process.wait_for_error_text("epoch 1/")) << process.finish();
  process.send(SIGINT);
  process.send(SIGTERM);
  const Outcome outcome = process.finish();
  EXPECT_TRUE(outcome.code == 130 || outcome.code == 143) << outcome;
}

TEST_F(Train, WithoutATestSplitTheErrorSaysWhichFileIsMissing) {
  std::filesystem::remove(path("quarters/t10k-labels-idx1-ubyte"));
  const Outcome outcome = run(classifier({}));
  EXPECT_EQ(outcome.code, 4) << outcome;
  EXPECT_NE(outcome.errors.find("t10k-labels-idx1-ubyte"), std::string::npos) << outcome;
}

TEST_F(Train, ARunsFolderShowsWhatHappened) {
  const Outcome outcome = run(classifier({"--epochs", "3", "--run-dir", "run", "--save", "watched.safetensors"}));
  ASSERT_EQ(outcome.code, 0) << outcome;
  const std::string steps = content("run/steps.csv"), epochs = content("run/epochs.csv"), report = content("run/report.html");
  EXPECT_EQ(std::count(steps.begin(), steps.end(), '\n'), 1 + 3 * 7) << "200 examples are 7 batches of 32\n" << steps;
  EXPECT_EQ(std::count(epochs.begin(), epochs.end(), '\n'), 1 + 3) << epochs;
  EXPECT_TRUE(std::regex_search(steps, std::regex("\n21,3,[0-9.]+,[0-9.e-]+,0.01,[0-9.e-]+,"))) << steps;
  for (const char* const part : {"Training of classifier", "200 examples", ">Loss<", ">Accuracy, %<", ">Norm of the gradients<",
                                 "Where the time of a step goes", "conv2d_weight_gradient", "Memory over a step", "</html>"}) {
    EXPECT_NE(report.find(part), std::string::npos) << part;
  }
  int event_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path("run"))) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      ++event_files;
      EXPECT_GT(entry.file_size(), 1000u);
    }
  }
  EXPECT_EQ(event_files, 1);
  ASSERT_EQ(run(classifier({"--epochs", "3", "--save", "alone.safetensors"})).code, 0);
  EXPECT_EQ(content("watched.safetensors"), content("alone.safetensors")) << "watching changes nothing";
}

TEST_F(Train, ARunThatGoesOnContinuesItsRecord) {
  ASSERT_EQ(run(classifier({"--epochs", "4", "--run-dir", "whole"})).code, 0);
  ASSERT_EQ(run(classifier({"--epochs", "2", "--run-dir", "parts"})).code, 0);
  write("parts/steps.csv", content("parts/steps.csv") + "99,9,1,1,1,1,1\n100,9,0.");  // of later steps, and cut by a kill
  const Outcome outcome = run(classifier({"--epochs", "4", "--run-dir", "parts", "--resume", "auto"}));
  ASSERT_EQ(outcome.code, 0) << outcome;
  // Times differ.
  const auto losses = [&](const std::string& file) {
    return std::regex_replace(content(file), std::regex("(\n[0-9]+,[0-9]+),[0-9.e-]+(,[^,]*,[^,]*,[^,]*),[^\n]*"), "$1$2");
  };
  EXPECT_EQ(losses("parts/steps.csv"), losses("whole/steps.csv"));
  const std::string epochs = content("parts/epochs.csv");
  EXPECT_EQ(std::count(epochs.begin(), epochs.end(), '\n'), 1 + 4) << epochs;
  EXPECT_EQ(run(classifier({"--epochs", "5", "--run-dir", "parts", "--resume", "auto", "--seed", "7"})).code, 2);
  EXPECT_NE(content("parts/report.html").find(">Loss<"), std::string::npos) << "a run that did not begin leaves what was there";
}

TEST_F(Train, WritesATraceOfItsFirstSteps) {
  const Outcome outcome = run(classifier({"--epochs", "3", "--profile", "trace.json", "--save", "traced.safetensors"}));
  ASSERT_EQ(outcome.code, 0) << outcome;
  const nlohmann::json trace = nlohmann::json::parse(content("trace.json"));
  std::map<std::string, int> events;
  for (const nlohmann::json& event : trace["traceEvents"]) ++events[event["name"].get<std::string>()];
  EXPECT_GT(events["conv2d"], 0);
  EXPECT_GT(events["adam_update"], events["conv2d"]);
  EXPECT_GT(events["memory in use"], 0);
  EXPECT_GT(events["wait for a batch"], 0);
  ASSERT_EQ(run(classifier({"--epochs", "3", "--save", "alone.safetensors"})).code, 0);
  EXPECT_EQ(content("traced.safetensors"), content("alone.safetensors"));
  EXPECT_EQ(run(classifier({"--profile", "nowhere/trace.json"})).code, 4);
}

TEST_F(Train, OverfitsOneBatch) {
  const Outcome outcome = run(classifier({"--epochs", "20", "--overfit-one-batch"}));
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_LT(number_after(outcome.output, "training loss "), 0.05) << outcome;
  EXPECT_EQ(outcome.errors.find("validation"), std::string::npos) << outcome;
}

TEST_F(Train, LearnsByEverySchedule) {
  for (const char* const schedule : {"constant", "step", "cosine", "one-cycle", "plateau"}) {
    const Outcome outcome =
        run(classifier({"--epochs", "20", "--lr-schedule", schedule, "--lr-step", "8", "--warm-up", "5", "--accumulate", "2"}));
    ASSERT_EQ(outcome.code, 0) << outcome;
    EXPECT_GT(number_after(outcome.output, "test accuracy "), 80) << schedule << outcome;
  }
}

TEST_F(Train, ADryRunSaysWhatTrainingTakes) {
  const std::vector<std::string> before = files();
  const Outcome outcome = run(classifier({"--dry-run", "--run-dir", "run", "--optimizer", "adam"}));
  ASSERT_EQ(outcome.code, 0) << outcome;
  for (const char* const line : {"parameters +[0-9.]+ [KM]?i?B +200 in 7 tensors", "optimizer +1.6 KiB +adam",
                                 "activations and gradients +[0-9]", "validation +[0-9]", "batches .* 3 of 32 examples",
                                 "total .* available on cpu", "largest batch that fits: 200, which is all examples"}) {
    EXPECT_TRUE(std::regex_search(outcome.output, std::regex(line))) << line << outcome;
  }
  EXPECT_EQ(files(), before);
  const auto activations = [&](const char* batch_size) {
    const Outcome planned = run({"train", "conv2d-groupnorm-pool", "--data", "large.safetensors", "--batch-size", batch_size, "--dry-run"});
    EXPECT_EQ(planned.code, 0) << planned;
    return number_after(planned.output, "activations and gradients ");
  };
  write("large.safetensors", serialize_safetensors({{"input", random_tensor({64, 8, 16, 16})}, {"target", random_tensor({64, 64, 3, 3})}}));
  EXPECT_GT(activations("64"), 2 * activations("16"));
}

TEST_F(Train, NamesParametersThatCannotLearn) {
  const std::vector<std::string> model = {"conv3d-instnorm-max", "--model-config",
                                          R"({"in_channels": 1, "out_channels": 2, "kernel_size": 2})"};
  std::vector<std::string> lint = {"graph", "--lint"}, learn = {"train", "--data", "data.safetensors", "--epochs", "1"};
  lint.insert(lint.end(), model.begin(), model.end());
  learn.insert(learn.end(), model.begin(), model.end());
  const Outcome listed = run(lint);
  EXPECT_EQ(listed.code, 0) << listed;
  EXPECT_TRUE(
      std::regex_search(listed.output, std::regex("^conv.bias cannot learn: what it adds, instance_norm \\(%[0-9]+\\) takes away again\n"
                                                  "to leave them out of training: --freeze conv.bias\n$")))
      << listed;
  EXPECT_EQ(run({"graph", "classifier", "--lint"}).output, "every parameter can learn\n");
  EXPECT_EQ(run({"graph", "classifier", "--lint", "--json"}).output, "[]\n");
  write("data.safetensors", serialize_safetensors({{"input", random_tensor({8, 1, 4, 4, 4})}, {"target", random_tensor({8, 3, 3, 3})}}));
  const Outcome noted = run(learn);
  EXPECT_NE(noted.errors.find("note: to leave them out of training: --freeze conv.bias"), std::string::npos) << noted;
  learn.insert(learn.end(), {"--freeze", "conv.bias"});
  const Outcome frozen = run(learn);
  EXPECT_EQ(frozen.code, 0) << frozen;
  EXPECT_EQ(frozen.errors.find("note:"), std::string::npos) << frozen;
}

}  // namespace
}  // namespace frit
