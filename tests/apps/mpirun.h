#pragma once

#include "apps/program.h"
#include "several_processes.h"

namespace frit {

#ifdef FRIT_MPIRUN
inline constexpr const char* mpirun = FRIT_MPIRUN;
#else
inline constexpr const char* mpirun = nullptr;  // frit was built without MPI
#endif

/// One program, with its arguments, for each of several processes, which wait for each other for so many seconds. Wants an mpirun.
inline ProgramLaunch under_mpirun(const std::filesystem::path& directory, const std::vector<std::vector<std::string>>& programs,
                                  const std::string& seconds = "60") {
  ProgramLaunch launch{.arguments = {}, .directory = directory, .environment = environment_of_several(), .program = mpirun};
  launch.environment.push_back("FRIT_COMMUNICATION_TIMEOUT=" + seconds);
  for (const std::vector<std::string>& program : programs) {
    if (!launch.arguments.empty()) launch.arguments.emplace_back(":");
    launch.arguments.insert(launch.arguments.end(), {"-n", "1"});
    launch.arguments.insert(launch.arguments.end(), program.begin(), program.end());
  }
  return launch;
}

}  // namespace frit
