#include "apps/common/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "frit/models/model.h"

namespace frit::apps {
namespace {

/// The names that the words of a positional's description stand for.
std::vector<Candidate> named(const std::string& positional) {
  std::vector<Candidate> candidates;
  const bool models = positional.find("MODEL") != std::string::npos;
  const bool operators = positional.find("OPERATOR") != std::string::npos;
  for (const std::string& name : models ? model_names() : std::vector<std::string>()) candidates.push_back({name, "model"});
  for (const ops::Operator* op : operators ? ops::registry().all() : std::vector<const ops::Operator*>()) {
    candidates.push_back({op->name, op->summary});
  }
  return candidates;
}

/// The words of "sgd|adam|adamw"; what has capitals only stands for something.
std::vector<Candidate> choices(const CLI::Option& option) {
  std::vector<Candidate> candidates;
  for (const std::string& word : CLI::detail::split(option.get_type_name(), '|')) {
    const bool literal = std::none_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
    if (literal && !word.empty()) candidates.push_back({word, ""});
  }
  return candidates;
}

void add_options(const CLI::App& command, std::vector<Candidate>& candidates) {
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) candidates.push_back({"--" + name, option->get_description()});
  }
}

/// The option that takes `value` words after the one that names it.
const CLI::Option* option_with_value(const CLI::App& command, const CLI::App& app, const std::string& name) {
  const CLI::Option* option = name.starts_with('-') ? command.get_option_no_throw(name) : nullptr;
  if (option == nullptr && name.starts_with('-')) option = app.get_option_no_throw(name);
  return option != nullptr && option->get_items_expected_max() > 0 ? option : nullptr;
}

std::vector<Candidate> candidates_for_argument(const CLI::App& command, const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<Candidate> candidates;
  if (words.back().starts_with('-')) {
    add_options(command, candidates);
    if (&command != &app) add_options(app, candidates);
    return candidates;
  }
  std::ptrdiff_t position = 0;  // among the positional arguments
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (option_with_value(command, app, words[i]) != nullptr)
      ++i;
    else
      position += words[i].starts_with('-') ? 0 : 1;
  }
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_positional() || (position > 0 && option->get_items_expected_max() <= position--)) continue;
    candidates = named(option->get_name(/*positional=*/true));
    const std::vector<Candidate> literal = choices(*option);
    candidates.insert(candidates.end(), literal.begin(), literal.end());
    break;
  }
  return candidates;
}

std::vector<Candidate> all_candidates(const CLI::App& app, std::vector<std::string> words, std::string& begun) {
  const CLI::App* command = &app;
  for (std::size_t i = 0; i + 1 < words.size() && command == &app; ++i) {
    const auto named_so = app.get_subcommands([&](const CLI::App* each) { return each->get_name() == words[i]; });
    if (named_so.empty()) continue;
    command = named_so.front();
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  if (const std::size_t equals = begun.find('='); begun.starts_with("--") && equals != std::string::npos) {
    const CLI::Option* const option = option_with_value(*command, app, begun.substr(0, equals));
    begun = begun.substr(equals + 1);
    return option == nullptr ? std::vector<Candidate>() : choices(*option);
  }
  if (words.size() > 1) {
    if (const CLI::Option* const option = option_with_value(*command, app, words[words.size() - 2])) return choices(*option);
  }
  if (command != &app || begun.starts_with('-')) return candidates_for_argument(*command, app, words);
  std::vector<Candidate> candidates;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    candidates.push_back({each->get_name(), each->get_description()});
  }
  return candidates;
}

constexpr const char* bash_script = R"(# Completion of frit's command lines: source <(frit completion bash)
_frit() {
  local line words=("${COMP_WORDS[@]:1:COMP_CWORD}")
  # bash takes --option=value for three words.
  local joined=() i
  for ((i = 0; i < ${#words[@]}; i++)); do
    if [[ ${#joined[@]} -gt 0 && (${words[i]} == "=" || ${words[i-1]} == "=") ]]; then
      joined[${#joined[@]}-1]+=${words[i]}
    else
      joined+=("${words[i]}")
    fi
  done
  COMPREPLY=()
  while IFS=$'\t' read -r line _; do COMPREPLY+=("$line"); done < <("${COMP_WORDS[0]}" __complete "${joined[@]}" 2>/dev/null)
}
complete -o default -F _frit frit
)";

constexpr const char* zsh_script = R"(#compdef frit
# Completion of frit's command lines: source <(frit completion zsh)
_frit() {
  local -a candidates
  local word meaning
  while IFS=$'\t' read -r word meaning; do
    candidates+=("${word//:/\\:}:$meaning")
  done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  [[ ${words[CURRENT]} == --*=* ]] && compset -P '*='
  if (( ${#candidates} )); then _describe frit candidates; else _files; fi
}
compdef _frit frit
)";

constexpr const char* fish_script = R"(# Completion of frit's command lines: frit completion fish | source
function __frit_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l candidates ($words[1] __complete $words[2..-1] 2>/dev/null)
  if test (count $candidates) -gt 0
    string match -q -- '--*=*' $words[-1]; and set candidates (string split -m1 = -- $words[-1])[1]=$candidates
    printf '%s\n' $candidates
  else
    __fish_complete_path (commandline -ct)
  end
end
complete -c frit -f -a '(__frit_complete)'
)";

}  // namespace

std::vector<Candidate> completions(const CLI::App& app, const std::vector<std::string>& words) {
  std::string begun = words.empty() ? "" : words.back();
  std::vector<Candidate> candidates = all_candidates(app, words.empty() ? std::vector<std::string>{""} : words, begun);
  std::erase_if(candidates, [&](const Candidate& candidate) { return !candidate.word.starts_with(begun); });
  return candidates;
}

std::string completion_script(const std::string& shell) {
  if (shell == "bash") return bash_script;
  return shell == "zsh" ? zsh_script : fish_script;
}

}  // namespace frit::apps
