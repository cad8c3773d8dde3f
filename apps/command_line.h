#pragma once

namespace frit {

/// The command line of the program `frit`, for a program of your own that registers operators and models first: main() returns what this
/// does, the exit code. It prints results on stdout and all else on stderr, throws nothing, and leaves signals and the warning handler as
/// the program `frit` needs them.
int run_command_line(int argc, char** argv);

}  // namespace frit
