#include "frit/command_line.h"

#include <algorithm>
#include <iostream>
#include <span>

#include "apps/commands/commands.h"
#include "apps/common/command.h"
#include "apps/common/completion.h"
#include "apps/common/config_file.h"
#include "apps/common/model_source.h"
#include "apps/common/process.h"
#include "apps/common/usage.h"
#include "frit/core/warning.h"
#ifdef FRIT_WITH_ONNX
#include "frit/models/onnx/onnx_model.h"
#endif

namespace {

using namespace frit::apps;

/// The words as the parser wants them, from the last to the first. It would take the next word for the value of "--data=", which is empty.
std::vector<std::string> reversed_words(int argc, char** argv) {
  std::vector<std::string> words;
  for (const std::string word : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
    const bool no_value = word.starts_with("--") && word.find('=') == word.size() - 1;
    words.push_back(no_value ? word.substr(0, word.size() - 1) : word);
    if (no_value) words.emplace_back();
  }
  std::reverse(words.begin(), words.end());
  return words;
}

int run(int argc, char** argv) {
  CLI::App app("A small deep-learning runtime for convolutional networks.", "frit");
  app.set_version_flag("--version", "frit " FRIT_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 success, 1 a check failed or a bug, 2 usage, 3 bad input file, 4 file system, 5 device, 6 out of memory,\n"
      "7 diverged, 130 or 143 interrupted.");
  Action action;
  for (const auto add : {add_train, add_replay, add_infer, add_verify, add_gradcheck, add_graph, add_bench, add_tune, add_info,
#ifdef FRIT_WITH_ONNX
                         add_export,
#endif
                         add_completion})
    add(app, action);
  const std::shared_ptr<ConfigFile> config = ConfigFile::add_to(app);
  if (argc > 1 && argv[1] == std::string(completion_request)) {
    for (const Candidate& candidate : completions(app, {argv + 2, argv + argc}))
      std::cout << candidate.word << '\t' << candidate.meaning << '\n';
    return exit_success;
  }
  try {
    app.parse(reversed_words(argc, argv));
  } catch (const CLI::Success& request) {
    return app.exit(request);  // prints the help or the version
  } catch (const CLI::ParseError& error) {
    if (argc >= 2) return report(app, *config, error);
    std::cerr << app.help();
    return exit_usage;
  }
  if (config->print_requested()) {
    std::cout << config->text();
    return exit_success;
  }
  check_files(dynamic_cast<const Command&>(*app.get_subcommands().front()), config->path());
  return action();
}

}  // namespace

int frit::run_command_line(int argc, char** argv) {
  prepare_process();
  frit::set_warning_handler(print_warning);
#ifdef FRIT_WITH_ONNX
  frit::add_onnx_format();
#endif
  try {
    return finish_output(run(argc, argv));
  } catch (...) {
    return report_current_exception();
  }
}
