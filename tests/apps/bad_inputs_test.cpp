// What the command line is given that it must refuse: the exit code, one line on stderr, and nothing overwritten.

#include <cmath>
#include <limits>
#include <regex>

#include "apps/fixtures.h"
#include "apps/program.h"
#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/io/png.h"
#include "frit/core/io/safetensors_checksums.h"

namespace frit::bad_inputs_test {
namespace {

namespace fs = std::filesystem;

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

/// JSON as good as any, but for its depth.
std::string deep_config(std::size_t depth) { return R"({"in_channels": )" + std::string(depth, '[') + std::string(depth, ']') + '}'; }

/// A folder with good and bad files, and an output file "old.npy" that no failure may touch.
class BadInputs : public ProgramTest {
 protected:
  BadInputs() {
    write_checkpoints();
    write("input.npy", serialize_npy(random_tensor({2, 3, 8, 8})));
    write("four-channels.npy", serialize_npy(random_tensor({2, 4, 8, 8})));
    write("volume.npy", serialize_npy(random_tensor({1, 3, 4, 5, 5})));
    write("rank3.npy", serialize_npy(random_tensor({3, 8, 8})));
    write("scalar.npy", serialize_npy(random_tensor({})));
    write("below-the-kernel.npy", serialize_npy(random_tensor({1, 3, 2, 9})));
    write("below-the-pool.npy", serialize_npy(random_tensor({1, 3, 3, 9})));
    write("old.npy", "what was there before");
    write("table.csv", "1,2,3\n4,5,6\n");
    write("half.npy", content("input.npy").substr(0, 300));
    write("objects.npy", npy_with_header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"));
    write("code.npy", npy_with_header("{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': (1,), }"));
    write("config.json", R"({"in_channels": 3, "out_channels": 4, "num_groups": 2, "pool_kernel_size": 2})");
    write("bad-config.json", R"({"colour": 3})");
    fs::create_directory(path("pairs"));
    write("pairs/inputs.npy", content("input.npy"));
    write("archive.npy", "PK\x03\x04 and so on, for as long as a header is");
    fs::create_directory(path("folder"));
    fs::create_symlink("input.npy", path("link-to-input.npy"));
    fs::create_hard_link(path("input.npy"), path("hard-link-to-input.npy"));
    fs::create_symlink("elsewhere", path("dangling.npy"));
    write_dataset();
    write_images();
    write_deep_json();
  }

 private:
  void write_deep_json() {
    write("deep.json", deep_config(100'000));
    const auto checkpoint = [&](const char* file, const char* key) {
      Metadata metadata = checkpoint_metadata(tiny_model());
      metadata[key] = deep_config(100'000);
      write(file, serialize_safetensors(tiny_parameters(), metadata));
    };
    checkpoint("deep-config.safetensors", "config");
    checkpoint("deep-normalization.safetensors", "normalization");
  }

  void write_images() {
    for (const char* const name : {"classes/a", "classes/b", "damaged/a", "mixed/a", "volumes"}) fs::create_directories(path(name));
    write("cut.npz", "PK\x03\x04 and no more");
    write("volumes/inputs.nii", std::string(400, '\0'));
    write("volumes/targets.nii", std::string(400, '\0'));
    write("constant.safetensors",
          serialize_safetensors({{"input", Tensor::full({8, 3, 8, 8}, 2)}, {"target", Tensor::zeros({8, 4, 3, 3})}}));
    if (is_missing("libpng")) return;
    for (const char* const name : {"classes/a/1.png", "damaged/a/1.png", "mixed/a/1.png"})
      write_png(path(name), Tensor::full({1, 8, 8}, 0.5));
    write_png(path("mixed/a/2.png"), Tensor::full({1, 9, 9}, 0.5));
    std::string image = content("damaged/a/1.png");
    image[image.size() - 20] = static_cast<char>(image[image.size() - 20] ^ 1);
    write("damaged/a/1.png", image);
  }

  void write_checkpoints() {
    const Metadata metadata = checkpoint_metadata(tiny_model());
    const TensorMap good = tiny_parameters();
    const auto changed = [&](const char* file, const auto& change, Metadata changed_metadata) {
      TensorMap tensors = good;
      change(tensors);
      write(file, serialize_safetensors(tensors, changed_metadata));
    };
    const auto keep = [](TensorMap&) {};
    changed("model.safetensors", keep, metadata);
    changed("nameless.safetensors", keep, {});
    changed("of-another.safetensors", keep, {{"model", "conv3d-instnorm-max"}});
    changed("unknown-model.safetensors", keep, {{"model", "conv9d"}, {"config", "{}"}});
    changed("bad-config.safetensors", keep, {{"model", "conv2d-groupnorm-pool"}, {"config", R"({"in_channels": "many"})"}});
    changed(
        "missing.safetensors", [](TensorMap& t) { t.erase("conv.weight"), t.erase("scale"); }, metadata);
    changed(
        "extra.safetensors", [](TensorMap& t) { t["stranger\x1b[2J"] = Tensor::zeros({1}); }, metadata);
    changed(
        "misshapen.safetensors",
        [](TensorMap& t) {
          t["conv.weight"] = Tensor::zeros({3, 4, 3, 3});
        },
        metadata);
    changed(
        "nan.safetensors",
        [](TensorMap& t) {
          t["scale"] = Tensor::full({4, 1, 1}, nan_value);
        },
        metadata);
    Metadata newer = metadata;
    newer["frit_version"] = "2";
    changed("newer.safetensors", keep, newer);
    write("cut.safetensors", content("model.safetensors").substr(0, 500));
  }

  void write_dataset() {
    write("data.safetensors", serialize_safetensors({{"input", random_tensor({8, 3, 8, 8})}, {"target", random_tensor({8, 4, 3, 3})}}));
    write("wrong-target.safetensors",
          serialize_safetensors({{"input", random_tensor({8, 3, 8, 8})}, {"target", random_tensor({8, 4, 2, 3})}}));
    write("no-target.safetensors", serialize_safetensors({{"input", random_tensor({8, 3, 8, 8})}}));
    write("empty-data.safetensors",
          serialize_safetensors({{"input", random_tensor({0, 3, 8, 8})}, {"target", random_tensor({0, 4, 3, 3})}}));
    const Tensor infinite = Tensor::full({8, 3, 8, 8}, std::numeric_limits<double>::infinity());
    write("infinite.safetensors", serialize_safetensors({{"input", infinite}, {"target", random_tensor({8, 4, 3, 3})}}));
    write("images.safetensors",
          serialize_safetensors({{"input", random_tensor({4, 1, 8, 8})}, {"target", Tensor::from<std::int64_t>({0, 1, 2, 9}, {4})}}));
  }

  static std::string npy_with_header(std::string header) {
    header += std::string(118 - header.size() - 1, ' ') + '\n';
    return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "12345678";
  }
};

struct BadInput {
  const char* name;
  std::vector<std::string> arguments;
  int code;
  const char* message;       ///< a regular expression that stderr holds
  const char* library = "";  ///< that frit may have been built without
};

void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }

std::vector<std::string> infer(const std::string& model, const std::string& input, const std::string& output,
                               std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"infer", model, "--input", input, "--output", output});
  return more;
}

std::vector<std::string> train(std::vector<std::string> more) {
  more.insert(more.begin(), {"train", "conv2d-groupnorm-pool", "--model-config",
                             R"({"in_channels": 3, "out_channels": 4, "num_groups": 2, "pool_kernel_size": 2})"});
  return more;
}

const std::string good = "model.safetensors", input_file = "input.npy", old = "old.npy";

const std::vector<BadInput> refused = {
    // files
    {"MissingCheckpoint", infer("nowhere.safetensors", input_file, old), 4, "nowhere.safetensors.*no such file"},
    {"MissingInput", infer(good, "nowhere.npy", old), 4, "nowhere.npy.*no such file"},
    {"CheckpointIsAFolder", infer("./folder", input_file, old), 4, "folder.*is a directory"},
    {"CutCheckpoint", infer("cut.safetensors", input_file, old), 3, "cut.safetensors.*(header|truncated)"},
    {"DeviceAsInput", infer(good, "/dev/zero", old), 4, "/dev/zero.*not a regular file"},
    // checkpoints
    {"MissingTensors", infer("missing.safetensors", input_file, old), 3, R"(missing: "conv.weight" \(4x3x3x3\), "scale" \(4x1x1\))"},
    {"ExtraTensor", infer("extra.safetensors", input_file, old), 3, R"(unexpected: "stranger\\x1b\[2J")"},
    {"WrongShape", infer("misshapen.safetensors", input_file, old), 3, R"("conv.weight" expected 4x3x3x3, got 3x4x3x3.*permuted)"},
    {"OfAnotherModel", infer("of-another.safetensors", "volume.npy", old), 3,
     R"(of-another.safetensors: .*missing: "multiplier".*file says it is of model "conv3d-instnorm-max")"},
    {"WithoutAModel", infer("nameless.safetensors", input_file, old), 3, "nameless.safetensors.*name no \"model\""},
    {"UnknownModelInCheckpoint", infer("unknown-model.safetensors", input_file, old), 3,
     "unknown-model.safetensors.*unknown model \"conv9d\".*a program's own model is known to programs that add it"},
    {"BadConfigInCheckpoint", infer("bad-config.safetensors", input_file, old), 3, "bad-config.safetensors.*in_channels"},
    {"DeepConfigInCheckpoint", infer("deep-config.safetensors", input_file, old), 3, "deep-config.safetensors: .*nested too deeply"},
    {"DeepNormalization", infer("deep-normalization.safetensors", input_file, old), 3,
     "deep-normalization.safetensors: .*nested too deeply"},
    {"NewerCheckpoint", infer("newer.safetensors", input_file, old), 3, "version: expected 1, got 2"},
    {"NanWeightsStrictly", infer("nan.safetensors", input_file, old, {"--strict"}), 3,
     "\"scale\" has 4 values that are NaN or infinite, the first at 0"},
    // npy
    {"Csv", infer(good, "table.csv", old), 3, "table.csv"},
    {"Archive", infer(good, "archive.npy", old), 3, "archive.npy.*(zip|npz)"},
    {"Objects", infer(good, "objects.npy", old), 3, "objects.npy.*Python objects"},
    {"Code", infer(good, "code.npy", old), 3, "code.npy"},
    {"CutInput", infer(good, "half.npy", old), 3, "half.npy.*1536.*"},
    {"WrongChannels", infer(good, "four-channels.npy", old), 3, R"(four-channels.npy.*expected \[N, 3, H, W\], got \[2, 4, 8, 8\])"},
    {"WrongRank", infer(good, "rank3.npy", old), 3, R"(expected \[N, 3, H, W\], got \[3, 8, 8\])"},
    {"Scalar", infer(good, "scalar.npy", old), 3, R"(expected \[N, 3, H, W\], got \[\])"},
    {"BelowTheKernel", infer(good, "below-the-kernel.npy", old), 3, "below-the-kernel.npy: .*at least 4x4, got 2x9: conv2d: "},
    {"BelowThePool", infer(good, "below-the-pool.npy", old), 3, "below-the-pool.npy: .*at least 4x4, got 3x9: max_pool2d: "},
    // the command line
    {"UnknownCommand", {"trian"}, 2, "unknown command \"trian\".*did you mean \"train\""},
    {"UnknownModel", {"train", "clasifier", "--data", "data.safetensors"}, 2, "unknown model \"clasifier\".*did you mean \"classifier\""},
    {"UnknownModelOfGraph", {"graph", "conv3d-instnorm-mex"}, 2, "did you mean \"conv3d-instnorm-max\""},
    {"UnknownOption", train({"--data", "data.safetensors", "--epoch", "3"}), 2, "unknown option \"--epoch\".*did you mean \"--epochs\""},
    {"UnknownOperator", {"gradcheck", "conv2e"}, 2, "unknown model or operator \"conv2e\".*did you mean \"conv2d\""},
    {"MissingValue", train({"--data"}), 2, "--data"},
    {"MissingOption", {"train", "classifier"}, 2, "--data is required"},
    {"NegativeBatch", train({"--data", "data.safetensors", "--batch-size=-3"}), 2,
     "--batch-size: expected an integer from 1 to .*, got \"-3\""},
    {"EndlessRate", train({"--data", "data.safetensors", "--lr", "1e9999"}), 2, "--lr: expected a number from 0 to .*, got \"1e9999\""},
    {"RateIsNaN", train({"--data", "data.safetensors", "--lr", "nan"}), 2, "--lr: expected a number"},
    {"RateWithComma", train({"--data", "data.safetensors", "--lr", "0,5"}), 2, "--lr: expected a number"},
    {"NoThreads", {"gradcheck", "relu", "--threads=0"}, 2, "--threads: expected an integer from 1 to"},
    {"TwoRates", train({"--data", "data.safetensors", "--lr", "1", "--lr", "2"}), 2, "--lr"},
    {"UnknownOptimizer", train({"--data", "data.safetensors", "--optimizer", "adamx"}), 2, "--optimizer: expected sgd, adam, adamw"},
    {"MomentumOfAdam", train({"--data", "data.safetensors", "--momentum", "0.9"}), 2, "--momentum does not go with --optimizer adam"},
    {"ConfigOfCheckpoint", infer(good, input_file, old, {"--model-config", "{}"}), 2, "--model-config cannot be given with a checkpoint"},
    {"AllAndNames", {"gradcheck", "--all", "relu"}, 2, "--all cannot be given with names"},
    {"UnknownConfigField", {"graph", "classifier", "--model-config", R"({"colour": 3})"}, 2, "--model-config.*colour"},
    {"ConfigIsNoJson", {"graph", "classifier", "--model-config", "{"}, 2, "--model-config"},
    {"MissingConfigFile", {"graph", "classifier", "--model-config", "@nowhere.json"}, 4, "nowhere.json"},
    {"DeepConfig", {"graph", "classifier", "--model-config", deep_config(50'000)}, 2, "--model-config: .*nested too deeply"},
    {"DeepConfigFile", {"info", "classifier", "--model-config", "@deep.json"}, 3, "deep.json: .*nested too deeply"},
    {"BadConfigFile", {"graph", "classifier", "--model-config", "@bad-config.json"}, 3, "bad-config.json: .*colour"},
    {"ConfigThatFitsNoImage", infer("conv2d-groupnorm-pool", input_file, old, {"--model-config", R"({"num_groups": 7})"}), 2,
     "--model-config: conv2d-groupnorm-pool: group_norm: .*num_groups 7"},
    {"ConfigOfNoRank", {"graph", "classifier", "--model-config", R"({"image_size": [8]})"}, 2, "--model-config: classifier: "},
    {"InfoConfigOfCheckpoint", {"info", good, "--model-config", "{}"}, 2, "--model-config goes with a model's name"},
    {"InfoConfigOfNothing", {"info", "--model-config", "{}"}, 2, "--model-config goes with a model's name"},
    {"NoNamesAtAll", {"gradcheck"}, 2, "expected the names of models or operators, or --all"},
    {"NoCases", {"verify"}, 2, "CASE is required"},
    {"SeedOutOfRange", {"gradcheck", "relu", "--seed", "18446744073709551616"}, 2, "--seed: expected an integer from 0 to"},
    {"BadFormat", {"graph", "classifier", "--format", "png"}, 2, "--format: expected text, dot, svg, memory, got \"png\""},
    {"DotOfTwoGraphs", {"graph", "classifier", "--format", "dot", "--stage", "both"}, 2, "--format dot draws one graph"},
    {"BadDtype", infer(good, input_file, old, {"--dtype", "f8"}), 2, "--dtype: expected f32, f64, f16, bf16, got \"f8\""},
    {"BothDevices", infer(good, input_file, old, {"--device", "cpu", "--device", "cuda"}), 2, "--device"},
    {"ShapeTooSmall",
     {"graph", "classifier", "--model-config", R"({"image_size": [2, 8]})"},
     2,
     "--model-config: classifier: conv2d: .*2x8"},
    {"ImageTooSmall", {"graph", "conv2d-groupnorm-pool", "--input-shape", "1,8,2,9"}, 2, "--input-shape: .*at least 6x6, got 2x9"},
    {"BadShape", {"graph", "classifier", "--input-shape", "1,x"}, 2, "--input-shape: expected at most 8 sizes"},
    {"ShapeOfAnother",
     {"graph", "classifier", "--input-shape", "1,2,3"},
     2,
     R"(--input-shape.*expected \[N, 1, 28, 28\], got \[1, 2, 3\])"},
    {"NoGpu", infer(good, input_file, old, {"--device", "cuda:7"}), 5, "cuda:7.*hint: --device cpu"},
    {"UnknownDevice", infer(good, input_file, old, {"--device", "tpu"}), 2, "tpu.*expected auto, cpu, cuda"},
    // outputs
    {"NoOutputFolder", infer(good, input_file, "nowhere/out.npy"), 4, "nowhere"},
    {"OutputIsAFolder", infer(good, input_file, "folder"), 4, "folder.*directory"},
    {"OutputUnderAFile", infer(good, input_file, "input.npy/out.npy"), 4, "input.npy"},
    {"OutputIsALink", infer(good, input_file, "dangling.npy"), 4, "dangling.npy.*symbolic link"},
    {"OutputIsTheInput", infer(good, input_file, input_file), 2, "--output would overwrite --input"},
    {"OutputIsTheInputByLink", infer(good, input_file, "link-to-input.npy"), 2, "--output would overwrite --input"},
    {"OutputIsTheInputByHardLink", infer(good, input_file, "hard-link-to-input.npy"), 2, "--output would overwrite --input"},
    {"OutputIsTheCheckpoint", infer(good, input_file, "./model.safetensors"), 2, R"(--output would overwrite MODEL\|CHECKPOINT: )"},
    {"OutputIsTheConfig", infer("conv2d-groupnorm-pool", input_file, "config.json", {"--model-config", "@config.json"}), 2,
     "--output would overwrite --model-config"},
    {"SaveOverTheConfig",
     {"train", "conv2d-groupnorm-pool", "--model-config", "@config.json", "--data", "data.safetensors", "--save", "config.json"},
     2,
     "--save would overwrite --model-config"},
    {"SaveOverTheValidation",
     train({"--data", "data.safetensors", "--validation", "wrong-target.safetensors", "--save", "wrong-target.safetensors"}), 2,
     "--save would overwrite --validation"},
    {"SaveOverAFileOfTheData", train({"--data", "pairs", "--save", "pairs/inputs.npy"}), 2,
     "--save would overwrite --data: pairs/inputs.npy"},
    {"NoSpace", infer(good, input_file, "/dev/full"), 4, "/dev/full.*no space left"},
    {"SaveOverTheData", train({"--data", "data.safetensors", "--save", "data.safetensors"}), 2, "--save would overwrite --data"},
    {"SaveNowhere", train({"--data", "data.safetensors", "--save", "nowhere/x.safetensors"}), 4, "nowhere"},
    {"LongName", infer(good, std::string(5000, 'x') + ".npy", old), 4, "file name too long"},
    // data
    {"MissingData", train({"--data", "nowhere"}), 4, "nowhere.*no such file"},
    {"NoTargetsFile", train({"--data", "pairs"}), 4, "pairs/targets.npy: no such file"},
    {"EmptyFolder", {"train", "classifier", "--data", "folder"}, 3, "folder: holds no data: expected inputs.npy and targets.npy"},
    {"EmptyClass", {"train", "classifier", "--data", "classes"}, 3, "classes/b: has no .png or .jpg files", "libpng"},
    {"DamagedImage", {"train", "classifier", "--data", "damaged", "--image-size", "28,28"}, 3, "damaged/a/1.png: PNG image: ", "libpng"},
    {"MixedSizes",
     {"train", "classifier", "--data", "mixed"},
     3,
     "mixed/a/2.png: expected 8x8 pixels as in mixed/a/1.png, got 9x9.*--image-size",
     "libpng"},
    {"CropTooLarge",
     {"train", "classifier", "--data", "mixed", "--image-size", "8,8", "--crop", "9,9"},
     3,
     "mixed: a crop of 9x9 does not fit into an image of 8x8",
     "libpng"},
    {"FlipOfWhat", {"train", "classifier", "--data", "mixed", "--flip", "x"}, 2, "--flip: expected some of the letters d, h and w"},
    {"CutArchive", train({"--data", "cut.npz"}), 3, "cut.npz: not a good .npz file", "libzip"},
    {"NotAVolume", train({"--data", "volumes"}), 3, "volumes/inputs.nii: not a NIfTI file", "libnifti2"},
    {"ConstantInput", train({"--data", "constant.safetensors", "--normalize", "mean-std"}), 3,
     "constant.safetensors.*channel 0 of the input is 2"},
    {"NoTarget", train({"--data", "no-target.safetensors"}), 3, "no-target.safetensors.*\"target\""},
    {"EmptyData", train({"--data", "empty-data.safetensors"}), 3, "empty-data.safetensors: there are no examples"},
    {"WrongTarget", train({"--data", "wrong-target.safetensors"}), 3, "targets of a batch have shape 8x4x2x3, the model needs 8x4x3x3"},
    {"DataOfAnotherModel", {"train", "classifier", "--data", "data.safetensors"}, 3, R"(data.safetensors.*expected \[N, 1, 28, 28\])"},
    {"ClassOutOfRange",
     {"train", "classifier", "--model-config", tiny_classifier, "--data", "images.safetensors"},
     3,
     "images.safetensors: cross_entropy.*9"},
    {"Diverging", train({"--data", "infinite.safetensors", "--save", "model.safetensors", "--run-dir", "none"}), 7,
     "loss is -?nan at step 1"},
    {"MissingCase", {"verify", "nowhere.safetensors"}, 4, "nowhere.safetensors.*no such file"},
    {"CutCase", {"verify", "cut.safetensors"}, 3, "cut.safetensors.*(header|truncated)"},
    {"InfoOfAFileThatIsMissing", {"info", "none.st"}, 4, "none.st: no such file"},
    {"InfoOfACutCheckpoint", {"info", "cut.safetensors"}, 3, "cut.safetensors.*(header|truncated|beyond)"},
    {"InfoOfAFolder", {"info", "./folder"}, 4, "folder: is a directory, expected a .safetensors file"},
    {"GraphOfACutCheckpoint", {"graph", "cut.safetensors"}, 3, "cut.safetensors.*(header|truncated)"},
    {"NotAGoldenCase", {"verify", "data.safetensors"}, 3, "not a golden case"},
};

class Refused : public BadInputs, public testing::WithParamInterface<BadInput> {};

TEST_P(Refused, InOneLineWithTheRightCode) {
  FRIT_SKIP_WITHOUT(GetParam().library);
  const std::vector<std::string> before = files();
  const std::string old_content = content(old), old_model = content(good);
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run(GetParam().arguments);
  const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(outcome.code, GetParam().code) << outcome;
  EXPECT_TRUE(std::regex_search(outcome.errors, std::regex(GetParam().message))) << outcome << "\nexpected " << GetParam().message;
  const std::size_t line = outcome.errors.find("frit: error: ");
  ASSERT_NE(line, std::string::npos) << outcome;
  EXPECT_EQ(outcome.errors.find('\n', line), outcome.errors.size() - 1) << "more than one line\n" << outcome;
  EXPECT_EQ(outcome.errors.find("terminate called"), std::string::npos);
  EXPECT_TRUE(outcome.output.empty()) << outcome;
  EXPECT_EQ(content(old), old_content) << "the old output was changed";
  EXPECT_EQ(content(good), old_model) << "the checkpoint was changed";
  EXPECT_EQ(files(), before) << "something was left behind";
  EXPECT_LT(seconds, sanitized ? 20 : 1);
}

INSTANTIATE_TEST_SUITE_P(All, Refused, testing::ValuesIn(refused), [](const auto& tested) { return tested.param.name; });

/// A configuration, or an image's header, is a promise of a few bytes.
class Declared : public BadInputs {
 protected:
  void expect_refused(const std::vector<std::string>& arguments, const std::string& message) const {
    const std::size_t limit = sanitized ? 0 : std::size_t{512} << 20;
    const Outcome outcome = run_program({.arguments = arguments, .directory = folder, .memory_limit = limit});
    EXPECT_EQ(outcome.code, 3) << outcome;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << outcome << "\nexpected " << message;
  }
};

TEST_F(Declared, ParametersThatTheFileDoesNotHaveTakeNoMemory) {
  const Metadata of_model = {{"model", "conv2d-groupnorm-pool"},
                             {"config", R"({"in_channels": 3, "out_channels": 2000000, "num_groups": 2, "pool_kernel_size": 2})"}};
  const auto written = [&](const std::string& file, const std::string& prefix, Metadata metadata, bool checked = false) {
    metadata.insert(of_model.begin(), of_model.end());
    TensorMap tensors = {{"input", random_tensor({2, 3, 8, 8})}, {"target", Tensor::zeros({1})}, {"losses", Tensor::zeros({3})}};
    if (checked) tensors.clear();
    for (const auto& [name, tensor] : tiny_parameters()) tensors.emplace(prefix + name, tensor);
    if (checked) add_checksums(tensors, metadata);
    write(file, serialize_safetensors(tensors, metadata));
  };
  written("large.safetensors", "", {});
  written("case.safetensors", "param.", {});
  written("trace.safetensors", "param.", {{"optimizer", "sgd"}, {"optimizer_config", R"({"lr": 1})"}});
  fs::create_directory(path("bundle"));
  written("bundle/state.safetensors", "", {{"training", "{}"}, {"settings", "{}"}, {"optimizer", "adam"}}, /*checked=*/true);
  write("bundle/inputs.safetensors", content("data.safetensors"));
  const std::string message = "the tensors do not fit the model: wrong shape: ";
  expect_refused(infer("large.safetensors", input_file, old), message);
  expect_refused({"graph", "large.safetensors"}, message);
  expect_refused({"verify", "case.safetensors"}, message);
  expect_refused({"verify", "trace.safetensors"}, message);
  expect_refused({"replay", "bundle"}, message);
}

TEST_F(Declared, PixelsThatTheModelDoesNotTakeTakeNoMemory) {
  FRIT_SKIP_WITHOUT("libpng");
  const std::string pixels = gzipped(std::string(1'000'000, '\0'), 15) + std::string(440'000, '\0');
  const std::string image = png_file(60000, 60000, 1, 0, pixels);
  write("large.png", image);
  write("cut.png", image.substr(0, 300'000));
  write("lying.png", png_file(60000, 60000, 8, 2, pixels));
  expect_refused(infer(good, "large.png", old),
                 "large.png: input of model \"conv2d-groupnorm-pool\": expected [N, 3, H, W], got [1, 1, 60000, 60000]");
  expect_refused(infer(good, "cut.png", old), "cut.png: PNG image: the file ends early: truncated?");
  expect_refused(infer(good, "lying.png", old), "header declares 60000x60000 pixels, more than a file of ");
}

struct GoodInput {
  const char* name;
  std::vector<std::string> arguments;
  const char* message;
};

void PrintTo(const GoodInput& input, std::ostream* out) { *out << input.name; }

const std::vector<GoodInput> accepted = {
    {"ExtraTensorWhenAllowed", infer("extra.safetensors", input_file, "out.npy", {"--allow-extra"}), ""},
    {"NanWeights", infer("nan.safetensors", input_file, "out.npy"), "warning: tensor \"scale\" has 4 values that are NaN or infinite"},
    {"OutputIsReplaced", infer(good, input_file, old), ""},
    {"ProgramsFolder", infer("./model.safetensors", "./input.npy", "folder/out.npy"), ""},
    {"FreshParameters",
     infer("conv2d-groupnorm-pool", "four-channels.npy", "out.npy", {"--model-config", R"({"in_channels": 4, "pool_kernel_size": 2})"}),
     "fresh parameters"},
    {"TheSameFlagTwice", infer(good, input_file, "out.npy", {"-q", "-q"}), ""},
};

class Accepted : public BadInputs, public testing::WithParamInterface<GoodInput> {};

TEST_P(Accepted, WithARemark) {
  const Outcome outcome = run(GetParam().arguments);
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_TRUE(std::regex_search(outcome.errors, std::regex(GetParam().message))) << outcome;
}

INSTANTIATE_TEST_SUITE_P(All, Accepted, testing::ValuesIn(accepted), [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace frit::bad_inputs_test
