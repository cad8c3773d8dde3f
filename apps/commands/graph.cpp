#include "frit/graph/graph.h"

#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/model_graph.h"
#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "frit/autograd/train_step.h"
#include "frit/graph/pipeline.h"

namespace frit::apps {
namespace {

struct GraphArguments {
  std::string model, config;
  Shape input_shape = {};
  std::string stage = "both";
  std::string format = "text";
  DType dtype = DType::f32, precision = DType::f32;
  bool lint = false;
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

void print(const std::string& stage, const Graph& graph, const std::string& format) {
  if (format == "dot")
    std::cout << graph::to_dot(graph);
  else
    std::cout << "# " << stage << '\n' << graph::to_text(graph);
  std::cout.flush();
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
  require(a.format == "text" || a.stage != "both", "--format dot draws one graph: --stage forward, fused, train or inference");
  const Model model = open_model(a.model, a.config).model;
  const Shape shape = a.input_shape.empty() ? model.small_input : a.input_shape;
  check_input_shape(model, shape);
  if (a.lint) return print_lint(model, shape, a.dtype);
  const std::vector<std::string> stages =
      a.stage == "both" ? std::vector<std::string>{"forward", "fused"} : std::vector<std::string>{a.stage};
  for (const std::string& stage : stages) {
    if (stage != stages.front()) std::cout << '\n';
    print(stage, staged(stage, model, shape, a.dtype, a.precision), a.format);
  }
  return 0;
}

}  // namespace

void add_graph(CLI::App& app, Action& action) {
  CLI::App& command = *app.add_subcommand("graph", "Print a model's graph, before and after the passes, and what memory it needs");
  const auto a = std::make_shared<GraphArguments>();
  command.add_option("MODEL|CHECKPOINT", a->model, "A model's name, or a checkpoint")->required()->type_name("");
  add_shape(command, "--input-shape", a->input_shape, "Of the input; the default is a small one");
  add_choice(command, "--stage", a->stage, {"both", "forward", "fused", "train", "inference"},
             "As written (forward), after the passes (fused), both, a whole training step, or inference");
  add_choice(command, "--format", a->format, {"text", "dot"}, "dot is Graphviz's");
  command.add_flag("--lint", a->lint, "Instead name the parameters that cannot learn, and why")->excludes("--stage", "--format");
  add_dtype(command, a->dtype, {DType::f32, DType::f64, DType::f16, DType::bf16});
  add_precision(command, a->precision, a->dtype);
  add_config(command, a->config);
  command.callback([a, &action] { action = [a] { return run_graph(*a); }; });
}

}  // namespace frit::apps
