// `frit infer` on files, folders and streams; how it compares, times itself and ends.

#include <fcntl.h>
#include <sys/stat.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/fixtures.h"
#include "apps/program.h"
#include "core/io/image_files.h"
#include "core/io/missing_libraries.h"
#include "frit/core/io/png.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

class Infer : public ProgramTest {
 protected:
  Infer() { write("model.safetensors", serialize_safetensors(tiny_parameters(), checkpoint_metadata(tiny_model()))); }

  static std::string npy_bytes(const Tensor& tensor) {
    const std::vector<std::byte> bytes = serialize_npy(tensor);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// Images that differ from one another.
  static Tensor images(std::int64_t count, std::uint64_t seed, std::int64_t size = 8) {
    const Tensor tensor = Tensor::empty({count, 3, size, size});
    fill_normal(tensor, 0, 1, seed, 0);
    return tensor;
  }

  Outcome infer(std::vector<std::string> arguments, const std::string& input = "") const {
    arguments.insert(arguments.begin(), {"infer", "model.safetensors"});
    return run_program({.arguments = arguments, .directory = folder, .input = input.empty() ? "" : path(input)});
  }

  static std::vector<Tensor> arrays(const std::string& stream) {
    std::size_t at = 0;
    NpyStream npy(
        [&](std::span<std::byte> into) {
          const std::size_t count = std::min(into.size(), stream.size() - at);
          std::copy_n(reinterpret_cast<const std::byte*>(stream.data()) + at, count, into.begin());
          at += count;
          return count;
        },
        "a stream");
    std::vector<Tensor> found;
    while (const std::optional<Tensor> tensor = npy.next()) found.push_back(*tensor);
    return found;
  }

  /// What a file with these images gives.
  Tensor result_of(const Tensor& input) const {
    write("alone.npy", serialize_npy(input));
    const Outcome outcome = infer({"--input", "alone.npy", "--output", "alone.out.npy"});
    EXPECT_EQ(outcome.code, 0) << outcome;
    return read_npy(path("alone.out.npy"));
  }

  /// A model's outputs for a file, and for the .npy file of the same examples.
  void expect_same_bits(const std::vector<std::string>& model, const std::string& input, const std::string& array) const {
    for (const auto& [from, to] : {std::pair(input, "y.npy"), std::pair(array, "expected.npy")}) {
      std::vector<std::string> arguments = {"infer", "--input", from, "--output", to, "--quiet"};
      arguments.insert(arguments.end(), model.begin(), model.end());
      const Outcome outcome = run(arguments);
      ASSERT_EQ(outcome.code, 0) << outcome;
    }
    EXPECT_EQ(content("y.npy"), content("expected.npy")) << input;
  }

  static void expect_near(const Tensor& found, const Tensor& expected) {
    ASSERT_EQ(found.shape(), expected.shape());
    const std::vector<float> a = found.to_vector<float>(), b = expected.to_vector<float>();
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5);
  }
};

TEST_F(Infer, AFolderGivesAFileForEachOfItsArrays) {
  fs::create_directory(path("in"));
  fs::create_directory(path("out"));
  for (int i = 0; i < 5; ++i) write(concat("in/", i, ".npy"), serialize_npy(images(i, static_cast<std::uint64_t>(i))));
  write("in/notes.txt", std::string("not an array"));
  const Outcome outcome = infer({"--input", "in", "--output", "out", "--batch-size", "3"});
  ASSERT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(outcome.errors.find("5 arrays, 10 examples"), std::string::npos) << outcome;
  for (int i = 0; i < 5; ++i) {
    expect_near(read_npy(path(concat("out/", i, ".npy"))), result_of(images(i, static_cast<std::uint64_t>(i))));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(path("out")), fs::directory_iterator()), 5);
}

