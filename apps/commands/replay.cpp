#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/json.h"
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
  bool json = false, quiet = false;
  RunOptions run;
};

struct ValueRange {
  std::string value;
  graph::NumberRange range;
};

void note(std::vector<ValueRange>& ranges, const std::string& value, const Tensor& tensor) {
  if (tensor.defined() && is_floating(tensor.dtype())) ranges.push_back({value, graph::range_of(tensor)});
}

void print_table(const std::vector<ValueRange>& ranges) {
  constexpr auto right = Table::Column::right;
  Table table({{"value"}, {"least", right}, {"largest", right}, {"not finite", right}, {"of", right}});
  for (const auto& [value, range] : ranges) {
    table.add({value, scientific(range.least), scientific(range.largest), grouped(range.non_finite), grouped(range.elements)});
  }
  table.print(std::cout);
}

Json json_of(const std::vector<ValueRange>& ranges) {
  Json values = Json::array();
  for (const auto& [value, range] : ranges) {
    values.push_back({{"value", value},
                      {"least", range.least},
                      {"largest", range.largest},
                      {"non_finite", range.non_finite},
                      {"elements", range.elements}});
  }
  return values;
}

/// "conv2d output %5".
std::string name_of_output(const Graph& graph, const graph::Call& call, std::size_t i) {
  const graph::Node& node = graph.nodes()[static_cast<std::size_t>(call.node)];
  return concat(node.op->name, ' ', i < node.op->outputs.size() ? node.op->outputs[i] : "output", " %", node.outputs[i]);
}

int run_replay(const ReplayArguments& a) {
  const Device device = a.run.apply();
  Replay replay = read_bundle(a.folder, device);
  graph::Executable& executable = replay.step.compile(tensor_types(replay.inputs));
  const std::int64_t number = replay.step.position().batches + 1;
  if (!a.quiet) std::cerr << replay.model.name << ", step " << number << std::endl;
  std::vector<ValueRange> ranges;
  for (const auto& [name, tensor] : replay.inputs) note(ranges, concat("input ", name), tensor);
  const std::optional<graph::NonFinite> found = graph::find_non_finite(executable, replay.inputs, [&](const graph::Call& call) {
    for (std::size_t i = 0; i < call.outputs.size(); ++i) note(ranges, name_of_output(executable.graph(), call, i), call.outputs[i]);
  });
  if (a.json) {
    print(std::cout, Json{{"model", replay.model.name}, {"step", number}, {"values", json_of(ranges)}});
  } else {
    print_table(ranges);
  }
  if (found) fail(ErrorKind::diverged, "step ", number, ": ", found->text());
  return 0;
}

}  // namespace

void add_replay(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "replay", "Run a training step that was not finite again, operator by operator");
  const auto a = std::make_shared<ReplayArguments>();
  add_option(command, "BUNDLE", a->folder, "The folder that `frit train --run-dir` left").required().type_name("").reads(bundle_files);
  a->run.add_to(command);
  add_quiet(command, a->quiet);
  add_json(command, a->json);
  set_action(command, action, [a] { return run_replay(*a); });
}

}  // namespace frit::apps
