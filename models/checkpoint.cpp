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

using Sources = std::vector<std::pair<const graph::Node*, std::string>>;

/// The variables of a graph, and what each is called in the file: of a training's averages, if they are wanted, the average.
Sources sources_of(const TensorFile& file, const Graph& graph, bool averages) {
  const std::optional<std::size_t> count = averages && is_of_training(file) ? file.find(count_of_averages) : std::nullopt;
  const bool begun = count && file.tensor(*count).elements() == 1 && file.tensor(*count).item() > 0;
  Sources sources;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
    std::string average = concat(of_optimizer, node->name, of_average);
    sources.emplace_back(node, begun && file.find(average) ? std::move(average) : node->name);
  }
  return sources;
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
    made.add_to(Scope(graph), made.ample_input());
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    const std::vector<std::string> names = model_names();
    const bool known = std::find(names.begin(), names.end(), model->second) != names.end();
    fail(ErrorKind::format, file.file(), ": ", error.what(),
         known ? "" : "; a program's own model is known to programs that add it (add_model)");
  }
  require_tensors(file, variables_of(graph, prefix), {.allow_extra = true});
  return made;
}

std::vector<std::string> restore(const TensorFile& file, const Graph& graph, State& state, const RestoreOptions& options) {
  verify_checksums(file);
  const Sources sources = sources_of(file, graph, options.averages);
  WantedTensors wanted = variables_of(graph);
  for (const auto& [node, name] : sources) {
    if (name != node->name) wanted.emplace_back(name, graph.type(node->outputs[0]));
  }
  require_tensors(file, wanted, {.allow_extra = options.allow_extra});
  Conversions conversions;
  std::vector<std::string> remarks;
  for (const auto& [node, name] : sources) {
    const Tensor tensor = file.at(name);
    conversions.add(name, tensor.dtype(), graph.type(node->outputs[0]).dtype);
    std::string remark = non_finite_remark(name, tensor);
    if (!remark.empty() && options.strict) fail(ErrorKind::format, file.file(), ": ", remark);
    if (!remark.empty()) remarks.push_back(std::move(remark));
  }
  if (std::string remark = conversions.remark(); !remark.empty()) remarks.insert(remarks.begin(), std::move(remark));
  for (const auto& [node, name] : sources) state.set(node->name, file.at(name));
  return remarks;
}

}  // namespace frit