TEST_F(Infer, TakesIdxImagesAsTheirArray) {
  const QuarterImages quarters(50, /*seed=*/1);
  write("t10k-images-idx3-ubyte", quarters.images);
  write("t10k-images-idx3-ubyte.gz", gzipped(quarters.images));
  std::vector<float> pixels;
  for (const char byte : quarters.images.substr(16)) pixels.push_back(static_cast<float>(static_cast<unsigned char>(byte)) / 255.0F);
  write("images.npy", serialize_npy(Tensor::from(pixels, {50, 1, 8, 8})));
  for (const char* const file : {"t10k-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz"}) {
    expect_same_bits({"classifier", "--model-config", tiny_classifier}, file, "images.npy");
  }
  EXPECT_EQ(read_npy(path("y.npy")).shape(), (Shape{50, 4}));
}

TEST_F(Infer, TakesAFolderOfPngImages) {
  FRIT_SKIP_WITHOUT("libpng");
  for (const char* const name : {"in", "arrays", "out", "expected"}) fs::create_directory(path(name));
  for (int i = 0; i < 3; ++i) {
    std::vector<float> samples;
    for (int k = 0; k < 3 * 8 * 8; ++k) samples.push_back(static_cast<float>((k * 37 + i * 11) % 256) / 255.0F);
    write_png(path(concat("in/", i, ".png")), Tensor::from(samples, {3, 8, 8}));
    write(concat("arrays/", i, ".npy"), serialize_npy(Tensor::from(samples, {1, 3, 8, 8})));
  }
  write("in/notes.txt", std::string("not an image"));
  ASSERT_EQ(infer({"--input", "arrays", "--output", "expected", "--deterministic"}).code, 0);
  const Outcome outcome = infer({"--input", "in", "--output", "out", "--ref", "expected", "--rtol", "0", "--atol", "0", "--deterministic"});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_NE(outcome.errors.find("3 arrays, 3 examples"), std::string::npos) << outcome;
  for (const char* const name : {"0.npy", "1.npy", "2.npy"}) {
    EXPECT_EQ(content(concat("out/", name)), content(concat("expected/", name)));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(path("out")), fs::directory_iterator()), 3);

  const Outcome over = infer({"--input", "in", "--output", "expected", "--ref", "expected"});
  EXPECT_EQ(over.code, 2) << over;
  EXPECT_NE(over.errors.find("--output would overwrite --ref: expected/0.npy"), std::string::npos) << over;
  write_png(path("grey.png"), Tensor::zeros({1, 8, 8}));
  const Outcome grey = infer({"--input", "grey.png", "--output", "y.npy"});
  EXPECT_EQ(grey.code, 3) << grey;
  EXPECT_NE(grey.errors.find("grey.png: input of model"), std::string::npos) << grey;
  EXPECT_NE(grey.errors.find("expected [N, 3, H, W], got [1, 1, 8, 8]"), std::string::npos) << grey;
  write("text.png", std::string("not an image"));
  const Outcome text = infer({"--input", "text.png", "--output", "y.npy"});
  EXPECT_EQ(text.code, 3) << text;
  EXPECT_NE(text.errors.find("text.png: not a PNG image"), std::string::npos) << text;
  EXPECT_FALSE(fs::exists(path("y.npy")));
}

TEST_F(Infer, TakesNiftiVolumes) {
  FRIT_SKIP_WITHOUT("libnifti2");
  std::vector<float> voxels(2 * 6 * 7 * 8);
  for (std::size_t i = 0; i < voxels.size(); ++i) voxels[i] = static_cast<float>(i % 29);
  const std::string bytes = bytes_of(voxels);
  write("two.nii", nifti_file({.dim = {8, 7, 6, 2}}, bytes));
  write("two.npy", serialize_npy(Tensor::from(voxels, {1, 2, 6, 7, 8})));
  expect_same_bits({"conv3d-instnorm-max", "--model-config", R"({"in_channels": 2})"}, "two.nii", "two.npy");
  write("one.nii.gz", gzipped(nifti_file({.dim = {8, 7, 12}}, bytes)));
  write("one.npy", serialize_npy(Tensor::from(voxels, {1, 1, 12, 7, 8})));
  expect_same_bits({"conv3d-instnorm-max", "--model-config", R"({"in_channels": 1})"}, "one.nii.gz", "one.npy");
}

