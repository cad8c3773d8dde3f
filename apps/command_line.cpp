#include "frit/command_line.h"

#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/model_source.h"
#include "apps/common/process.h"
#include "apps/common/usage.h"
#include "frit/core/warning.h"

namespace {

using namespace frit::apps;

int run(int argc, char** argv) {
  CLI::App app("A small deep-learning runtime for convolutional networks.", "frit");
  app.set_version_flag("--version", "frit " FRIT_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 success, 1 a check failed or a bug, 2 usage, 3 bad input file, 4 file system, 5 device, 6 out of memory,\n"
      "7 diverged, 130 or 143 interrupted.");
  Action action;
  for (const auto add : {add_train, add_infer, add_verify, add_gradcheck, add_graph, add_bench, add_info}) add(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    return app.exit(request);  // prints the help or the version
  } catch (const CLI::ParseError& error) {
    if (argc < 2)
      std::cerr << app.help();
    else
      print_error(explain(app, error));
    return exit_usage;
  }
  return action();
}

}  // namespace

int frit::run_command_line(int argc, char** argv) {
  prepare_process();
  frit::set_warning_handler(print_warning);
  try {
    return finish_output(run(argc, argv));
  } catch (...) {
    return report_current_exception();
  }
}
