#pragma once

#include "apps/common/config_file.h"

namespace frit::apps {

/// Says in one line on stderr what is wrong with a command line or with what stood in for its options, with the nearest known command or
/// option. Returns the exit code.
int report(const CLI::App& app, const ConfigFile& config, const CLI::ParseError& error);

}  // namespace frit::apps
