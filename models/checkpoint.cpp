#include "frit/models/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "frit/core/io/safetensors_checksums.h"
#include "frit/models/checkpoint_file.h"

namespace frit {
namespace {

/// Empty if all values are finite.
std::string non_finite_remark(const std::string& name, const Tensor& tensor) {
  const std::vector<double> values = tensor.to_vector<double>();
  const auto bad = [](double value) { return !std::isfinite(value); };
  const auto first = std::find_if(values.begin(), values.end(), bad);
  if (first == values.end()) return {};
  return concat("tensor \"", name, "\" has ", std::count_if(values.begin(), values.end(), bad),
                " values that are NaN or infinite, the first at ", first - values.begin());
}

}  // namespace

void save_checkpoint(const std::string& path, const Graph& graph, const State& state, const Metadata& metadata) {
  TensorMap tensors;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) tensors.emplace(node->name, state.at(node->name));
  write_checkpoint(path, std::move(tensors), metadata);
}

Metadata checkpoint_metadata(const Model& model) {
  Metadata metadata = {{"model", model.name}, {"config", model.config}};
  if (!model.normalization.empty()) metadata["normalization"] = model.normalization;
  return metadata;
}

Model model_of(const SafetensorsHeader& file, std::string_view prefix) {
  const Metadata& metadata = file.metadata();
  const auto model = metadata.find("model");
  const auto config = metadata.find("config");
  if (model == metadata.end()) fail(ErrorKind::format, file.file(), ": the metadata name no \"model\": not a checkpoint of frit?");
  check_version(file);
  Model made;
  Graph graph;
  try {
    made = make_model(model->second, config == metadata.end() ? "{}" : std::string_view(config->second));
    const auto normalization = metadata.find("normalization");
    if (normalization != metadata.end()) made = with_normalization(std::move(made), normalization->second);
    made.build(Scope(graph), graph.input("input", made.ample_input()));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    fail(ErrorKind::format, file.file(), ": ", error.what());
  }
  require_tensors(file, variables_of(graph, prefix), {.allow_extra = true});
  return made;
}

std::vector<std::string> restore(const TensorFile& file, const Graph& graph, State& state, const RestoreOptions& options) {
  verify_checksums(file);
  require_tensors(file, variables_of(graph), {.allow_extra = options.allow_extra});
  std::vector<std::string> remarks;
  const std::vector<const graph::Node*> variables = graph.all(graph::NodeKind::variable);
  for (const graph::Node* node : variables) {
    const Tensor tensor = file.at(node->name);
    const DType dtype = graph.type(node->outputs[0]).dtype;
    if (tensor.dtype() != dtype) remarks.push_back(concat("tensor \"", node->name, "\" converted from ", tensor.dtype(), " to ", dtype));
    std::string remark = non_finite_remark(node->name, tensor);
    if (!remark.empty() && options.strict) fail(ErrorKind::format, file.file(), ": ", remark);
    if (!remark.empty()) remarks.push_back(std::move(remark));
  }
  for (const graph::Node* node : variables) state.set(node->name, file.at(node->name));
  return remarks;
}

}  // namespace frit
