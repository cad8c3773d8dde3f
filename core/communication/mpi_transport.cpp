#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <vector>

#include "frit/core/communication/mpi/module.h"
#include "frit/core/communication/transport.h"
#include "frit/core/error.h"

namespace frit {
namespace {

/// Where the module may lie: with the library or program that this is a part of, or where it was built.
std::vector<std::string> module_paths() {
  std::vector<std::string> paths;
  Dl_info self;
  static const int here = 0;
  if (dladdr(&here, &self) != 0 && self.dli_fname != nullptr) {
    std::filesystem::path file = self.dli_fname;
    std::error_code ignored;
    if (!file.has_parent_path()) file = std::filesystem::read_symlink("/proc/self/exe", ignored);  // a program that PATH has found
    const std::filesystem::path folder = file.parent_path();
    for (const char* relative :
         {"", FRIT_LIBRARIES_FROM_PROGRAMS, "../.."}) {  // the last: a library of one level of processors lies deeper
      paths.push_back((folder / relative / "libfrit-mpi.so").string());
    }
  }
  paths.emplace_back(FRIT_MPI_MODULE);
  return paths;
}

const mpi::Functions& load_module() {
  std::string why;
  for (const std::string& path : module_paths()) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;
    // Global: MPI's own modules look for its symbols.
    void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    void* const entry = loaded == nullptr ? nullptr : dlsym(loaded, mpi::entry_name);
    if (entry != nullptr) return *reinterpret_cast<mpi::Entry>(entry)();
    why = concat(": ", dlerror());
  }
  fail(ErrorKind::device, "MPI: this process is one of several, and libfrit-mpi.so cannot be loaded",
       why.empty() ? "; it is built with frit where MPI is installed (Debian: libopenmpi-dev)" : why);
}

class MpiTransport final : public Transport {
 public:
  MpiTransport() : functions_(load_module()) {
    std::array<char, 256> library{};
    const double seconds = communication_timeout() + roll_call_seconds;  // as long as calls in which others can be asked
    check(functions_.start(&rank_, &size_, library.data(), library.size(), seconds), "MPI_Init_thread", seconds);
    library_ = library.data();
  }
  /// While an error is on its way the others may be waiting for this process, which would wait for them in the end; mpirun ends them if it
  /// just stops.
  ~MpiTransport() override {
    if (std::uncaught_exceptions() > 0) return;
    functions_.finish_at_exit();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string description() const override { return library_; }

  void all_gather(const void* own, void* all, std::size_t bytes) override {
    check(functions_.all_gather(own, all, bytes, communication_timeout()), "MPI_Iallgather");
  }
  void all_to_all(const void* sent, void* received, std::size_t bytes) override {
    check(functions_.all_to_all(sent, received, bytes, communication_timeout()), "MPI_Ialltoall");
  }
  void broadcast(void* data, std::size_t bytes, int root) override {
    const std::size_t whole = bytes / mpi::unit_bytes * mpi::unit_bytes;
    const auto part = [&](std::size_t first, std::size_t end) {
      if (first == end) return;
      check(functions_.broadcast(static_cast<std::byte*>(data) + first, end - first, root, communication_timeout()), "MPI_Ibcast");
    };
    part(0, whole);
    part(whole, bytes);
  }
  void tell_that_it_waits() override { check(functions_.tell_that_it_waits(), "MPI_Iprobe"); }
  void find_lost(double waited, const std::function<bool()>& done) override { check(functions_.call_roll(done), "MPI_Iprobe", waited); }
  [[noreturn]] void abort() override {
    std::cerr << std::flush;
    functions_.abort();
    std::abort();
  }

 private:
  void check(int status, const char* call, double waited = communication_timeout()) const {
    if (status == 0) return;
    if (status == mpi::told) throw_told("MPI: another process has given up waiting, and says for whom");
    if (status == mpi::timed_out) {
      const bool* const present = functions_.present();
      if (present == nullptr) fail(ErrorKind::device, "MPI: process ", rank_, " waited ", waited, " s for the others to begin");
      std::vector<int> lost;
      for (int r = 0; r < size_; ++r) {
        if (!present[r]) lost.push_back(r);
      }
      throw ProcessLost(concat("MPI: ", lost_text(lost, waited)));
    }
    std::array<char, 512> text{};
    functions_.describe_error(status, text.data(), text.size());
    fail(ErrorKind::device, "MPI: ", call, " failed: ", text.data());
  }

  const mpi::Functions& functions_;
  int rank_ = 0, size_ = 1;
  std::string library_;
};

}  // namespace

std::unique_ptr<Transport> mpi_transport() { return std::make_unique<MpiTransport>(); }

}  // namespace frit