TEST_F(Infer, AStreamGivesAnArrayForEachThatCame) {
  std::string stream;
  std::vector<Tensor> inputs;
  for (int i = 0; i < 60; ++i) {
    inputs.push_back(images(i % 5, static_cast<std::uint64_t>(i), i % 7 == 0 ? 10 : 8));
    stream += npy_bytes(inputs.back());
  }
  write("stream", stream);
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {}, {"--batch-size", "1"}, {"--batch-size", "3", "--queue", "1"}, {"--deterministic"}, {"--warmup", "2"}}) {
    std::vector<std::string> arguments = {"--input", "-", "--output", "-"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = infer(arguments, "stream");
    ASSERT_EQ(outcome.code, 0) << outcome.errors;
    const std::vector<Tensor> outputs = arrays(outcome.output);
    ASSERT_EQ(outputs.size(), inputs.size());
    EXPECT_NE(outcome.errors.find("60 arrays, 120 examples"), std::string::npos) << outcome.errors;
    for (const std::size_t i : {1u, 2u, 5u, 7u, 59u}) expect_near(outputs[i], result_of(inputs[i]));
  }
}

/// Which arrays are computed together hangs on when they come.
TEST_F(Infer, AStreamHasTheSameBitsInAnyBatches) {
  std::string stream;
  for (int i = 0; i < 40; ++i) {
    const Tensor tensor = Tensor::empty({i % 4, 1, 28, 28});
    fill_normal(tensor, 0, 1, static_cast<std::uint64_t>(i), 0);
    stream += npy_bytes(tensor);
  }
  write("stream", stream);
  const auto output = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"infer", "classifier", "--device", "cpu", "--input", "-", "--output", "-"});
    const Outcome outcome = run_program({.arguments = more, .directory = folder, .input = path("stream")});
    EXPECT_EQ(outcome.code, 0) << outcome.errors;
    return outcome.output;
  };
  const std::string alone = output({"--deterministic"});
  EXPECT_EQ(arrays(alone).size(), 40u);
  for (const char* const size : {"1", "2", "3", "5", "8", "17", "64"}) {
    EXPECT_EQ(output({"--batch-size", size}), alone) << size;
    EXPECT_EQ(output({"--batch-size", size, "--queue", "1"}), alone) << size;
  }
}

TEST_F(Infer, AnswersWhileTheStreamIsOpen) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  Process process(
      {.arguments = {"infer", "model.safetensors", "--input", "-", "--output", "-"}, .directory = folder, .input = path("pipe")});
  const int descriptor = open(path("pipe").c_str(), O_WRONLY);
  ASSERT_GE(descriptor, 0);
  const std::string one = npy_bytes(images(2, 1)), answer = npy_bytes(result_of(images(2, 1)));
  for (std::size_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(::write(descriptor, one.data(), one.size()), static_cast<ssize_t>(one.size()));
    ASSERT_TRUE(process.wait_for_output(i * answer.size())) << "no answer to array " << i << process.finish();
  }
  close(descriptor);
  const Outcome outcome = process.finish();
  EXPECT_EQ(outcome.code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, answer + answer + answer);
}

