#include "frit/core/communication/launch.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "frit/core/error.h"

namespace frit {
namespace {

using Variables = std::map<std::string, std::string>;

/// While it lives, the environment says this of launchers, and no more.
class Environment {
 public:
  explicit Environment(const Variables& variables) {
    for (const char* name : names_) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const char* name : names_) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static constexpr const char* names_[] = {"RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "MPI_LOCALRANKID",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_LOCALID",
                                           "SLURM_STEP_ID",
                                           "SLURM_JOB_ID",
                                           "SLURM_STEP_NODELIST",
                                           "SLURM_LAUNCH_NODE_IPADDR"};
  Variables before_;
};

std::optional<Launch> launch_of(const Variables& variables) {
  const Environment environment(variables);
  return Launch::from_environment();
}

/// What is wrong with the variables; nothing if they do.
std::string error_of(const Variables& variables) {
  try {
    (void)launch_of(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return {};
}

/// `changes` take the place of what is there; an empty value is none.
Variables with(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

const Variables torchrun = {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
const Variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
const Variables slurm = {{"SLURM_PROCID", "2"},  {"SLURM_NTASKS", "6"},   {"SLURM_LOCALID", "0"},
                         {"SLURM_STEP_ID", "1"}, {"SLURM_JOB_ID", "100"}, {"SLURM_STEP_NODELIST", "node[07-09,11]"}};

TEST(Launch, IsNoneOfAProcessThatWasStartedAlone) {
  EXPECT_FALSE(launch_of({}));
  EXPECT_FALSE(launch_of({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "1234"}}));
  EXPECT_FALSE(launch_of({{"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(launch_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(launch_of({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_FALSE(launch_of(with(slurm, {{"SLURM_STEP_ID", ""}}))) << "a batch script";
  EXPECT_FALSE(launch_of(with(slurm, {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}))) << "salloc's shell";
}

void expect_launch(const std::optional<Launch>& launch, const Launch& expected) {
  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->rank, expected.rank);
  EXPECT_EQ(launch->size, expected.size);
  EXPECT_EQ(launch->local_rank, expected.local_rank);
  EXPECT_EQ(launch->mpi, expected.mpi);
  EXPECT_EQ(launch->address, expected.address);
  EXPECT_EQ(launch->port, expected.port);
}

TEST(Launch, IsTorchruns) {
  expect_launch(launch_of(torchrun), {.rank = 5, .size = 8, .local_rank = 1, .address = "node1", .port = 29500});
  EXPECT_EQ(launch_of(with(torchrun, {{"LOCAL_RANK", ""}}))->local_rank, 0) << "a process a machine";
}

TEST(Launch, IsMpiruns) {
  expect_launch(launch_of(open_mpi), {.rank = 3, .size = 4, .local_rank = 1, .mpi = true});
  expect_launch(launch_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MASTER_ADDR", "::1"}, {"MASTER_PORT", "77"}}),
                {.rank = 1, .size = 2, .local_rank = 1, .mpi = true, .address = "::1", .port = 77});
}

TEST(Launch, IsSruns) {
  const std::optional<Launch> launch = launch_of(slurm);
  ASSERT_TRUE(launch);
  const int port = launch_of(with(slurm, {{"SLURM_PROCID", "3"}}))->port;  // all processes come to the same
  expect_launch(launch, {.rank = 2, .size = 6, .local_rank = 0, .mpi = true, .address = "node07", .port = port});
  EXPECT_NE(launch->port, launch_of(with(slurm, {{"SLURM_STEP_ID", "2"}}))->port);
  EXPECT_EQ(launch_of(with(slurm, {{"SLURM_STEP_NUM_TASKS", "3"}}))->size, 3) << "a step of less than the job";
  EXPECT_EQ(launch_of(with(slurm, {{"MASTER_ADDR", "other"}, {"MASTER_PORT", "5"}}))->address, "other");
}

TEST(Launch, FindsTheFirstOfSlurmsHosts) {
  const auto first = [](const char* list) {
    return launch_of(with(slurm, {{"SLURM_STEP_NODELIST", list}, {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}}))->address;
  };
  EXPECT_EQ(first("login"), "login");
  EXPECT_EQ(first("a,b[1-2]"), "a");
  EXPECT_EQ(first("a[3,5-6],b"), "a3");
  EXPECT_EQ(first("r[0-1]n[003-005]-ib"), "r0n003-ib");
  EXPECT_EQ(first(""), "10.0.0.1");
  EXPECT_EQ(first("a["), "a") << "cut short";
}

TEST(Launch, IsOfTheInnermostLauncher) {
  Variables all = with(with(slurm, open_mpi), torchrun);
  EXPECT_EQ(launch_of(all)->rank, 5);
  EXPECT_EQ(launch_of(with(all, {{"RANK", ""}}))->rank, 3) << "mpirun starts its processes by srun; others use WORLD_SIZE";
  const Variables pmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
  EXPECT_EQ(launch_of(with(slurm, pmi))->rank, 2) << "srun --mpi=pmi2";
  EXPECT_EQ(launch_of(with(with(slurm, pmi), {{"MPI_LOCALRANKID", "0"}}))->rank, 1) << "MPICH's mpirun within a job";
}

TEST(Launch, RefusesWhatDoesNotFit) {
  EXPECT_EQ(error_of({{"RANK", "0"}}), "RANK is set, but WORLD_SIZE is not");
  EXPECT_EQ(error_of({{"WORLD_SIZE", "4"}}), "WORLD_SIZE is 4, but RANK is not set");
  EXPECT_EQ(error_of({{"PMI_RANK", "0"}}), "PMI_RANK is set, but PMI_SIZE is not");
  EXPECT_EQ(error_of(with(torchrun, {{"RANK", "8"}})), "RANK is 8, but WORLD_SIZE is 8: ranks go from 0 to 7");
  EXPECT_EQ(error_of(with(torchrun, {{"RANK", "one"}})), "RANK is \"one\": expected an integer from 0 to 1048576");
  EXPECT_EQ(error_of(with(torchrun, {{"RANK", "-1"}})), "RANK is \"-1\": expected an integer from 0 to 1048576");
  EXPECT_EQ(error_of(with(torchrun, {{"RANK", "1.5"}})), "RANK is \"1.5\": expected an integer from 0 to 1048576");
  EXPECT_EQ(error_of(with(torchrun, {{"WORLD_SIZE", "99999999999"}})),
            "WORLD_SIZE is \"99999999999\": expected an integer from 1 to 1048576");
  EXPECT_EQ(error_of(with(torchrun, {{"LOCAL_RANK", "8"}})), "LOCAL_RANK is 8, but WORLD_SIZE is 8");
  EXPECT_EQ(error_of(with(torchrun, {{"MASTER_PORT", "65536"}})), "MASTER_PORT is \"65536\": expected an integer from 1 to 65535");
  EXPECT_EQ(error_of(with(torchrun, {{"MASTER_ADDR", ""}})), "RANK is set, but MASTER_ADDR is not: where do the processes meet?");
  EXPECT_EQ(error_of(with(slurm, {{"SLURM_NTASKS", ""}})), "SLURM_PROCID is set, but SLURM_NTASKS is not");
}

}  // namespace
}  // namespace frit
