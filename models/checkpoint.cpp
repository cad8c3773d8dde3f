#include "frit/models/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "frit/core/text.h"

namespace frit {
namespace {

constexpr const char* format_version = "1";

/// The same sizes in another order: most often a transposed convolution's weight taken for a plain one's, or the reverse.
bool permuted(Shape a, Shape b) {
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

/// "name, name and 12 more".
class Listing {
 public:
  explicit Listing(std::size_t limit) : limit_(limit) {}

  void add(const std::string& entry) {
    if (count_++ < limit_) text_ += (text_.empty() ? "" : ", ") + entry;
  }
  bool empty() const { return count_ == 0; }
  std::string text() const { return count_ <= limit_ ? text_ : concat(text_, " and ", count_ - limit_, " more"); }

 private:
  std::size_t limit_;
  std::size_t count_ = 0;
  std::string text_;
};

void append(std::string& problems, const char* what, const Listing& listing) {
  if (!listing.empty()) problems += concat(problems.empty() ? "" : "; ", what, ": ", listing.text());
}

std::string find_problems(const TensorFile& file, const Graph& graph, bool allow_extra) {
  constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  Listing missing(all), misshapen(all), unexpected(10);  // only the model bounds its list: a file may have a million names
  std::set<std::string, std::less<>> wanted;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
    wanted.insert(node->name);
    const Shape& shape = graph.type(node->outputs[0]).shape;
    const auto index = file.find(node->name);
    if (!index) {
      missing.add(concat('"', node->name, "\" (", shape, ")"));
      continue;
    }
    const Shape found = file.entry(*index).shape;
    if (found == shape) continue;
    const char* const hint = permuted(found, shape) ? " (the sizes are permuted: the layout of another kind of layer?)" : "";
    misshapen.add(concat('"', node->name, "\" expected ", shape, ", got ", found, hint));
  }
  for (std::size_t i = 0; !allow_extra && i < file.size(); ++i) {
    const std::string_view name = file.entry(i).name;
    if (!wanted.contains(name)) unexpected.add('"' + printable(name) + '"');
  }
  std::string problems;
  append(problems, "missing", missing);
  append(problems, "wrong shape", misshapen);
  append(problems, "unexpected", unexpected);
  return problems;
}

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
  Metadata all = metadata;
  all["format"] = "pt";  // what other readers of safetensors look for: tensors laid out as PyTorch's
  all["frit_version"] = format_version;
  write_safetensors(path, tensors, all);
}

Metadata checkpoint_metadata(const Model& model) {
  Metadata metadata = {{"model", model.name}, {"config", model.config}};
  if (!model.normalization.empty()) metadata["normalization"] = model.normalization;
  return metadata;
}

Model model_of(const SafetensorsHeader& file) {
  const Metadata& metadata = file.metadata();
  const auto model = metadata.find("model");
  const auto config = metadata.find("config");
  if (model == metadata.end()) fail(ErrorKind::format, file.file(), ": the metadata name no \"model\": not a checkpoint of frit?");
  if (const auto version = metadata.find("frit_version"); version != metadata.end() && version->second != format_version) {
    fail(ErrorKind::format, file.file(), ": checkpoint format version: expected ", format_version, ", got ", printable(version->second));
  }
  try {
    Model made = make_model(model->second, config == metadata.end() ? "{}" : std::string_view(config->second));
    const auto normalization = metadata.find("normalization");
    return normalization == metadata.end() ? made : with_normalization(std::move(made), normalization->second);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    fail(ErrorKind::format, file.file(), ": ", error.what());
  }
}

std::vector<std::string> restore(const TensorFile& file, const Graph& graph, State& state, const RestoreOptions& options) {
  const std::string problems = find_problems(file, graph, options.allow_extra);
  if (!problems.empty()) {
    const auto model = file.metadata().find("model");
    const std::string hint =
        model == file.metadata().end() ? "" : concat("; the file says it is of model \"", printable(model->second), '"');
    fail(ErrorKind::format, file.file(), ": the tensors do not fit the model: ", problems, hint);
  }
  std::vector<std::string> remarks;
  const std::vector<const graph::Node*> variables = graph.all(graph::NodeKind::variable);
  for (const graph::Node* node : variables) {
    const Tensor tensor = file.at(node->name);
    const DType wanted = graph.type(node->outputs[0]).dtype;
    if (tensor.dtype() != wanted) remarks.push_back(concat("tensor \"", node->name, "\" converted from ", tensor.dtype(), " to ", wanted));
    std::string remark = non_finite_remark(node->name, tensor);
    if (!remark.empty() && options.strict) fail(ErrorKind::format, file.file(), ": ", remark);
    if (!remark.empty()) remarks.push_back(std::move(remark));
  }
  for (const graph::Node* node : variables) state.set(node->name, file.at(node->name));
  return remarks;
}

}  // namespace frit
