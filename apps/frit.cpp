#include "frit/command_line.h"
#ifdef FRIT_WITH_ONNX
#include "frit/models/onnx/onnx_model.h"
#endif

int main(int argc, char** argv) {
#ifdef FRIT_WITH_ONNX
  frit::add_onnx_format();
#endif
  return frit::run_command_line(argc, argv);
}
