#include "apps/common/processes.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <set>
#include <thread>

#include "program.h"

namespace frit::apps {
namespace {

class Processes : public ProgramTest {
 protected:
  /// Runs the shell's script as each of the processes; returns the exit code.
  int run_script(const std::string& script, int count, double seconds = 10) {
    testing::internal::CaptureStderr();
    const int code = run_processes({"/bin/sh", "-c", "cd " + folder.string() + "; " + script}, count, seconds);
    errors = testing::internal::GetCapturedStderr();
    return code;
  }
  std::set<std::string> names() const {
    const std::vector<std::string> list = files();
    return {list.begin(), list.end()};
  }

  std::string errors;
};

TEST_F(Processes, KnowTheirRanksAndWhereTheyMeet) {
  EXPECT_EQ(run_script("echo $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT > $RANK", 3), 0);
  EXPECT_EQ(names(), (std::set<std::string>{"0", "1", "2"}));
  EXPECT_TRUE(content("0").starts_with("3 0 127.0.0.1 ")) << content("0");
  EXPECT_EQ(content("0").substr(4), content("2").substr(4));
  EXPECT_TRUE(content("2").starts_with("3 2 ")) << content("2");
  EXPECT_EQ(errors, "");
}

TEST_F(Processes, OnlyTheFirstWritesToStandardOutput) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_script("echo from $RANK", 2), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "from 0\n");
  EXPECT_EQ(errors, "from 1\n");
}

TEST_F(Processes, EndWithTheOneThatFails) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(
      run_script("trap 'touch ended$RANK; exit 0' TERM; if [ $RANK = 1 ]; then sleep 0.3; exit 7; fi; while true; do sleep 0.05; done", 3),
      7);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(9));
  EXPECT_EQ(errors, "frit: error: process 1 ended with exit code 7; the others are ended\n");
  EXPECT_EQ(names(), (std::set<std::string>{"ended0", "ended2"})) << "in good order";
}

TEST_F(Processes, AreKilledIfTheyDoNotEnd) {
  EXPECT_EQ(run_script("trap '' TERM; if [ $RANK = 0 ]; then sleep 0.3; kill -SEGV $$; fi; while true; do sleep 0.05; done", 2, 0.3),
            128 + SIGSEGV);
  EXPECT_EQ(errors, "frit: error: process 0 was ended by signal 11 (Segmentation fault); the others are ended\n");
}

TEST_F(Processes, ThatLoseTheConnectionAreNotToBlame) {
  EXPECT_EQ(run_script("[ $RANK = 2 ] && exit 6; exit 5", 3), 6);
  EXPECT_TRUE(errors.starts_with("frit: error: process 2 ended with exit code 6")) << errors;
}

TEST_F(Processes, ThatCannotBeStarted) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_processes({"/no/such/program"}, 2), 127);
  (void)testing::internal::GetCapturedStderr();
}

TEST_F(Processes, GetSignalsOnce) {
  for (const auto& [signal, name] : {std::pair(SIGINT, "INT"), std::pair(SIGTERM, "TERM")}) {
    const pid_t process = fork();
    ASSERT_GE(process, 0);
    if (process == 0) {
      const std::string script =
          "trap 'echo got >> " + std::string(name) + "$RANK' " + name + "; touch ready$RANK; sleep 3; exit " + std::to_string(128 + signal);
      _exit(run_processes({"/bin/sh", "-c", "cd " + folder.string() + "; " + script}, 2));
    }
    while (!names().contains("ready0") || !names().contains("ready1")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(process, signal);
    int status = 0;
    ASSERT_EQ(waitpid(process, &status, 0), process);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + signal);
    for (const char* rank : {"0", "1"}) EXPECT_EQ(content(name + std::string(rank)), "got\n");
    for (const char* file : {"ready0", "ready1"}) std::filesystem::remove(folder / file);
  }
}

TEST_F(Processes, StopTogetherAndGoOnTogether) {
  const pid_t parent = fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    const std::string script = "echo $$ > made$RANK; mv made$RANK number$RANK; while [ ! -e end ]; do :; done";
    _exit(run_processes({"/bin/sh", "-c", "cd " + folder.string() + "; " + script}, 2));
  }
  while (!names().contains("number0") || !names().contains("number1")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::vector<pid_t> children = {std::stoi(content("number0")), std::stoi(content("number1"))};
  const auto all = [&](bool stopped) {
    return std::all_of(children.begin(), children.end(), [&](pid_t child) { return (state_of(child) == 'T') == stopped; });
  };
  kill(parent, SIGTSTP);
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, WUNTRACED), parent);
  EXPECT_TRUE(WIFSTOPPED(status));
  for (int i = 0; i < 1000 && !all(true); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(all(true));
  kill(parent, SIGCONT);
  for (int i = 0; i < 1000 && !all(false); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(all(false));
  write("end", std::string());
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(OwnCommandLine, IsThatOfTheProgram) {
  const std::vector<std::string> words = own_command_line();
  ASSERT_FALSE(words.empty());
  EXPECT_TRUE(std::filesystem::exists(words[0])) << words[0];
}

TEST_F(Processes, AreNoMoreThanTheMachineHasGpus) {
  const std::vector<std::string> train = {"train", "classifier", "--data", "nothing.npz", "--gpus", "2"};
  Outcome outcome = run(train);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors, "frit: error: --gpus 2: this machine has 0 GPUs\n");
  std::vector<std::string> on_cpu = train;
  on_cpu.insert(on_cpu.end(), {"--device", "cpu"});
  outcome = run(on_cpu);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors, "frit: error: --gpus 2 takes GPUs, and --device is cpu\n");
  outcome = run_program({.arguments = train, .directory = folder, .environment = {"PMI_RANK=0", "PMI_SIZE=4"}});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors, "frit: error: --gpus 2 starts processes, and a launcher has started 4 already: give one of the two\n");
}

}  // namespace
}  // namespace frit::apps
