#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace frit::apps {

/// What is wrong with a command line, in one line, with the nearest known command or option.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

}  // namespace frit::apps
