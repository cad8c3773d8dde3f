#include "frit/core/communication/launch.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "frit/core/error.h"
#include "frit/core/text.h"

namespace frit {
namespace {

using Name = const char*;

/// A variable that is set to nothing counts as one that is not set, as scripts write it.
bool is_set(Name name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

std::string text_of(Name name) { return is_set(name) ? std::getenv(name) : ""; }

int number_of(Name name, int least, int most) {
  require(is_set(name), name, " is not set");
  const std::string text = text_of(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  require(is_number && value >= least && value <= most, name, " is \"", printable(text), "\": expected an integer from ", least, " to ",
          most);
  return value;
}

constexpr int most_processes = 1 << 20;

/// The variables in which a launcher says which of its processes this one is.
struct Names {
  Name rank, size, local_rank;
};

void read_ranks(Launch& launch, const Names& names) {
  const bool both = is_set(names.rank) == is_set(names.size);
  require(both, is_set(names.rank) ? names.rank : names.size, " is set, but ", is_set(names.rank) ? names.size : names.rank, " is not");
  launch.size = number_of(names.size, 1, most_processes);
  launch.rank = number_of(names.rank, 0, most_processes);
  require(launch.rank < launch.size, names.rank, " is ", launch.rank, ", but ", names.size, " is ", launch.size, ": ranks go from 0 to ",
          launch.size - 1);
  // Not set where each machine has one process.
  if (!is_set(names.local_rank)) return;
  launch.local_rank = number_of(names.local_rank, 0, most_processes);
  require(launch.local_rank < launch.size, names.local_rank, " is ", launch.local_rank, ", but ", names.size, " is ", launch.size);
}

void read_address(Launch& launch) {
  if (is_set("MASTER_ADDR")) launch.address = text_of("MASTER_ADDR");
  if (is_set("MASTER_PORT")) launch.port = number_of("MASTER_PORT", 1, 65535);
}

/// "node1" of "node[1-4,9],login"; "a0b03" of "a[0-1]b[03-05]".
std::string first_host(const std::string& list) {
  std::string host;
  for (std::size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const std::size_t end = list.find_first_of(",-]", i);
    host += list.substr(i + 1, end == std::string::npos ? end : end - i - 1);
    i = list.find(']', i);
    if (i == std::string::npos) break;
  }
  return host;
}

/// All processes of a job step agree on this port without being told; those of other steps on a machine have other ones.
int slurm_port() {
  const auto number = [](Name name) { return is_set(name) ? std::strtoul(std::getenv(name), nullptr, 10) : 0; };
  return static_cast<int>(20000 + (number("SLURM_JOB_ID") * 16 + number("SLURM_STEP_ID")) % 10000);
}

Launch torchrun() {
  Launch launch;
  read_ranks(launch, {"RANK", "WORLD_SIZE", "LOCAL_RANK"});
  read_address(launch);
  for (const Name name : {"MASTER_ADDR", "MASTER_PORT"})
    require(launch.size == 1 || is_set(name), "RANK is set, but ", name, " is not: where do the processes meet?");
  return launch;
}

Launch over_mpi(const Names& names) {
  Launch launch{.mpi = true};
  read_ranks(launch, names);
  read_address(launch);
  return launch;
}

Launch slurm() {
  const Name size = is_set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  Launch launch{.mpi = true};
  read_ranks(launch, {"SLURM_PROCID", size, "SLURM_LOCALID"});
  launch.address = first_host(text_of("SLURM_STEP_NODELIST"));
  if (launch.address.empty()) launch.address = text_of("SLURM_LAUNCH_NODE_IPADDR");
  launch.port = slurm_port();
  read_address(launch);
  return launch;
}

// The innermost launcher counts: torchrun runs within srun or mpirun and not the other way round; mpirun starts its processes through srun,
// whose variables they then see too. srun itself can set PMI_RANK, but not the rank on a machine.
Launch innermost() {
  if (is_set("RANK")) return torchrun();
  if (is_set("OMPI_COMM_WORLD_RANK")) return over_mpi({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"});
  const bool step = is_set("SLURM_STEP_ID") && is_set("SLURM_PROCID");  // a batch script has no step
  if (is_set("PMI_RANK") && (is_set("MPI_LOCALRANKID") || !step)) return over_mpi({"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"});
  if (step) return slurm();
  // Scripts may give all processes their number; without a rank each would train alone.
  const int size = is_set("WORLD_SIZE") ? number_of("WORLD_SIZE", 1, most_processes) : 1;
  require(size == 1, "WORLD_SIZE is ", size, ", but RANK is not set");
  return {};
}

}  // namespace

std::optional<Launch> Launch::from_environment() {
  const Launch launch = innermost();
  return launch.size > 1 ? std::optional(launch) : std::nullopt;
}

}  // namespace frit
