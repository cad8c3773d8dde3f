#pragma once

// The program `frit` as a process, for tests.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "frit/core/error.h"
#include "sanitized.h"

namespace frit {

/// How to start the program.
struct ProgramLaunch {
  std::vector<std::string> arguments;
  std::filesystem::path directory;            ///< that it runs in
  std::vector<std::string> environment = {};  ///< "NAME=value", besides what this process has
  bool gpu = false;                           ///< sees the machine's GPUs
  std::size_t memory_limit = 0;               ///< bytes of address space; 0: none
  std::size_t file_limit = 0;                 ///< bytes of a file that it writes; 0: none
  std::string input = {};                     ///< file or FIFO that is its standard input
  enum Output { captured, closed, no_reader, full } output = captured;
  std::string program = FRIT_PROGRAM;
};

/// What came of it.
struct Outcome {
  int code = -1;  ///< -1 after a signal
  int signal = 0;
  std::string output, errors;  ///< stdout and stderr
};

inline std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << "exit code " << outcome.code << ", signal " << outcome.signal << "\n--- stdout\n"
             << outcome.output.substr(0, 2000) << "\n--- stderr\n"
             << outcome.errors.substr(0, 2000);
}

class Process {
 public:
  explicit Process(const ProgramLaunch& launch) {
    std::vector<std::string> words = {launch.program};
    words.insert(words.end(), launch.arguments.begin(), launch.arguments.end());
    std::vector<std::string> variables = launch.environment;
    if (!launch.gpu) variables.emplace_back("CUDA_VISIBLE_DEVICES=");
    variables.emplace_back("FRIT_PLAN_CACHE=off");  // the first of a name counts
    if (!launch.gpu) variables.emplace_back("FRIT_SEARCH=heuristic");
    const std::size_t ours = variables.size();
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string text = *variable, name = text.substr(0, text.find('=') + 1);
      const auto given = [&](const std::string& other) { return other.starts_with(name); };
      if (std::none_of(variables.begin(), variables.begin() + static_cast<std::ptrdiff_t>(ours), given)) variables.push_back(text);
    }
    const std::vector<char*> argv = pointers(words), envp = pointers(variables);
    std::array<int, 2> output{}, errors{};
    if (pipe(output.data()) != 0 || pipe(errors.data()) != 0) fail(ErrorKind::bug, "pipe");
    if (launch.output == ProgramLaunch::no_reader) close_stream(output[0]);  // before the program can write
    id_ = fork();
    if (id_ == 0) {
      become(launch, output[1], errors[1], argv, envp);
      _exit(127);
    }
    close(output[1]);
    close(errors[1]);
    output_ = output[0];
    errors_ = errors[0];
  }

  ~Process() {
    if (id_ > 0) {
      kill(id_, SIGKILL);
      waitpid(id_, nullptr, 0);
    }
    close_stream(output_);
    close_stream(errors_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// Whether the text came on stderr before the process ended.
  bool wait_for_error_text(const std::string& text) {
    while (outcome_.errors.find(text) == std::string::npos) {
      if (!pump()) return false;
    }
    return true;
  }

  /// Whether as many bytes came on stdout before the process ended.
  bool wait_for_output(std::size_t bytes) {
    while (outcome_.output.size() < bytes) {
      if (!pump()) return false;
    }
    return true;
  }

  void send(int signal) const { kill(id_, signal); }
  bool ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  }

  Outcome finish() {
    while (pump()) {
    }
    int status = 0;
    waitpid(id_, &status, 0);
    id_ = -1;
    if (WIFEXITED(status)) outcome_.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcome_.signal = WTERMSIG(status);
    return outcome_;
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> result;
    for (std::string& word : words) result.push_back(word.data());
    result.push_back(nullptr);
    return result;
  }

  /// In the child: only calls that are safe after a fork.
  static void become(const ProgramLaunch& launch, int output, int errors, const std::vector<char*>& argv, const std::vector<char*>& envp) {
    const auto limit = [](auto resource, std::size_t bytes) {
      const struct rlimit both = {bytes, bytes};
      if (bytes > 0) setrlimit(resource, &both);
    };
    if (chdir(launch.directory.c_str()) != 0) return;
    if (!launch.input.empty()) dup2(open(launch.input.c_str(), O_RDONLY), STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(errors, STDERR_FILENO);
    if (launch.output == ProgramLaunch::full) dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO);
    for (int descriptor = STDERR_FILENO + 1; descriptor < 64; ++descriptor) close(descriptor);
    if (launch.output == ProgramLaunch::closed) close(STDOUT_FILENO);
    limit(RLIMIT_AS, launch.memory_limit);
    limit(RLIMIT_FSIZE, launch.file_limit);
    std::signal(SIGPIPE, SIG_DFL);
    execve(argv[0], argv.data(), envp.data());
  }

  /// Takes in what there is; false when both streams have ended. Kills a process that takes two minutes.
  bool pump() {
    if (output_ < 0 && errors_ < 0) return false;
    if (std::chrono::steady_clock::now() - start_ > std::chrono::minutes(2)) kill(id_, SIGKILL);
    std::array<struct pollfd, 2> streams = {{{output_, POLLIN, 0}, {errors_, POLLIN, 0}}};
    if (poll(streams.data(), streams.size(), 1000) <= 0) return true;
    if (streams[0].revents != 0) take(output_, outcome_.output);
    if (streams[1].revents != 0) take(errors_, outcome_.errors);
    return true;
  }

  static void take(int& descriptor, std::string& text) {
    std::array<char, 4096> buffer;
    const ssize_t count = read(descriptor, buffer.data(), buffer.size());
    if (count > 0)
      text.append(buffer.data(), static_cast<std::size_t>(count));
    else
      close_stream(descriptor);
  }

  static void close_stream(int& descriptor) {
    if (descriptor >= 0) close(descriptor);
    descriptor = -1;
  }

  int id_ = -1;
  int output_ = -1;
  int errors_ = -1;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Outcome outcome_;
};

/// 'T' of a process that is stopped, 'Z' of one that ended and was not asked for (see proc(5)); 0 of none.
inline char state_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  return std::getline(file, line) ? line[line.rfind(')') + 2] : '\0';
}

inline Outcome run_program(const ProgramLaunch& launch) { return Process(launch).finish(); }

/// A folder of its own for each test, removed with it.
class ProgramTest : public testing::Test {
 protected:
  ProgramTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "frit_apps_XXXXXX").string();
    folder = mkdtemp(pattern.data());
  }
  ~ProgramTest() override { std::filesystem::remove_all(folder); }

  Outcome run(std::vector<std::string> arguments) const { return run_program({.arguments = std::move(arguments), .directory = folder}); }
  std::string path(const std::string& name) const { return (folder / name).string(); }

  std::string content(const std::string& name) const {
    std::ifstream stream(folder / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void write(const std::string& name, const std::string& bytes) const { std::ofstream(folder / name, std::ios::binary) << bytes; }
  void write(const std::string& name, const std::vector<std::byte>& bytes) const {
    std::ofstream(folder / name, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  }

  /// Names of what is there, sorted.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::filesystem::path folder;
};

}  // namespace frit
