#pragma once

#include <regex>

#include "apps/mpirun.h"
#include "apps/resume_run.h"

namespace frit {

/// Runs of `frit train` on several processes that mpirun starts.
class Distributed : public Resume {
 protected:
  /// Batches of 32, of which the last has 24: both divide by 2 and by 4.
  Distributed() {
    QuarterImages(152, /*seed=*/1).write(path("quarters"), "train");
    QuarterImages(41, /*seed=*/2).write(path("quarters"), "t10k");
  }
  void SetUp() override {
    if (mpirun == nullptr) GTEST_SKIP() << "frit was built without MPI";
  }

  static std::vector<std::string> learn(const std::vector<std::string>& more, const std::string& data = "quarters") {
    return with({"train", "classifier", "--model-config", tiny_classifier, "--data", data, "--batch-size", "32", "--dtype", "f64",
                 "--deterministic", "--quiet"},
                more);
  }

  /// Volumes whose bright places are a class.
  void write_volumes(const std::string& part, std::int64_t count, bool ignored = false) const {
    std::filesystem::create_directories(path(part));
    const Tensor inputs = Tensor::empty({count, 1, 4, 8, 8}), targets = Tensor::empty({count, 4, 8, 8}, DType::u8);
    fill_normal(inputs, 0, 1, /*seed=*/1, /*stream=*/static_cast<std::uint64_t>(count));
    for (std::int64_t i = 0; i < inputs.elements(); ++i) {
      const int label = (inputs.data<float>()[i] > 0.4F) + (i % 5 == 0 ? 2 : 0);
      targets.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(ignored && i % 7 < i / 256 ? 255 : label);
    }
    write_npy(path(part + "/inputs.npy"), inputs);
    write_npy(path(part + "/targets.npy"), targets);
  }

  /// One program for each of the processes.
  ProgramLaunch several(const std::vector<std::vector<std::string>>& programs, const std::string& seconds = "60") const {
    return under_mpirun(folder, programs, seconds);
  }
  static std::vector<std::string> program(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), FRIT_PROGRAM);
    return arguments;
  }
  /// One that writes its number to this file before it becomes the program.
  static std::vector<std::string> numbered_program(const std::vector<std::string>& arguments, const std::string& file) {
    const std::string script = "echo $$ > " + file + ".tmp && mv " + file + ".tmp " + file + " && exec \"$0\" \"$@\"";
    return with({"/bin/sh", "-c", script}, program(arguments));
  }
  Outcome on(int processes, const std::vector<std::string>& arguments) const {
    if (processes == 1) return run(arguments);
    return run_program(several(std::vector(static_cast<std::size_t>(processes), program(arguments))));
  }
  void good_on(int processes, const std::vector<std::string>& arguments) const {
    const Outcome outcome = on(processes, arguments);
    ASSERT_EQ(outcome.code, 0) << processes << " processes: " << outcome;
  }
  void refused_on(int processes, int code, const std::string& message, const std::vector<std::string>& arguments) const {
    expect_refusal(on(processes, arguments), code, message);
  }
  /// The message once, and nothing of the result.
  static void expect_refusal(const Outcome& outcome, int code, const std::string& message) {
    EXPECT_EQ(outcome.code, code) << outcome;
    const std::regex line("frit: error: " + message);
    const auto begin = std::sregex_iterator(outcome.errors.begin(), outcome.errors.end(), line);
    EXPECT_EQ(std::distance(begin, std::sregex_iterator()), 1) << outcome << "\nexpected " << message;
    EXPECT_EQ(outcome.output, "");
  }

  /// The tensors of two runs' last checkpoints, relative to the largest value of each.
  void expect_equal(const std::string& run, const std::string& wanted) const {
    const TensorFile found = read_safetensors(path(run + "/checkpoints/last.safetensors")),
                     expected = read_safetensors(path(wanted + "/checkpoints/last.safetensors"));
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::string name(expected.entry(i).name);
      const std::vector<double> a = found.at(name).to_vector<double>(), b = expected.tensor(i).to_vector<double>();
      ASSERT_EQ(a.size(), b.size());
      double difference = 0, largest = 1e-300;
      for (std::size_t k = 0; k < b.size(); ++k) {
        difference = std::max(difference, std::abs(a[k] - b[k]));
        largest = std::max(largest, std::abs(b[k]));
      }
      EXPECT_LE(difference / largest, 1e-10) << run << ": " << name;
    }
    EXPECT_EQ(found.metadata().at("training"), expected.metadata().at("training")) << "as far as the other";
  }
};

}  // namespace frit
