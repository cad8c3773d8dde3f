#include "apps/common/usage.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "apps/common/process.h"
#include "frit/core/error.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string unknown_option(const CLI::App& command, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  return concat("unknown option \"", printable(name), '"', did_you_mean(name, option_names(command)));
}

/// The option that the message names first; none if it names none.
const CLI::Option* option_of(const CLI::App& command, const std::string& message) {
  const std::size_t dashes = std::min(message.find("--"), message.size());
  const std::string name = message.substr(dashes, message.find_first_of(": ", dashes) - dashes);
  for (const CLI::Option* option : command.get_options()) {
    if (!name.empty() && option->check_name(name)) return option;
  }
  return nullptr;
}

/// The environment's variable whose value the message is about; empty for none. Variables are read for the options of all commands.
std::string variable_of(const CLI::App& app, const std::string& message) {
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const CLI::Option* const option = option_of(*command, message);
    const char* const value = option == nullptr ? nullptr : std::getenv(option->get_envname().c_str());
    if (value == nullptr || option->results() != std::vector<std::string>{value}) continue;
    const bool quoted = message.find(concat('"', value, '"')) != std::string::npos || message.ends_with(concat("= ", value));
    if (quoted) return option->get_envname();
  }
  return {};
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  // What was not understood comes before what is missing: it is most often the same thing, misspelt.
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  for (const std::string& extra : extras) {
    if (extra.size() > 1 && extra.front() == '-' && extra != "--") return unknown_option(command, extra);
  }
  if (!extras.empty() && chosen.empty()) {
    const std::vector<std::string> names = command_names(app);
    std::string list;
    for (const std::string& name : names) list += " " + name;
    return concat("unknown command \"", printable(extras.front()), "\"; commands:", list, did_you_mean(extras.front(), names));
  }
  if (!extras.empty()) return concat(command.get_name(), ": unexpected argument \"", printable(extras.front()), '"');
  const std::string where = chosen.empty() ? "" : command.get_name() + ": ";
  return where + error.what();
}

}  // namespace

int report(const CLI::App& app, const ConfigFile& config, const CLI::ParseError& error) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::Option* const option = chosen.empty() ? nullptr : option_of(*chosen.front(), error.what());
  if (option != nullptr && !config.origin(*option).empty()) fail(ErrorKind::format, config.origin(*option), ": ", error.what());
  const std::string variable = variable_of(app, error.what());
  print_error(explain(app, error) + (variable.empty() ? "" : " in $" + variable));
  return exit_usage;
}

}  // namespace frit::apps
