// frit's program with one operator more.

#include <frit/command_line.h>

#include "swish.h"

int main(int argc, char** argv) {
  register_swish();
#ifdef WITH_CUDA
  register_swish_on_cuda();
#endif
  return frit::run_command_line(argc, argv);
}
