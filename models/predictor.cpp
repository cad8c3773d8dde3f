#include "frit/models/predictor.h"

#include "frit/core/io/safetensors.h"
#include "frit/core/warning.h"
#include "frit/graph/pipeline.h"
#include "frit/models/checkpoint.h"

namespace frit {
namespace {

/// Runs `body`, to which what the caller gives is an argument, not a file's content.
template <class Body>
void as_argument(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    fail(error.kind() == ErrorKind::format ? ErrorKind::argument : error.kind(), error.what());
  }
}

}  // namespace

Predictor::Predictor(const std::string& checkpoint, const PredictorOptions& options) {
  const bool halves = options.precision == DType::f16 || options.precision == DType::bf16;
  dtype_ = options.precision == DType::f64 ? DType::f64 : DType::f32;
  require(halves || options.precision == dtype_, "the precision of a predictor: expected f32, f64, f16 or bf16, got ", options.precision);
  const auto state = std::make_shared<State>(options.device);
  const auto inference_graph = [&] { return graph::for_inference(forward_graph(model_, model_.ample_input(), dtype_)); };
  Graph graph;
  if (names_model_file(checkpoint)) {
    model_ = make_model(checkpoint);
    graph = inference_graph();
  } else {
    const TensorFile file = read_safetensors(checkpoint);
    model_ = model_of(file);
    graph = inference_graph();
    state->prepare(graph);
    for (const std::string& remark : restore(file, graph, *state)) warn(remark);
  }
  program_ = std::make_unique<Program>(std::move(graph), state, Program::Extend(), halves ? options.precision : DType::f32);
}

const Predictor::Shapes& Predictor::output_shapes(const Shape& input) {
  const std::vector<std::int64_t> sizes(input.begin(), input.end());
  if (const auto known = outputs_.find(sizes); known != outputs_.end()) return known->second;
  as_argument([&] { model_.check_input(input); });
  const Graph graph = forward_graph(model_, input, dtype_);
  if (outputs_.size() >= Program::most_compiled) outputs_.clear();  // what is asked for again is soon there again
  Shapes& shapes = outputs_[sizes];
  for (const graph::Output& output : graph.outputs()) shapes[output.name] = graph.type(output.value).shape;
  return shapes;
}

Bindings Predictor::operator()(const Bindings& inputs) {
  as_argument([&] { model_.check_side_inputs(tensor_types(inputs)); });
  const Shapes& shapes = output_shapes(inputs.at("input").shape());
  Bindings outputs;
  if (inputs.at("input").dim(0) == 0) {
    for (const auto& [name, shape] : shapes) outputs[name] = Tensor::empty(shape, dtype_);
    return outputs;
  }
  Bindings converted = {{"input", inputs.at("input").to(dtype_)}};
  for (const Model::SideInput& side : model_.side_inputs) {
    converted[side.name] = inputs.at(side.name).to(is_floating(side.dtype) ? dtype_ : side.dtype);
  }
  const graph::Executable& result = program_->run(converted);
  for (const auto& [name, shape] : shapes) {
    const Tensor& output = result.output(name);
    outputs[name] = output.device() == Device::cpu() ? output.clone() : output.to(Device::cpu());
  }
  return outputs;
}

}  // namespace frit
