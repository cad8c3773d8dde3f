#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "frit/core/communication/launch.h"
#include "frit/core/error.h"

namespace frit {

/// Of processes that mpirun starts: Open MPI by root, on fewer cores than processes, in containers; the leaks are its own.
inline std::vector<std::string> environment_of_several() {
  return {"OMPI_ALLOW_RUN_AS_ROOT=1",
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
          "OMPI_MCA_rmaps_base_oversubscribe=1",
          "OMPI_MCA_mpi_yield_when_idle=1",
          "OMPI_MCA_btl_vader_single_copy_mechanism=none",
          "ASAN_OPTIONS=detect_leaks=0",
          "FRIT_THREADS=1"};
}

/// What several processes printed, and whether all of them ended well.
struct SeveralProcesses {
  std::string output;
  bool succeeded = false;
};

/// Runs the test that calls it once more, in so many processes that mpirun starts. Nothing in these, which go on with the test. Without an
/// mpirun nothing is run, and the test is skipped.
inline std::optional<SeveralProcesses> start_several_processes(int processes) {
  if (const auto launch = Launch::from_environment(); launch && launch->size == processes) return std::nullopt;
  if (std::system("mpirun --version > /dev/null 2>&1") != 0) {
    [] { GTEST_SKIP() << "no mpirun (Debian: openmpi-bin)"; }();
    return SeveralProcesses{};
  }
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  std::string command = "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX ";
  for (const std::string& variable : environment_of_several()) command += variable + ' ';
  command += concat("timeout 120 mpirun -n ", processes, ' ', std::filesystem::read_symlink("/proc/self/exe").string(),
                    " --gtest_brief=1 --gtest_filter=", test.test_suite_name(), '.', test.name(), " 2>&1");
  SeveralProcesses result;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) result.output += static_cast<char>(c);
  result.succeeded = pclose(pipe) == 0;
  return result;
}

/// Likewise for a test that passes in each of them: true in these, false in the process that started them, which has nothing more to do.
inline bool in_several_processes(int processes) {
  const std::optional<SeveralProcesses> started = start_several_processes(processes);
  if (started && !testing::Test::IsSkipped()) {
    EXPECT_TRUE(started->succeeded) << started->output;
  }
  return !started;
}

}  // namespace frit
