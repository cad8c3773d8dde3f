#include "frit/graph/graph.h"

#include <algorithm>
#include <iostream>
#include <set>

#include "apps/commands/commands.h"
#include "apps/common/json.h"
#include "apps/common/model_graph.h"
#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "apps/common/table.h"
#include "apps/common/text.h"
#include "apps/report/dot.h"
#include "apps/report/memory_picture.h"
#include "frit/autograd/train_step.h"
#include "frit/core/text.h"
#include "frit/graph/choose_lowerings.h"
#include "frit/graph/lint.h"
#include "frit/graph/preparation.h"
#include "frit/graph/profile.h"

namespace frit::apps {
namespace {

struct GraphArguments {
  std::string model, config;
  Shape input_shape = {};
  std::string stage;  ///< empty: what suits the format
  std::string format = "text";
  DType dtype = DType::f32, precision = DType::f32;
  bool gpu = false, lint = false, explain = false, json = false, quiet = false;
  RunOptions run;
};

/// A graph as it was written, through the passes of a forward graph. For a GPU its operations are then lowered as is likely the fastest
/// there, and through the passes once more.
Graph optimized(Graph graph, bool gpu) {
  graph = graph::apply(graph::forward_pipeline(), std::move(graph));
  return gpu ? graph::apply_likely_lowerings(graph) : graph;
}

std::span<const graph::Pass> cleanup_for(const GraphArguments& a) {
  return graph::cleanup_pipeline(a.gpu ? DeviceKind::cuda : DeviceKind::cpu);
}

/// Forward, gradient and updates, as a step of training runs.
Graph train_graph(const Model& model, const Shape& shape, const GraphArguments& a) {
  constexpr const char* loss = "forward loss";
  Graph graph;
  graph.output(loss, add_loss(graph, model, shape, a.dtype).loss);
  if (a.gpu) graph = optimized(std::move(graph), a.gpu);
  TrainStep step(graph.output_value(loss), Adam{}, Device::cpu(), {.precision = a.precision});
  return step.optimised(input_types(graph), a.gpu ? DeviceKind::cuda : DeviceKind::cpu);
}

Graph staged(const std::string& stage, const Model& model, const Shape& shape, const GraphArguments& a) {
  if (stage == "train") return train_graph(model, shape, a);
  Graph graph = forward_graph(model, shape, a.dtype);
  if (stage == "forward") return graph;
  if (stage == "inference") graph = graph::for_inference(graph);
  if (a.precision != DType::f32) graph = graph::lower_precision(graph, a.precision);
  graph = optimized(std::move(graph), a.gpu);
  return stage == "fused" ? graph : graph::bring_preparation_first(graph::apply(cleanup_for(a), std::move(graph)));
}

/// Whether the graph of a stage is one that runs, part of it once.
bool runs(const std::string& stage) { return stage == "inference" || stage == "train"; }

/// The values that are computed once, in the order of a graph that runs.
std::vector<int> computed_once(const Graph& graph) {
  std::vector<int> values;
  const std::vector<bool> prepared = graph::find_preparation(graph);
  for (std::size_t n = 0; n < prepared.size(); ++n) {
    if (prepared[n]) values.insert(values.end(), graph.nodes()[n].outputs.begin(), graph.nodes()[n].outputs.end());
  }
  return values;
}

std::string name_of(const Graph& graph, int node) {
  const graph::Node& n = graph.nodes()[static_cast<std::size_t>(node)];
  const std::string value = n.outputs.empty() ? "" : concat(" %", n.outputs[0]);
  return (n.kind == graph::NodeKind::operation ? n.op->name : n.kind == graph::NodeKind::constant ? "constant" : printable(n.name)) + value;
}

std::string names_of(const Graph& graph, const std::vector<int>& nodes) {
  std::string names;
  for (const int node : nodes) names += (names.empty() ? "" : ", ") + name_of(graph, node);
  return names;
}

/// What fusion made of a graph, and why not more.
void print_attempts(const Graph& before, const std::vector<graph::FusionAttempt>& attempts) {
  std::cout << "# fusion\n";
  if (attempts.empty()) std::cout << "no two operators of this graph stand together in the decomposition of a fused one\n";
  for (const graph::FusionAttempt& attempt : attempts) {
    const bool fused = attempt.obstacle.empty();
    std::cout << (fused ? "fused: " : "not fused: ") << attempt.op->name << " at %" << attempt.root << '\n';
    std::cout << "  " << attempt.matched.size() << " of the " << attempt.operations
              << " operators of its decomposition stand here: " << names_of(before, attempt.matched) << '\n';
    if (fused) {
      std::cout << "  no one else reads what lies between them, and attributes and constants are as it computes them\n";
    } else {
      std::cout << "  blocked" << (attempt.blocker >= 0 ? " by " + name_of(before, attempt.blocker) : "") << ": " << attempt.obstacle
                << '\n';
    }
  }
  std::cout << '\n';
}

Json json_of(const Graph& before, const graph::FusionAttempt& attempt) {
  Json json = {{"operator", attempt.op->name},
               {"root", attempt.root},
               {"fused", attempt.obstacle.empty()},
               {"operators", attempt.operations},
               {"matched", Json::array()}};
  for (const int node : attempt.matched) json["matched"].push_back(name_of(before, node));
  if (attempt.blocker >= 0) json["blocker"] = name_of(before, attempt.blocker);
  if (!attempt.obstacle.empty()) json["obstacle"] = attempt.obstacle;
  return json;
}

/// How each step is computed, in order; of the parts of a batch the first.
Json schedules_of(const graph::Executable& executable) {
  Json json = Json::array();
  std::set<int> in_parts;
  const auto add = [&](const std::vector<graph::Step>& steps, bool once) {
    for (const graph::Step& step : steps) {
      if (step.parts > 1 && !in_parts.insert(step.calls[0].node).second) continue;
      json.push_back(
          {{"operator", step.op->name}, {"schedule", step.schedule()}, {"types", graph::types_text(step)}, {"computed_once", once}});
    }
  };
  add(executable.preparation(), true);
  add(executable.steps(), false);
  return json;
}

/// Of what runs on a device: a training step if that is the stage, else inference.
Json schedules_on(Device device, const Model& model, const Shape& shape, const GraphArguments& a) {
  Graph graph;
  if (a.stage == "train") {
    const Value loss = add_loss(graph, model, shape, a.dtype).loss;
    return schedules_of(TrainStep(loss, Adam{}, device, {.precision = a.precision}).compile(input_types(graph)));
  }
  graph = graph::for_inference(forward_graph(model, shape, a.dtype));
  return schedules_of(Program(graph, std::make_shared<State>(device), {}, a.precision).compile(input_types(graph)));
}

void print_schedules(const Json& schedules, const std::string& title) {
  std::cout << "\n# schedules: " << title << '\n';
  Table table({{"operator"}, {"computed"}, {"schedule"}, {"types"}});
  for (const Json& step : schedules) {
    const auto schedule = step["schedule"].get<std::string>();
    table.add({step["operator"].get<std::string>(), step["computed_once"].get<bool>() ? "once" : "in every run",
               schedule.empty() ? "the only one" : schedule, step["types"].get<std::string>()});
  }
  table.print(std::cout);
}

/// How many operators each pass leaves, and what fusion did, for a GPU or the CPU; `graph` is as the model gives it.
Json explain_passes(Graph graph, const GraphArguments& a) {
  Json json = {{"fusion", Json::array()}, {"passes", Json::array()}};
  const auto note = [&](const char* pass) {
    json["passes"].push_back({{"pass", pass}, {"operators", graph.all(graph::NodeKind::operation).size()}});
  };
  const auto apply = [&](std::span<const graph::Pass> passes) {
    for (const graph::Pass& pass : passes) {
      std::vector<graph::FusionAttempt> attempts;
      if (pass.run == static_cast<Graph (*)(const Graph&)>(graph::fuse)) {
        graph::fuse(graph, attempts);
        if (!a.json) print_attempts(graph, attempts);
        for (const graph::FusionAttempt& attempt : attempts) json["fusion"].push_back(json_of(graph, attempt));
      }
      graph = pass.run(graph);
      note(pass.name);
    }
  };
  note("as written");
  apply(graph::forward_pipeline());
  if (a.gpu) {
    graph = graph::apply_likely_lowerings(graph, {});
    note("lowerings for a GPU");
    apply(graph::forward_pipeline());
  }
  apply(cleanup_for(a));
  const std::vector<bool> prepared = graph::find_preparation(graph);
  if (runs(a.stage)) json["computed_once"] = std::count(prepared.begin(), prepared.end(), true);
  return json;
}

/// What the passes did, and how each step of what runs is computed on the device; the latter of a GPU only where there is one.
void explain(const Model& model, const Shape& shape, GraphArguments a) {
  const Device device = a.run.apply();
  const bool on_gpu = device.kind == DeviceKind::cuda, is_there = on_gpu || !a.gpu;
  a.gpu = a.gpu || on_gpu;
  Graph graph = forward_graph(model, shape, a.dtype);
  if (a.stage == "inference") graph = graph::for_inference(graph);
  Json json = explain_passes(a.precision == DType::f32 ? std::move(graph) : graph::lower_precision(graph, a.precision), a);
  if (is_there) json["schedules"] = schedules_on(device, model, shape, a);
  if (a.json) return print(std::cout, json);
  std::cout << "# passes\n";
  Table table({{"pass"}, {"operators", Table::Column::right}});
  for (const Json& pass : json["passes"]) table.add({pass["pass"].get<std::string>(), std::to_string(pass["operators"].get<int>())});
  table.print(std::cout);
  if (runs(a.stage))
    std::cout << json["computed_once"] << " of these operators depend on parameters alone and are computed once, not in every run\n";
  if (!is_there) std::cout << "\n# schedules: known where there is a GPU\n";
  if (is_there) print_schedules(json["schedules"], concat(a.stage == "train" ? "training" : "inference", " on ", device));
}

/// `planned`: with the memory plan, which is a CPU's. `running`: with what is computed once.
Json json_of(const Graph& graph, bool planned, bool running) {
  Json nodes = Json::array(), outputs = Json::object();
  const graph::BufferPlan buffers = graph::plan_buffers(graph);
  const graph::MemoryPlan plan = graph::plan_memory(buffers.lifetimes);
  for (const graph::Node& node : graph.nodes()) {
    constexpr const char* kinds[] = {"input", "variable", "constant", "operation"};
    Json json = {{"kind", kinds[static_cast<int>(node.kind)]}};
    if (!node.name.empty()) json["name"] = node.name;
    if (node.kind == graph::NodeKind::operation) {
      json["operator"] = node.op->name;
      json["inputs"] = node.inputs;
      json["attributes"] = node.attributes.text();
    }
    json["values"] = Json::array();
    for (const int id : node.outputs) {
      const TensorType& type = graph.type(id);
      Json value = {{"id", id}, {"dtype", name_of(type.dtype)}, {"shape", shape_json(type.shape)}};
      if (const int b = buffers.buffer[static_cast<std::size_t>(id)]; planned && b >= 0)
        value["offset"] = plan.offsets[static_cast<std::size_t>(b)];
      json["values"].push_back(std::move(value));
    }
    nodes.push_back(std::move(json));
  }
  for (const graph::Output& output : graph.outputs()) outputs[output.name] = output.value;
  Json json = {{"nodes", nodes}, {"outputs", outputs}};
  if (running) json["computed_once"] = computed_once(graph);
  if (planned) {
    json["memory_bytes"] = {
        {"arena", plan.arena_bytes}, {"lower_bound", plan.lower_bound_bytes}, {"without_sharing", plan.unplanned_bytes}};
  }
  return json;
}

/// Where each buffer of a CPU's memory plan lies, from which step to which it is needed, and the values that it holds.
void print_plan(const Graph& graph) {
  const graph::BufferPlan buffers = graph::plan_buffers(graph);
  const graph::MemoryPlan plan = graph::plan_memory(buffers.lifetimes);
  const auto size = static_cast<int>(graph.nodes().size());
  constexpr auto right = Table::Column::right;
  Table table({{"offset", right}, {"bytes", right}, {"from"}, {"to"}, {"holds"}});
  for (std::size_t b = 0; b < buffers.lifetimes.size(); ++b) {
    const graph::Lifetime& lifetime = buffers.lifetimes[b];
    std::string values;
    for (std::size_t id = 0; id < buffers.buffer.size(); ++id) {
      if (buffers.buffer[id] == static_cast<int>(b)) values += concat(values.empty() ? "%" : ", %", id);
    }
    table.add({grouped(plan.offsets[b]), grouped(lifetime.bytes), lifetime.first < 0 ? "the start" : name_of(graph, lifetime.first),
               lifetime.last >= size ? "the end" : name_of(graph, lifetime.last), values.empty() ? "scratch memory" : values});
  }
  std::cout << "\n# memory: " << plan.text() << '\n';
  table.print(std::cout);
}

void show(const std::string& stage, const std::string& title, const Graph& graph, const GraphArguments& a) {
  const std::vector<int> once = runs(stage) ? computed_once(graph) : std::vector<int>();
  if (a.format == "dot")
    std::cout << graph::to_dot(graph);
  else if (a.format == "svg")
    std::cout << draw_dot(graph::to_dot(graph));
  else if (a.format == "memory")
    std::cout << memory_picture(graph, title);
  else
    std::cout << "# " << stage << '\n' << graph::to_text(graph);
  if (a.format == "text" && !once.empty())
    std::cout << "\n# computed once, and again when variables change: %" << once.front() << " to %" << once.back() << '\n';
  if (a.format == "text" && runs(stage) && !a.gpu) print_plan(graph);
  std::cout.flush();
  if (a.quiet) return;
  std::cerr << stage << ": " << graph.all(graph::NodeKind::operation).size() << " operators";
  if (!a.gpu) std::cerr << ", memory " << graph::plan_memory(graph::plan_buffers(graph).lifetimes).text();
  std::cerr << std::endl;
}

void print_lint(const Model& model, const Shape& shape, const GraphArguments& a) {
  Graph graph;
  graph.output("loss", add_loss(graph, model, shape, a.dtype).loss);
  if (a.json) {
    Json json = Json::array();
    for (const graph::LintFinding& finding : graph::lint(graph, "loss")) {
      json.push_back({{"parameter", finding.parameter}, {"reason", finding.reason}});
    }
    return print(std::cout, json);
  }
  const std::string text = lint_text(graph, "");
  std::cout << (text.empty() ? "every parameter can learn\n" : text);
}

void print_stages(const std::vector<std::string>& stages, const Model& model, const Shape& shape, const GraphArguments& a) {
  Json json;
  for (const std::string& stage : stages) {
    const Graph graph = staged(stage, model, shape, a);
    if (a.json) {
      json[stage] = json_of(graph, !a.gpu, runs(stage));
      continue;
    }
    if (stage != stages.front()) std::cout << '\n';
    show(stage, concat(model.name, ", ", stage, ", input ", shape), graph, a);
  }
  if (a.json) print(std::cout, json);
}

int run_graph(const GraphArguments& a) {
  const bool picture = a.format != "text";
  require(!picture || a.stage != "both", "--format ", a.format, " draws one graph: --stage forward, fused, train or inference");
  require(!picture || (!a.json && !a.explain), "--format ", a.format, " does not go with --json or --explain");
  require(!a.gpu || a.format != "memory", "--format memory draws a CPU's plan, which does not go with --gpu");
  const Model model = open_model(a.model, a.config).model;
  const Shape shape = !a.input_shape.empty() ? a.input_shape : model.small_config == "{}" ? model.small_input : model.full_input;
  check_input_shape(model, shape);
  if (a.lint) {
    print_lint(model, shape, a);
  } else if (a.explain) {
    explain(model, shape, a);
  } else if (a.stage.empty() && picture) {
    print_stages({"inference"}, model, shape, a);
  } else if (a.stage.empty() || a.stage == "both") {
    print_stages({"forward", "fused"}, model, shape, a);
  } else {
    print_stages({a.stage}, model, shape, a);
  }
  return 0;
}

}  // namespace

void add_graph(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "graph", "Print or draw a model's graph, before and after the passes, and what memory it needs");
  const auto a = std::make_shared<GraphArguments>();
  add_option(command, "MODEL|CHECKPOINT", a->model, "A model's name, or a checkpoint").required().type_name("").reads(checkpoint_of);
  add_shape(command, "--input-shape", a->input_shape, "Of the input; the default is a small one");
  add_choice(
      command, "--stage", a->stage, {"both", "forward", "fused", "train", "inference"},
      "As written (forward), after the passes (fused), both, or what runs, with its memory plan: a whole training step, or inference; "
      "the default is both, of a picture inference");
  add_flag(command, "--gpu", a->gpu, "With the lowerings that are likely the fastest on a GPU, and what is fused with them there");
  add_choice(command, "--format", a->format, {"text", "dot", "svg", "memory"},
             "Text, Graphviz's language, the picture that Graphviz makes of that, or a picture (SVG) of the memory from step to step");
  add_flag(command, "--explain", a->explain,
           "Say what was fused and why, what kept other operators from it, what each pass left, and how each step of inference, or of "
           "--stage train, is computed on --device");
  add_flag(command, "--lint", a->lint, "Instead name the parameters that cannot learn, and why")
      .excludes({"--stage", "--format", "--explain"});
  add_dtype(command, a->dtype, {DType::f32, DType::f64, DType::f16, DType::bf16});
  add_precision(command, a->precision, a->dtype);
  add_config(command, a->config);
  a->run.add_to(command);
  add_quiet(command, a->quiet);
  add_json(command, a->json);
  set_action(command, action, [a] { return run_graph(*a); });
}

}  // namespace frit::apps
