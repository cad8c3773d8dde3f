#include "frit/graph/graph.h"

#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/json.h"
#include "apps/common/model_graph.h"
#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "apps/common/table.h"
#include "apps/report/dot.h"
#include "apps/report/memory_picture.h"
#include "frit/autograd/train_step.h"
#include "frit/core/text.h"
#include "frit/graph/pipeline.h"

namespace frit::apps {
namespace {

struct GraphArguments {
  std::string model, config;
  Shape input_shape = {};
  std::string stage = "both";
  std::string format = "text";
  DType dtype = DType::f32, precision = DType::f32;
  bool lint = false, explain = false, json = false, quiet = false;
};

/// Forward, gradient and updates, as a step of training runs.
Graph train_graph(const Model& model, const Shape& shape, DType dtype, DType precision) {
  Graph graph;
  TrainStep step(add_loss(graph, model, shape, dtype), Adam{}, Device::cpu(), {.precision = precision});
  return step.compile(input_types(graph)).graph();
}

Graph staged(const std::string& stage, const Model& model, const Shape& shape, DType dtype, DType precision) {
  if (stage == "train") return train_graph(model, shape, dtype, precision);
  Graph graph = forward_graph(model, shape, dtype);
  if (stage == "forward") return graph;
  if (stage == "inference") graph = graph::for_inference(graph);
  if (precision != DType::f32) graph = graph::lower_precision(graph, precision);
  graph = graph::apply(graph::forward_pipeline(), std::move(graph));
  return stage == "fused" ? graph : graph::apply(graph::cleanup_pipeline(), std::move(graph));
}

/// The graph that fusion sees, and what it makes of it.
void explain(const Graph& before, const std::vector<graph::FusionAttempt>& attempts) {
  const auto name = [&](int node) {
    const graph::Node& n = before.nodes()[static_cast<std::size_t>(node)];
    const std::string value = n.outputs.empty() ? "" : concat(" %", n.outputs[0]);
    return (n.kind == graph::NodeKind::operation  ? n.op->name
            : n.kind == graph::NodeKind::constant ? "constant"
                                                  : printable(n.name)) +
           value;
  };
  std::cout << "# fusion\n";
  if (attempts.empty()) std::cout << "no two operators of this graph stand together in the decomposition of a fused one\n";
  for (const graph::FusionAttempt& attempt : attempts) {
    std::string matched;
    for (const int node : attempt.matched) matched += (matched.empty() ? "" : ", ") + name(node);
    const bool fused = attempt.obstacle.empty();
    std::cout << (fused ? "fused: " : "not fused: ") << attempt.op->name << " at %" << attempt.root << '\n';
    std::cout << "  " << attempt.matched.size() << " of the " << attempt.operations
              << " operators of its decomposition stand here: " << matched << '\n';
    if (fused) {
      std::cout << "  no one else reads what lies between them, and attributes and constants are as it computes them\n";
    } else {
      std::cout << "  blocked" << (attempt.blocker >= 0 ? " by " + name(attempt.blocker) : "") << ": " << attempt.obstacle << '\n';
    }
  }
}

/// How many operators each pass leaves, and what fusion did; `graph` is as the model gives it.
void explain_passes(Graph graph) {
  Table table({{"pass"}, {"operators", Table::Column::right}});
  const auto operators = [](const Graph& g) { return std::to_string(g.all(graph::NodeKind::operation).size()); };
  table.add({"as written", operators(graph)});
  for (const auto passes : {graph::forward_pipeline(), graph::cleanup_pipeline()}) {
    for (const graph::Pass& pass : passes) {
      std::vector<graph::FusionAttempt> attempts;
      if (pass.run == static_cast<Graph (*)(const Graph&)>(graph::fuse)) {
        graph::fuse(graph, attempts);
        explain(graph, attempts);
      }
      graph = pass.run(graph);
      table.add({pass.name, operators(graph)});
    }
  }
  std::cout << "\n# passes\n";
  table.print(std::cout);
}

Json json_of(const Graph& graph) {
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
      if (const int b = buffers.buffer[static_cast<std::size_t>(id)]; b >= 0) value["offset"] = plan.offsets[static_cast<std::size_t>(b)];
      json["values"].push_back(std::move(value));
    }
    nodes.push_back(std::move(json));
  }
  for (const graph::Output& output : graph.outputs()) outputs[output.name] = output.value;
  return {
      {"nodes", nodes},
      {"outputs", outputs},
      {"memory_bytes", {{"arena", plan.arena_bytes}, {"lower_bound", plan.lower_bound_bytes}, {"without_sharing", plan.unplanned_bytes}}}};
}