TEST_F(Infer, ABrokenStreamGivesWhatCameBeforeAndNamesTheArray) {
  const std::string good = npy_bytes(images(2, 1));
  const std::vector<std::pair<std::string, std::string>> broken = {
      {good.substr(0, good.size() - 1), "standard input: array 3: the stream ends inside of an array"},
      {good.substr(0, 5), "standard input: array 3: the stream ends inside of an array"},
      {"what is this?", "standard input: array 3: bad magic"},
      {npy_bytes(Tensor::zeros({2, 4, 8, 8})), "standard input: array 3: input of model"},
  };
  const std::string answer = npy_bytes(result_of(images(2, 1)));
  for (const auto& [last, message] : broken) {
    write("stream", good + good + last);
    const Outcome outcome = infer({"--input", "-", "--output", "-"}, "stream");
    EXPECT_EQ(outcome.code, 3) << outcome.errors;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << outcome.errors;
    EXPECT_EQ(outcome.output, answer + answer) << message;
  }
  write("stream", std::string());
  EXPECT_EQ(infer({"--input", "-", "--output", "-"}, "stream").code, 0);
}

TEST_F(Infer, AReaderThatGoesEndsItQuietly) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  Process process({.arguments = {"infer", "model.safetensors", "--input", "-", "--output", "-"},
                   .directory = folder,
                   .input = path("pipe"),
                   .output = ProgramLaunch::no_reader});
  const int descriptor = open(path("pipe").c_str(), O_WRONLY);
  const std::string one = npy_bytes(images(2, 1));
  ASSERT_EQ(::write(descriptor, one.data(), one.size()), static_cast<ssize_t>(one.size()));
  const Outcome outcome = process.finish();  // though the stream is still open
  close(descriptor);
  EXPECT_EQ(outcome.code, 4) << outcome.errors;
  EXPECT_EQ(outcome.errors, "");
}

TEST_F(Infer, ComparesWithAReferenceAndNamesTheWorstElement) {
  write("x.npy", serialize_npy(images(5, 1)));
  const Tensor expected = result_of(images(5, 1)).clone();
  write("same.npy", serialize_npy(expected));
  expected.data<float>()[40] += 0.5f;
  expected.data<float>()[7] += 0.01f;
  write("other.npy", serialize_npy(expected));
  write("misshapen.npy", serialize_npy(Tensor::zeros({5, 4, 3, 2})));
  const auto check = [&](const std::string& reference, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--input", "x.npy", "--ref", reference});
    return infer(more);
  };
  EXPECT_EQ(check("same.npy").code, 0);
  EXPECT_EQ(check("same.npy", {"--rtol", "0", "--atol", "1e-6", "--batch-size", "2"}).code, 0);
  // With precision f16 the allowance is as large as its rounding.
  expected.data<float>()[40] -= 0.5f;
  expected.data<float>()[7] -= 0.01f;
  for (std::int64_t i = 0; i < expected.elements(); ++i) expected.data<float>()[i] *= 1.001f;
  write("near.npy", serialize_npy(expected));
  EXPECT_EQ(check("near.npy").code, 1);
  EXPECT_EQ(check("near.npy", {"--precision", "f16"}).code, 0);
  EXPECT_EQ(check("near.npy", {"--precision", "f16", "--atol", "1e-5"}).code, 1);
  const Outcome differs = check("other.npy");
  EXPECT_EQ(differs.code, 1) << differs;
  EXPECT_NE(differs.errors.find("other.npy: 2 of 180 elements differ, most [1, 0, 1, 1]: got "), std::string::npos) << differs;
  EXPECT_EQ(check("other.npy", {"--atol", "0.6"}).code, 0);
  EXPECT_EQ(check("misshapen.npy").code, 1);
  EXPECT_EQ(check("nowhere.npy").code, 4);
  const Outcome printed = check("other.npy", {"--json", "--output", "y.npy"});
  EXPECT_EQ(printed.code, 1);
  EXPECT_EQ(nlohmann::json::parse(printed.output)["reference"]["differing"], 2);
  expect_near(read_npy(path("y.npy")), read_npy(path("same.npy")));
}

