#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/options.h"
#include "apps/common/table.h"
#include "apps/common/text.h"
#include "apps/training/bundle.h"
#include "apps/training/training_graph.h"
#include "frit/graph/find_non_finite.h"

namespace frit::apps {
namespace {

struct ReplayArguments {
  std::string folder;
  RunOptions run;
};

void add_row(Table& table, const std::string& what, const Tensor& tensor) {
  if (!tensor.defined() || !is_floating(tensor.dtype())) return;
  const graph::NumberRange range = graph::range_of(tensor);
  table.add({what, scientific(range.least), scientific(range.largest), grouped(range.non_finite), grouped(range.elements)});
}

int run_replay(const ReplayArguments& a) {
  const Device device = a.run.apply();
  Replay replay = read_bundle(a.folder, device);
  graph::Executable& executable = replay.step.compile(types_of(replay.inputs));
  Table table({{"value"},
               {"least", Table::Column::right},
               {"largest", Table::Column::right},
               {"not finite", Table::Column::right},
               {"of", Table::Column::right}});
  const std::int64_t number = replay.step.position().batches + 1;
  std::cerr << replay.model.name << ", step " << number << std::endl;
  for (const auto& [name, tensor] : replay.inputs) add_row(table, concat("input ", name), tensor);
  const std::optional<graph::NonFinite> found = graph::find_non_finite(executable, replay.inputs, [&](const graph::Step& step) {
    for (const Tensor& output : step.outputs) add_row(table, graph::describe(executable.graph(), step), output);
  });
  table.print(std::cout);
  if (found) fail(ErrorKind::diverged, "step ", number, ": ", found->text());
  return 0;
}

}  // namespace

void add_replay(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "replay", "Run a training step that was not finite again, operator by operator");
  const auto a = std::make_shared<ReplayArguments>();
  add_option(command, "BUNDLE", a->folder, "The folder that `frit train --run-dir` left").required().type_name("");
  a->run.add_to(command);
  set_action(command, action, [a] { return run_replay(*a); });
}

}  // namespace frit::apps