void show(const std::string& stage, const std::string& title, const Graph& graph, const GraphArguments& a) {
  if (a.format == "dot")
    std::cout << graph::to_dot(graph);
  else if (a.format == "svg")
    std::cout << draw_dot(graph::to_dot(graph));
  else if (a.format == "memory")
    std::cout << memory_picture(graph, title);
  else
    std::cout << "# " << stage << '\n' << graph::to_text(graph);
  std::cout.flush();
  if (a.quiet) return;
  std::cerr << stage << ": " << graph.all(graph::NodeKind::operation).size() << " operators, memory "
            << graph::plan_memory(graph::plan_buffers(graph).lifetimes).text() << std::endl;
}

int print_lint(const Model& model, const Shape& shape, DType dtype) {
  Graph graph;
  graph.output("loss", add_loss(graph, model, shape, dtype));
  const std::string text = lint_text(graph, "");
  std::cout << (text.empty() ? "every parameter can learn\n" : text);
  return 0;
}

int run_graph(const GraphArguments& a) {
  const bool picture = a.format != "text";
  require(!picture || a.stage != "both", "--format ", a.format, " draws one graph: --stage forward, fused, train or inference");
  require(!picture || (!a.json && !a.explain), "--format ", a.format, " does not go with --json or --explain");
  require(!a.json || !a.explain, "--json does not go with --explain");
  const Model model = open_model(a.model, a.config).model;
  const Shape shape = a.input_shape.empty() ? model.small_input : a.input_shape;
  check_input_shape(model, shape);
  if (a.lint) return print_lint(model, shape, a.dtype);
  if (a.explain) {
    Graph graph = forward_graph(model, shape, a.dtype);
    if (a.stage == "inference") graph = graph::for_inference(graph);
    explain_passes(a.precision == DType::f32 ? std::move(graph) : graph::lower_precision(graph, a.precision));
    return 0;
  }
  const std::vector<std::string> stages =
      a.stage == "both" ? std::vector<std::string>{"forward", "fused"} : std::vector<std::string>{a.stage};
  Json json;
  for (const std::string& stage : stages) {
    const Graph graph = staged(stage, model, shape, a.dtype, a.precision);
    if (a.json) {
      json[stage] = json_of(graph);
      continue;
    }
    if (stage != stages.front()) std::cout << '\n';
    show(stage, concat(model.name, ", ", stage, ", input ", shape), graph, a);
  }
  if (a.json) print(std::cout, json);
  return 0;
}

}  // namespace

void add_graph(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "graph", "Print or draw a model's graph, before and after the passes, and what memory it needs");
  const auto a = std::make_shared<GraphArguments>();
  add_option(command, "MODEL|CHECKPOINT", a->model, "A model's name, or a checkpoint").required().type_name("");
  add_shape(command, "--input-shape", a->input_shape, "Of the input; the default is a small one");
  add_choice(command, "--stage", a->stage, {"both", "forward", "fused", "train", "inference"},
             "As written (forward), after the passes (fused), both, a whole training step, or inference");
  add_choice(command, "--format", a->format, {"text", "dot", "svg", "memory"},
             "Text, Graphviz's language, the picture that Graphviz makes of that, or a picture (SVG) of the memory from step to step");
  add_flag(command, "--explain", a->explain, "Say what was fused and why, what kept other operators from it, and what each pass left");
  add_flag(command, "--lint", a->lint, "Instead name the parameters that cannot learn, and why")
      .excludes(command, {"--stage", "--format", "--explain"});
  add_dtype(command, a->dtype, {DType::f32, DType::f64, DType::f16, DType::bf16});
  add_precision(command, a->precision, a->dtype);
  add_config(command, a->config);
  add_quiet(command, a->quiet);
  add_json(command, a->json);
  set_action(command, action, [a] { return run_graph(*a); });
}

}  // namespace frit::apps