TEST_F(Infer, SaysWhatTheFirstResultTook) {
  write("x.npy", serialize_npy(images(1, 1)));
  double least = 1e9;
  for (int i = 0; i < 10; ++i) {
    const Outcome outcome = infer({"--input", "x.npy", "--output", "y.npy", "--timing", "--json", "--device", "cpu"});
    ASSERT_EQ(outcome.code, 0) << outcome;
    const nlohmann::json result = nlohmann::json::parse(outcome.output);
    double sum = 0;
    for (const char* const stage : {"process", "command line", "device", "libraries", "model", "input", "plans", "first run"}) {
      sum += result["start_milliseconds"][stage].get<double>();
    }
    least = std::min(least, sum);
    EXPECT_GT(result["examples_per_second"].get<double>(), 0);
    EXPECT_EQ(result["batches"], 1);
  }
  std::cout << "  to the first result " << least << " ms\n";
  const Outcome text = infer({"--input", "x.npy", "--output", "y.npy", "--timing"});
  EXPECT_NE(text.errors.find("ms to the first result\n"), std::string::npos) << text;
  EXPECT_EQ(text.output, "");
}

TEST_F(Infer, RefusesWhatDoesNotGoTogether) {
  write("x.npy", serialize_npy(images(1, 1)));
  fs::create_directory(path("empty"));
  fs::create_directory(path("in"));
  write("in/x.npy", serialize_npy(images(1, 1)));
  write("empty/notes.txt", std::string("not an array"));
  fs::create_directory(path("twice"));
  write("twice/x.npy", serialize_npy(images(1, 1)));
  write("twice/x.nii.gz", std::string("a file of the same name"));
  write("labels-idx1-ubyte", QuarterImages(5, 1).labels);
  const std::vector<std::tuple<std::vector<std::string>, int, std::string>> refused = {
      {{"--input", "x.npy"}, 2, "one of --output and --ref is required"},
      {{"--input", "-", "--output", "y.npy"}, 2, "--input - is a stream"},
      {{"--input", "-", "--output", "-", "--ref", "x.npy"}, 2, "--ref does not go with --input -"},
      {{"--input", "x.npy", "--output", "-", "--json"}, 2, "--json does not go with --output -"},
      {{"--input", "in", "--output", "-"}, 2, "--output - takes one array"},
      {{"--input", "in", "--output", "y.npy"}, 4, "y.npy: no such folder"},
      {{"--input", "in", "--output", "x.npy"}, 4, "x.npy: not a folder"},
      {{"--input", "in", "--output", "in"}, 2, "--output would overwrite --input"},
      {{"--input", "empty", "--output", "in"}, 4, "empty: there are no .npy, .png, .jpg, .nii or IDX files in this folder"},
      {{"--input", "twice", "--output", "in"}, 2, "--input: twice/x.nii.gz and twice/x.npy would both give x.npy"},
      {{"--input", "labels-idx1-ubyte", "--output", "y.npy"}, 3, "labels-idx1-ubyte: expected u8 images (N,H,W), got u8 5"},
      {{"--input", "x.npy", "--output", "x.npy"}, 2, "--output would overwrite --input"},
      {{"--input", "x.npy", "--output", "in/x.npy", "--ref", "in/x.npy"}, 2, "--output would overwrite --ref"},
      {{"--input", "x.npy", "--ref", "x.npy", "--rtol", "-1"}, 2, "--rtol: expected a number from 0"},
      {{"--input", "x.npy", "--ref", "x.npy", "--queue", "0"}, 2, "--queue: expected an integer from 1"},
  };
  for (const auto& [arguments, code, message] : refused) {
    const Outcome outcome = infer(arguments);
    EXPECT_EQ(outcome.code, code) << message << outcome;
    EXPECT_NE(outcome.errors.find(message), std::string::npos) << message << outcome;
    EXPECT_EQ(outcome.output, "");
  }
}

TEST_F(Infer, OneArrayGoesToStandardOutput) {
  write("x.npy", serialize_npy(images(4, 1)));
  const Outcome outcome = infer({"--input", "x.npy", "--output", "-", "--quiet"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.errors, "");
  EXPECT_EQ(outcome.output, npy_bytes(result_of(images(4, 1))));
}

}  // namespace
}  // namespace frit
