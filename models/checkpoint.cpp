#include "frit/models/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "frit/core/io/safetensors_checksums.h"
#include "frit/core/text.h"

namespace frit {
namespace {

constexpr const char* format_version = "1";
constexpr const char *version_key = "frit_version", *training_key = "training", *optimizer_key = "optimizer";
constexpr std::string_view of_optimizer = "optimizer.";

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

/// Variables, in the order in which a message names them.
using Wanted = std::vector<std::pair<std::string, TensorType>>;

/// What keeps the file's tensors from being those; `extra` says which others may be there.
std::string find_problems(const TensorFile& file, const Wanted& wanted, bool exact_dtypes,
                          const std::function<bool(std::string_view name)>& extra) {
  constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  Listing missing(all), misshapen(all), converted(all), unexpected(10);  // only the model bounds its list: a file may have a million names
  std::set<std::string_view> known;
  for (const auto& [name, type] : wanted) {
    known.insert(name);
    const auto index = file.find(name);
    if (!index) {
      missing.add(concat('"', name, "\" (", type.shape, ")"));
      continue;
    }
    const SafetensorsHeader::Entry found = file.entry(*index);
    if (exact_dtypes && found.dtype != type.dtype) converted.add(concat('"', name, "\" expected ", type.dtype, ", got ", found.dtype));
    if (found.shape == type.shape) continue;
    const char* const hint = permuted(found.shape, type.shape) ? " (the sizes are permuted: the layout of another kind of layer?)" : "";
    misshapen.add(concat('"', name, "\" expected ", type.shape, ", got ", found.shape, hint));
  }
  for (std::size_t i = 0; i < file.size(); ++i) {
    const std::string_view name = file.entry(i).name;
    if (!known.contains(name) && !extra(name)) unexpected.add('"' + printable(name) + '"');
  }
  std::string problems;
  append(problems, "missing", missing);
  append(problems, "wrong shape", misshapen);
  append(problems, "wrong dtype", converted);
  append(problems, "unexpected", unexpected);
  return problems;
}

[[noreturn]] void do_not_fit(const TensorFile& file, const std::string& problems) {
  const auto model = file.metadata().find("model");
  const std::string hint = model == file.metadata().end() ? "" : concat("; the file says it is of model \"", printable(model->second), '"');
  fail(ErrorKind::format, file.file(), ": the tensors do not fit the model: ", problems, hint);
}

void check_version(const SafetensorsHeader& file) {
  const auto version = file.metadata().find(version_key);
  if (version == file.metadata().end() || version->second == format_version) return;
  fail(ErrorKind::format, file.file(), ": checkpoint format version: expected ", format_version, ", got ", printable(version->second));
}

/// Of a training's checkpoint, which must have the entry.
const std::string& entry(const TensorFile& file, const char* key) {
  const auto place = file.metadata().find(key);
  if (place == file.metadata().end()) {
    fail(ErrorKind::format, file.file(), ": the metadata have no \"", key, "\": not a checkpoint that a training can go on from");
  }
  return place->second;
}

/// Written with checksums, as tensors of the host.
void write_checkpoint(const std::string& path, TensorMap tensors, Metadata metadata) {
  for (auto& [name, tensor] : tensors) tensor = tensor.to(Device::cpu()).contiguous();
  metadata["format"] = "pt";  // what other readers of safetensors look for: tensors laid out as PyTorch's
  metadata[version_key] = format_version;
  add_checksums(tensors, metadata);
  write_safetensors(path, tensors, metadata);
}

std::string optimizer_text(const Optimizer& optimizer) {
  return optimizer.name + (optimizer.settings.empty() ? "" : " " + optimizer.settings);
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
  write_checkpoint(path, std::move(tensors), metadata);
}

void save_checkpoint(const std::string& path, const TrainStep& step, const Metadata& metadata) {
  save_checkpoint(path, step.graph(), step.state(), metadata);
}

Metadata checkpoint_metadata(const Model& model) { return {{"model", model.name}, {"config", model.config}}; }

Model model_of(const SafetensorsHeader& file) {
  const Metadata& metadata = file.metadata();
  const auto model = metadata.find("model");
  const auto config = metadata.find("config");
  if (model == metadata.end()) fail(ErrorKind::format, file.file(), ": the metadata name no \"model\": not a checkpoint of frit?");
  check_version(file);
  try {
    return make_model(model->second, config == metadata.end() ? "{}" : std::string_view(config->second));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    fail(ErrorKind::format, file.file(), ": ", error.what());
  }
}

std::vector<std::string> restore(const TensorFile& file, const Graph& graph, State& state, const RestoreOptions& options) {
  verify_checksums(file);
  Wanted wanted;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) wanted.emplace_back(node->name, graph.type(node->outputs[0]));
  const bool of_training = file.metadata().contains(training_key);
  const std::string problems = find_problems(file, wanted, /*exact_dtypes=*/false, [&](std::string_view name) {
    return options.allow_extra || (of_training && name.starts_with(of_optimizer));
  });
  if (!problems.empty()) do_not_fit(file, problems);
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

void save_training(const std::string& path, const TrainStep& step, const Metadata& metadata) {
  TensorMap tensors;
  for (const auto& [name, tensor] : step.state().tensors()) tensors.emplace(name, tensor);
  Metadata all = metadata;
  all[training_key] = fields_to_json(step.position());
  all[optimizer_key] = optimizer_text(step.optimizer());
  write_checkpoint(path, std::move(tensors), std::move(all));
}

TensorFile read_training(const std::string& path) {
  TensorFile file = read_safetensors(path);
  check_version(file);
  entry(file, training_key);
  if (!verify_checksums(file)) fail(ErrorKind::format, file.file(), ": has no checksums: not a checkpoint that a training can go on from");
  return file;
}

void restore_training(const TensorFile& file, TrainStep& step) {
  check_version(file);
  const auto position = fields_from_json<TrainPosition>(entry(file, training_key), {}, file.file());
  verify_checksums(file);
  const std::string &found = entry(file, optimizer_key), expected = optimizer_text(step.optimizer());
  if (found != expected) fail(ErrorKind::format, file.file(), ": optimizer: expected ", expected, ", got ", printable(found));
  Wanted wanted;
  for (const auto& [name, tensor] : step.state().tensors()) wanted.emplace_back(name, TensorType{tensor.dtype(), tensor.shape()});
  const std::string problems = find_problems(file, wanted, /*exact_dtypes=*/true, [](std::string_view) { return false; });
  if (!problems.empty()) do_not_fit(file, problems);
  for (const auto& [name, type] : wanted) step.state().set(name, file.at(name));
  step.set_position(position);
}

}  // namespace frit
