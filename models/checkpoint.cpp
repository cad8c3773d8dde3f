#include "frit/models/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <map>
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

/// What was converted to other dtypes.
class Conversions {
 public:
  void add(const std::string& name, DType from, DType to) {
    if (from != to) names_[concat(from, " to ", to)].push_back(name);
  }
  /// "2 tensors converted from f64 to f32, such as \"weight\""; empty for none.
  std::string remark() const {
    std::string text;
    for (const auto& [kind, names] : names_) {
      text += concat(text.empty() ? "" : "; ", names.size(), names.size() == 1 ? " tensor" : " tensors", " converted from ", kind,
                     names.size() == 1 ? ": \"" : ", such as \"", names[0], '"');
    }
    return text;
  }

 private:
  std::map<std::string, std::vector<std::string>> names_;
};

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
  Conversions conversions;
  std::vector<std::string> remarks;
  const std::vector<const graph::Node*> variables = graph.all(graph::NodeKind::variable);
  for (const graph::Node* node : variables) {
    const Tensor tensor = file.at(node->name);
    conversions.add(node->name, tensor.dtype(), graph.type(node->outputs[0]).dtype);
    std::string remark = non_finite_remark(node->name, tensor);
    if (!remark.empty() && options.strict) fail(ErrorKind::format, file.file(), ": ", remark);
    if (!remark.empty()) remarks.push_back(std::move(remark));
  }
  if (std::string remark = conversions.remark(); !remark.empty()) remarks.insert(remarks.begin(), std::move(remark));
  for (const graph::Node* node : variables) state.set(node->name, file.at(node->name));
  return remarks;
}

}  // namespace frit
