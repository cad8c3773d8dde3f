#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace frit::apps {

/// A word that could come next, and what it means.
struct Candidate {
  std::string word, meaning;
};

/// What the last of `words`, which follow the program's name, could be completed to. None: a path.
std::vector<Candidate> completions(const CLI::App& app, const std::vector<std::string>& words);

/// The first argument with which a shell asks the program for completions of the arguments after it.
inline constexpr const char* completion_request = "__complete";

/// A script for bash, zsh or fish that has the program complete its own command lines.
std::string completion_script(const std::string& shell);

}  // namespace frit::apps
