// Processes of `frit train` that are killed or hang, whenever that is: one message, within a stated time, and the run goes on from its last
// checkpoint on any number of processes.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <thread>

#include "apps/distributed_run.h"

namespace frit {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

bool lives(pid_t process) { return state_of(process) != 0 && state_of(process) != 'Z'; }

class Faults : public Distributed {
 protected:
  /// Batches of 24 and a last one of 12, which divide by 2, 3 and 4.
  Faults() {
    QuarterImages(108, /*seed=*/1).write(path("quarters"), "train");
    QuarterImages(24, /*seed=*/2).write(path("quarters"), "t10k");
    write_volumes("volumes/train", 36);
    write_volumes("volumes/test", 6);
  }

  static std::vector<std::string> learn(const std::vector<std::string>& what, const std::string& epochs) {
    return with(with({"train"}, what),
                {"--lr", "0.001", "--epochs", epochs, "--dtype", "f64", "--checkpoint-every", "2", "--deterministic", "--quiet"});
  }
  static std::vector<std::string> learn_quarters(const std::string& epochs) {
    return learn({"classifier", "--model-config", tiny_classifier, "--data", "quarters", "--batch-size", "24"}, epochs);
  }
  static std::vector<std::string> learn_volumes(const std::string& epochs) {
    return learn({"unet3d", "--model-config", R"({"channels": [3, 4], "num_classes": 4})", "--data", "volumes", "--batch-size", "12"},
                 epochs);
  }

  /// Processes that train, and the number of each.
  struct Run {
    explicit Run(const ProgramLaunch& launch) : launcher(launch) {}

    Process launcher;
    std::vector<pid_t> numbers;
  };
  std::unique_ptr<Run> start(int processes, const std::vector<std::string>& arguments, const std::string& seconds = "60") const {
    const auto file = [](int rank) { return concat("number", rank); };
    std::vector<std::vector<std::string>> programs;
    for (int r = 0; r < processes; ++r) {
      fs::remove(path(file(r)));
      programs.push_back(numbered_program(arguments, file(r)));
    }
    ProgramLaunch launch = several(programs, seconds);
    if (processes == 1) {
      launch.program = programs[0][0];
      launch.arguments.assign(programs[0].begin() + 1, programs[0].end());
    }
    launch.environment.emplace_back("OMPI_MCA_odls_base_sigkill_timeout=0");  // else mpirun takes seconds to end what is left
    auto run = std::make_unique<Run>(launch);
    for (int r = 0; r < processes; ++r) {
      while (!run->launcher.ended() && !fs::exists(path(file(r)))) std::this_thread::sleep_for(1ms);
      run->numbers.push_back(run->launcher.ended() ? -1 : std::stoi(content(file(r))));
    }
    return run;
  }

  /// Of the newest checkpoint; 0 if there is none.
  std::int64_t step_of(const std::string& directory) const {
    std::int64_t step = 0;
    if (!fs::exists(path(directory + "/checkpoints"))) return step;
    for (const std::string& name : checkpoints(directory)) {
      if (name.starts_with("step-") && name.ends_with(".safetensors")) step = std::max<std::int64_t>(step, std::stoll(name.substr(5)));
    }
    return step;
  }
  /// False if the run ended before.
  bool wait_for_step(const Run& run, const std::string& directory, std::int64_t step) const {
    while (!run.launcher.ended()) {
      if (step_of(directory) >= step) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }

  /// Kills the run so often, each time one of its processes or their launcher, and lets as many others go on.
  void kill_often(const std::vector<std::string>& arguments, std::int64_t steps, int kills);
  void expect_one_that_hangs(int processes, int hanging);
};

void Faults::kill_often(const std::vector<std::string>& arguments, std::int64_t steps, int kills) {
  good(with(arguments, {"--run-dir", "whole"}));
  const char* const given = std::getenv("FRIT_TEST_SEED");  // that of a run that failed
  const unsigned seed = given == nullptr ? std::random_device()() : static_cast<unsigned>(std::stoul(given));
  std::cout << "seed " << seed << std::endl;
  SCOPED_TRACE(concat("seed ", seed));
  std::mt19937 random(seed);
  const auto below = [&](std::int64_t bound) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound)); };
  for (int number = 0; kills > 0; ++number) {
    const std::string directory = concat("run", number);
    const std::vector<std::string> resumed = with(arguments, {"--run-dir", directory, "--resume", "auto"});
    for (bool ended = false; !ended;) {
      const auto processes = static_cast<int>(1 + below(4));
      const std::int64_t step = step_of(directory) + below(steps / 5);
      const std::unique_ptr<Run> run = start(processes, resumed);
      const bool kill_now = kills > 0 && wait_for_step(*run, directory, step);
      const pid_t one = run->numbers[static_cast<std::size_t>(below(processes))];
      if (kill_now) below(4) == 0 ? run->launcher.send(SIGKILL) : static_cast<void>(kill(one, SIGKILL));
      const Outcome outcome = run->launcher.finish();
      ended = outcome.code == 0;
      if (kill_now && !ended) --kills;
      ASSERT_TRUE(ended || kill_now) << processes << " processes after step " << step << ": " << outcome;
      for (const pid_t process : run->numbers) {
        for (int i = 0; process > 0 && lives(process) && i < 10'000; ++i) std::this_thread::sleep_for(1ms);
        ASSERT_FALSE(process > 0 && lives(process)) << "it outlived its launcher";
      }
    }
    expect_equal(directory, "whole");
  }
}

TEST_F(Faults, AClassifierIsLearntHoweverOftenItIsKilled) { kill_often(learn_quarters("8"), 40, 12); }

TEST_F(Faults, ASegmentationIsLearntHoweverOftenItIsKilled) { kill_often(learn_volumes("6"), 18, 8); }

void Faults::expect_one_that_hangs(int processes, int hanging) {
  const std::string directory = concat("run", processes);
  const std::vector<std::string> arguments = with(learn_quarters("2000"), {"--run-dir", directory});
  const std::unique_ptr<Run> run = start(processes, arguments, "2");
  ASSERT_TRUE(wait_for_step(*run, directory, 6));
  kill(run->numbers[static_cast<std::size_t>(hanging)], SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run->launcher.finish();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s + 5s + 8s)
      << "the limit, the roll call, what the launcher and a busy machine take";
  const std::string who = processes == 2 ? concat("process ", 1 - hanging, " waits") : concat("the other ", processes - 1, " wait");
  expect_refusal(outcome, 5, concat("MPI: process ", hanging, " did not come within 2 s to what ", who, " for .*\n"));
  const std::regex any("frit: error");
  EXPECT_EQ(std::distance(std::sregex_iterator(outcome.errors.begin(), outcome.errors.end(), any), std::sregex_iterator()), 1) << outcome;
  EXPECT_GE(step_of(directory), 6);
}

TEST_F(Faults, OneThatHangsIsNamedByOne) {
  expect_one_that_hangs(3, 1);
  expect_one_that_hangs(2, 0);
}

TEST_F(Faults, ProcessesThatAreStoppedTogetherGoOnTogether) {
  const std::unique_ptr<Run> run = start(2, with(learn_quarters("8"), {"--run-dir", "run"}), "3");
  ASSERT_TRUE(wait_for_step(*run, "run", 2));
  for (const int signal : {SIGSTOP, SIGCONT}) {
    for (const pid_t process : run->numbers) kill(process, signal);
    if (signal == SIGSTOP) std::this_thread::sleep_for(5s);
  }
  const Outcome outcome = run->launcher.finish();
  EXPECT_EQ(outcome.code, 0) << outcome;
}

}  // namespace
}  // namespace frit
