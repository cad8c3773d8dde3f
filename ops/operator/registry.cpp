#include "frit/ops/operator/operator.h"

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "frit/core/text.h"

namespace frit::ops {

void register_builtin_operators(Registry& registry);

namespace {

/// What a sample leaves to the operator: attributes that it does not name are the defaults, and indices any that it takes.
void complete(Sample& sample, const Operator& op) {
  if (sample.attributes == Attributes()) sample.attributes = op.default_attributes;
  std::vector<TensorType> types;
  for (const SampleInput& input : sample.inputs) types.push_back({input.floating ? op.dtypes.at(0) : input.dtype, input.shape});
  for (const IndexInput& index : op.index_inputs) {
    std::int64_t& upper = sample.inputs.at(static_cast<std::size_t>(index.input)).upper;
    if (upper == 0) upper = index.count({op, types, sample.attributes});
  }
}

}  // namespace

struct Registry::Entries {
  std::deque<Operator> operators;  // addresses stay
  std::unordered_map<std::string, Operator*> by_name;
};

Registry::Registry() : entries_(std::make_unique<Entries>()) {}
Registry::~Registry() = default;

bool Registry::contains(std::string_view name) const { return entries_->by_name.contains(std::string(name)); }

const Operator& Registry::insert(Operator entry) {
  const std::string& name = entry.name;
  require(!name.empty(), "an operator needs a name");
  require(!contains(name), "operator \"", name, "\" is registered already");
  require(static_cast<bool>(entry.infer), "operator \"", name, "\" has no inference rule");
  require(static_cast<bool>(entry.samples), "operator \"", name, "\" has no samples");
  require(entry.cpu || entry.view, "operator \"", name, "\" has no CPU kernel");
  require(static_cast<bool>(entry.gradient) == entry.no_gradient.empty(), "operator \"", name,
          "\" needs either a gradient rule or a reason in no_gradient");
  Operator& stored = entries_->operators.emplace_back(std::move(entry));
  stored.samples = [declared = std::move(stored.samples), &stored] {
    std::vector<Sample> samples = declared();
    for (Sample& sample : samples) complete(sample, stored);
    return samples;
  };
  if (!stored.typical.inputs.empty()) complete(stored.typical, stored);
  entries_->by_name.emplace(stored.name, &stored);
  return stored;
}

void Registry::add_cuda(std::string_view name, Kernel kernel) {
  const auto place = entries_->by_name.find(std::string(name));
  require(place != entries_->by_name.end(), "a CUDA kernel for the unknown operator \"", name, "\"");
  require(!place->second->cuda, "operator \"", name, "\" has a CUDA kernel already");
  place->second->cuda = std::move(kernel);
}

const Operator& Registry::find(std::string_view name) const {
  const auto place = entries_->by_name.find(std::string(name));
  if (place != entries_->by_name.end()) return *place->second;
  std::vector<std::string> names;
  for (const Operator* op : all()) names.push_back(op->name);
  fail(ErrorKind::argument, "unknown operator \"", printable(name), "\"", did_you_mean(name, names));
}

std::vector<const Operator*> Registry::all() const {
  std::vector<const Operator*> result;
  for (const Operator& op : entries_->operators) result.push_back(&op);
  std::sort(result.begin(), result.end(), [](const Operator* a, const Operator* b) { return a->name < b->name; });
  return result;
}

Registry& registry() {
  static Registry& instance = [&]() -> Registry& {
    static Registry built_in;
    register_builtin_operators(built_in);
    return built_in;
  }();
  return instance;
}

}  // namespace frit::ops
