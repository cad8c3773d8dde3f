#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "frit/core/communication/launch.h"
#include "frit/core/error.h"

namespace frit {

/// Runs the test that calls it once more, in so many processes that mpirun starts. True in these, which go on; false in the process that
/// started them, which has nothing more to do, and where there is no mpirun, which skips the test.
inline bool in_several_processes(int processes) {
  if (const auto launch = Launch::from_environment(); launch && launch->size == processes) return true;
  if (std::system("mpirun --version > /dev/null 2>&1") != 0) {
    [] { GTEST_SKIP() << "no mpirun (Debian: openmpi-bin)"; }();
    return false;
  }
  const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
  // Open MPI by root, on fewer cores than processes, in containers; the leaks are its own.
  const std::string command = concat(
      "env -u GTEST_TOTAL_SHARDS -u GTEST_SHARD_INDEX OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none ASAN_OPTIONS=detect_leaks=0 FRIT_THREADS=1 "
      "FRIT_COMMUNICATION_TIMEOUT=60 timeout 120 mpirun -n ",
      processes, ' ', std::filesystem::read_symlink("/proc/self/exe").string(), " --gtest_brief=1 --gtest_filter=", test.test_suite_name(),
      '.', test.name());
  const int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << command;
  return false;
}

}  // namespace frit
