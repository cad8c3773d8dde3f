#include "frit/models/predictor.h"

#include "frit/core/io/safetensors.h"
#include "frit/core/warning.h"
#include "frit/graph/pipeline.h"
#include "frit/models/checkpoint.h"

namespace frit {

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

Shape Predictor::output_shape(const Shape& input) {
  const std::vector<std::int64_t> sizes(input.begin(), input.end());
  if (const auto known = outputs_.find(sizes); known != outputs_.end()) return known->second;
  try {
    model_.check_input(input);
  } catch (const Error& error) {
    fail(error.kind() == ErrorKind::format ? ErrorKind::argument : error.kind(), error.what());
  }
  const Shape output = forward_graph(model_, input, dtype_).output_value("output").shape();
  if (outputs_.size() >= Program::most_compiled) outputs_.clear();  // what is asked for again is soon there again
  return outputs_[sizes] = output;
}

Tensor Predictor::operator()(const Tensor& input) {
  const Shape shape = output_shape(input.shape());
  if (element_count(shape) == 0) return Tensor::empty(shape, dtype_);
  const Tensor& output = program_->run({{"input", input.to(dtype_)}}).output("output");
  return output.device() == Device::cpu() ? output.clone() : output.to(Device::cpu());
}

}  // namespace frit
