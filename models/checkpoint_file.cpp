#include "frit/models/checkpoint_file.h"

#include <algorithm>
#include <limits>
#include <set>

#include "frit/core/io/safetensors_checksums.h"
#include "frit/core/text.h"

namespace frit {
namespace {

constexpr const char *checkpoint_version = "1", *version_key = "frit_version";

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

/// What keeps the file's tensors from being those.
std::string find_problems(const SafetensorsHeader& file, const WantedTensors& wanted, const TensorRules& rules) {
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
    if (rules.exact && found.dtype != type.dtype) converted.add(concat('"', name, "\" expected ", type.dtype, ", got ", found.dtype));
    if (found.shape == type.shape) continue;
    const char* const hint = permuted(found.shape, type.shape) ? " (the sizes are permuted: the layout of another kind of layer?)" : "";
    misshapen.add(concat('"', name, "\" expected ", type.shape, ", got ", found.shape, hint));
  }
  const bool of_training = !rules.exact && is_of_training(file);
  for (std::size_t i = 0; i < file.size(); ++i) {
    const std::string_view name = file.entry(i).name;
    if (!known.contains(name) && !(of_training && name.starts_with(of_optimizer))) unexpected.add('"' + printable(name) + '"');
  }
  std::string problems;
  append(problems, "missing", missing);
  append(problems, "wrong shape", misshapen);
  append(problems, "wrong dtype", converted);
  if (!rules.allow_extra || !problems.empty()) append(problems, "unexpected", unexpected);
  return problems;
}

}  // namespace

bool is_of_training(const SafetensorsHeader& file) {
  const Metadata& metadata = file.metadata();
  return std::any_of(metadata.begin(), metadata.end(),
                     [](const auto& entry) { return entry.first == training_key || entry.first.starts_with(concat(training_key, '/')); });
}

void write_checkpoint(const std::string& path, TensorMap tensors, Metadata metadata) {
  for (auto& [name, tensor] : tensors) tensor = tensor.to(Device::cpu()).contiguous();
  metadata["format"] = "pt";  // what other readers of safetensors look for: tensors laid out as PyTorch's
  metadata[version_key] = checkpoint_version;
  add_checksums(tensors, metadata);
  write_safetensors(path, tensors, metadata);
}

void check_version(const SafetensorsHeader& file) {
  const auto version = file.metadata().find(version_key);
  if (version == file.metadata().end() || version->second == checkpoint_version) return;
  fail(ErrorKind::format, file.file(), ": checkpoint format version: expected ", checkpoint_version, ", got ", printable(version->second));
}

WantedTensors variables_of(const Graph& graph, std::string_view prefix) {
  WantedTensors wanted;
  for (const graph::Node* node : graph.all(graph::NodeKind::variable)) {
    wanted.emplace_back(std::string(prefix) + node->name, graph.type(node->outputs[0]));
  }
  return wanted;
}

void require_tensors(const SafetensorsHeader& file, const WantedTensors& wanted, const TensorRules& rules) {
  const std::string problems = find_problems(file, wanted, rules);
  if (problems.empty()) return;
  const auto model = file.metadata().find("model");
  const std::string hint = model == file.metadata().end() ? "" : concat("; the file says it is of model \"", printable(model->second), '"');
  fail(ErrorKind::format, file.file(), ": the tensors do not fit the model: ", problems, hint);
}

}  // namespace frit
