#include "apps/common/processes.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "apps/common/process.h"
#include "frit/core/communication/launch.h"
#include "frit/core/communication/socket.h"
#include "frit/core/cuda/device.h"
#include "frit/core/io/file.h"
#include "frit/core/thread_pool.h"

namespace frit::apps {
namespace {

/// While it lives, these signals wait until somebody asks for them; processes that are started get them as before.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    for (const int signal : {SIGINT, SIGTERM, SIGTSTP, SIGCHLD}) sigaddset(&held_, signal);
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
    (void)signal(SIGCHLD, SIG_DFL);  // who ignores it, as some supervisors do, is told of no process's end
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// The next one, or none after a while.
  int next() const {
    const timespec longest = {.tv_sec = 0, .tv_nsec = 200'000'000};
    return std::max(sigtimedwait(&held_, nullptr, &longest), 0);
  }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t held_, before_;
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

class Processes {
 public:
  Processes(const std::vector<std::string>& command_line, int count, double seconds) : seconds_(seconds) {
    const int port = tcp::free_port();
    for (int rank = 0; rank < count; ++rank) start(command_line, rank, count, port);
  }
  ~Processes() {
    send(SIGKILL);
    for (const pid_t process : running_) {
      if (process != ended) (void)waitpid(process, nullptr, 0);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  int wait() {
    while (any_runs()) {
      const int signal = signals_.next();
      if (signal == SIGINT || signal == SIGTERM) {
        interrupt_ = signal;
        send(signal);
      }
      if (signal == SIGTSTP) stop();
      take_ended();
      if (grace_ && grace_->passed()) send(SIGKILL);
    }
    return code_;
  }

 private:
  static constexpr pid_t ended = 0;

  bool any_runs() const {
    return std::any_of(running_.begin(), running_.end(), [](pid_t process) { return process != ended; });
  }

  void send(int signal) const {
    for (const pid_t process : running_) {
      if (process != ended) (void)kill(process, signal);
    }
  }

  /// All together, and on again together: none waits for one that is stopped.
  void stop() const {
    send(SIGSTOP);
    (void)raise(SIGSTOP);
    send(SIGCONT);
  }

  void start(std::vector<std::string> words, int rank, int count, int port) {
    std::vector<std::string> variables = {concat("RANK=", rank), concat("WORLD_SIZE=", count), concat("LOCAL_RANK=", rank),
                                          "MASTER_ADDR=127.0.0.1", concat("MASTER_PORT=", port)};
    if (std::getenv("FRIT_THREADS") == nullptr) variables.push_back(concat("FRIT_THREADS=", std::max(1, thread_count() / count)));
    const std::size_t own = variables.size();
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string_view text = *variable, name = text.substr(0, text.find('=') + 1);
      const bool set = std::any_of(variables.begin(), variables.begin() + static_cast<std::ptrdiff_t>(own),
                                   [&](const std::string& other) { return other.starts_with(name); });
      if (!set) variables.emplace_back(text);
    }
    const std::vector<char*> argv = pointers(words), envp = pointers(variables);
    std::cout.flush();
    const pid_t parent = getpid(), process = fork();
    if (process == 0) become(rank, parent, argv, envp);
    if (process < 0) fail(ErrorKind::out_of_memory, "cannot start a process: ", reason(errno));
    running_.push_back(process);
  }

  /// In the new process: only calls that are safe after a fork.
  [[noreturn]] void become(int rank, pid_t parent, const std::vector<char*>& argv, const std::vector<char*>& envp) const {
    // A terminal sends its signals to a whole group, and each process is to get them once. None outlives this one.
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    if (rank != 0) (void)dup2(STDERR_FILENO, STDOUT_FILENO);
    (void)sigprocmask(SIG_SETMASK, &signals_.before(), nullptr);
    (void)execve(argv[0], argv.data(), envp.data());
    _exit(127);
  }

  struct End {
    int rank, status;

    int code() const { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }
    /// Of several that ended: who lost the connection to another (a device's error) did not begin it, though it may end sooner.
    int blame() const { return code() == 0 ? 0 : code() == exit_device ? 1 : WIFSIGNALED(status) ? 3 : 2; }
  };

  void take_ended() {
    for (std::size_t r = 0; r < running_.size(); ++r) {
      End end{.rank = static_cast<int>(r), .status = 0};
      if (running_[r] == ended || waitpid(running_[r], &end.status, WNOHANG) != running_[r]) continue;
      running_[r] = ended;
      if (code_ != 0 || end.blame() <= worst_.blame()) continue;
      if (worst_.blame() == 0) verdict_ = tcp::Deadline(1);
      worst_ = end;
    }
    const bool clear = worst_.blame() > 1 || verdict_.passed() || !any_runs();
    if (code_ == 0 && worst_.blame() > 0 && clear) end_others();
  }

  void end_others() {
    code_ = worst_.code();
    if (interrupt_ != 0 && code_ == 128 + interrupt_) return;  // as it was asked to; so are the others
    const int signal = code_ - 128;
    const std::string how = WIFSIGNALED(worst_.status) ? concat("was ended by signal ", signal, " (", strsignal(signal), ')')
                                                       : concat("ended with exit code ", code_);
    // Who lost another process has said so.
    if (worst_.blame() > 1) print_error(concat("process ", worst_.rank, ' ', how, any_runs() ? "; the others are ended" : ""));
    send(SIGTERM);
    grace_.emplace(seconds_);
  }

  double seconds_;
  HeldSignals signals_;
  std::vector<pid_t> running_;  // by rank
  int code_ = 0, interrupt_ = 0;
  End worst_{.rank = 0, .status = 0};
  tcp::Deadline verdict_{0};  // until then another may prove to have begun it
  std::optional<tcp::Deadline> grace_;
};

}  // namespace

std::vector<std::string> own_command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) fail(ErrorKind::file_system, "/proc/self/cmdline cannot be read: it says what processes to start");
  words[0] = std::filesystem::read_symlink("/proc/self/exe");  // whatever the name was under which it was found
  return words;
}

int run_processes(const std::vector<std::string>& command_line, int count, double seconds) {
  return Processes(command_line, count, seconds).wait();
}

void GpuOption::add_to(CLI::App& command, const std::string& description) {
  add_number<int>(command, "--gpus", count, 1, 4096,
                  description + ". For several machines start the processes with mpirun, srun or torchrun");
}

bool GpuOption::starts_processes(const std::string& device) const {
  if (!count) return false;
  if (const std::optional<Launch> launch = Launch::from_environment()) {
    require(!launch->mpi && launch->size == *count, "--gpus ", *count, " starts processes, and a launcher has started ", launch->size,
            " already: give one of the two");
    return false;
  }
  require(device == "auto" || device == "cuda", "--gpus ", *count, " takes GPUs, and --device is ", device);
  const int there = cuda::device_count();
  require(*count <= there, "--gpus ", *count, ": this machine has ", there, there == 1 ? " GPU" : " GPUs");
  return *count > 1;
}

}  // namespace frit::apps
