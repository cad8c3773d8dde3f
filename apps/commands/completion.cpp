#include "apps/common/completion.h"

#include <iostream>
#include <memory>

#include "apps/commands/commands.h"
#include "apps/common/options.h"

namespace frit::apps {

void add_completion(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "completion", "Print a script with which a shell completes frit's command lines");
  const auto shell = std::make_shared<std::string>();
  add_choice(command, "SHELL", *shell, {"bash", "zsh", "fish"}, "The shell; for bash: source <(frit completion bash)").required();
  set_action(command, action, [shell] {
    std::cout << completion_script(*shell);
    return 0;
  });
}

}  // namespace frit::apps
