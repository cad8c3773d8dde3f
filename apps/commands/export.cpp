#include "apps/commands/commands.h"
#include "apps/common/model_graph.h"
#include "apps/common/model_source.h"
#include "frit/core/io/file.h"
#include "frit/models/onnx/onnx_export.h"

namespace frit::apps {
namespace {

struct ExportArguments {
  std::string model, config, output;
  Shape input_shape;
  DType dtype = DType::f32;
  std::uint64_t seed = 0;
};

int run_export(const ExportArguments& a) {
  remove_stale_temporaries(a.output);
  check_writable(a.output);
  const ModelSource source = open_model(a.model, a.config);
  if (!a.input_shape.empty()) check_input_shape(source.model, a.input_shape);
  const Graph graph = forward_graph(source.model, a.input_shape.empty() ? source.model.ample_input() : a.input_shape, a.dtype);
  State state(Device::cpu(), a.seed);
  state.prepare(graph);
  if (source.checkpoint) {
    for (const std::string& remark : restore(*source.checkpoint, graph, state)) print_warning(remark);
  } else if (!source.model.has_parameters) {
    print_warning(concat(source.model.name, " has fresh parameters from seed ", a.seed, ", it was not trained"));
  }
  export_onnx(a.output, graph, state);
  return 0;
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "export", "Write a model as an ONNX file");
  const auto a = std::make_shared<ExportArguments>();
  add_option(command, "MODEL|CHECKPOINT", a->model, "A checkpoint, or a model's name for fresh parameters")
      .required()
      .type_name("")
      .reads(checkpoint_of);
  add_config(command, a->config);
  add_path(command, "--output", a->output, "The .onnx file to write, of opset 17").required().writes();
  add_shape(command, "--input-shape", a->input_shape,
            "Of the input, for a model that does not take any size; the default is one image of the model's size");
  add_dtype(command, a->dtype, {DType::f32, DType::f64});
  add_seed(command, a->seed);
  set_action(command, action, [a] { return run_export(*a); });
}

}  // namespace frit::apps
