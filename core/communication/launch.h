#pragma once

#include <optional>
#include <string>

namespace frit {

/// This process as one of several that a launcher started.
struct Launch {
  int rank = 0, size = 1;
  int local_rank = 0;  ///< among those of its machine: which GPU it takes
  bool mpi = false;    ///< mpirun's or srun's, which can speak MPI; else processes meet at address:port
  std::string address = {};
  int port = 0;

  /// What mpirun (Open MPI, MPICH), Slurm's srun or torchrun (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT) say in the
  /// environment, the innermost of them; none for a process that was started alone. Throws ErrorKind::argument for variables that do not
  /// fit each other.
  static std::optional<Launch> from_environment();
};

}  // namespace frit
