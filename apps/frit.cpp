#include "frit/command_line.h"

int main(int argc, char** argv) { return frit::run_command_line(argc, argv); }
