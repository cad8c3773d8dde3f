#include "frit/graph/choose_forms.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <set>

#include "frit/core/cuda/noise.h"
#include "frit/core/numerics.h"
#include "frit/core/timer.h"
#include "frit/graph/executable.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

/// Calls that read and write less take so little time that no form is worth a search.
constexpr std::int64_t smallest_bytes = 256 * 1024;
/// Another form must take less than this part of the time of the one before.
constexpr double least_gain = 0.98;

struct Decisions {
  std::mutex mutex;
  std::map<std::string, std::string> forms;  // by key_of
  std::optional<std::string> forced;
};

Decisions& decisions() {
  static Decisions instance;
  return instance;
}

std::string key_of(const Graph& graph, const Node& node, const Purpose& purpose) {
  const Numerics settings = numerics();
  std::string key = concat(purpose.device, purpose.trained ? " trained " : " ", settings.tf32, settings.deterministic, ' ',
                           settings.workspace_limit, ' ', node.op->name, " {", node.attributes.text(), '}');
  for (const int id : node.inputs) key += concat(", ", graph.type(id));
  for (const Node& reader : graph.nodes()) {
    const bool reads = std::find(reader.inputs.begin(), reader.inputs.end(), node.outputs[0]) != reader.inputs.end();
    if (reads) key += concat(" -> ", reader.op->name);
  }
  return key;
}

bool is_large(const Graph& graph, const Node& node) {
  std::int64_t bytes = 0;
  for (const int id : node.inputs) bytes += graph.type(id).bytes();
  for (const int id : node.outputs) bytes += graph.type(id).bytes();
  return bytes >= smallest_bytes;
}

/// Values that look like data; zeros where only some integers are valid.
Bindings noise_for(const Graph& graph, Device device) {
  Bindings inputs;
  for (const Node* node : graph.all(NodeKind::input)) {
    const TensorType& type = graph.type(node->outputs[0]);
    Tensor& input = inputs[node->name];
    if (!is_floating(type.dtype)) {
      input = Tensor::zeros(type.shape, type.dtype, device);
      continue;
    }
    input = Tensor::empty(type.shape, type.dtype, device);
    cuda::fill_with_noise(input);
  }
  return inputs;
}

/// Microseconds of a run; infinite where the graph does not fit the device.
double time_of(Graph graph, State& state) {
  try {
    Executable executable(std::move(graph), state);
    executable.run(noise_for(executable.graph(), state.device()));
    Timer timer(state.device());
    for (int run = 0; run < 3; ++run) timer.time([&] { executable.run(); });  // the first records the steps
    timer.take();
    for (int run = 0; run < 7; ++run) timer.time([&] { executable.run(); });
    return quantile(timer.take(), 0.5);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory && error.kind() != ErrorKind::device) throw;
    return std::numeric_limits<double>::infinity();
  }
}

class Search {
 public:
  Search(const Graph& forward, const Purpose& purpose) : forward_(forward), purpose_(purpose), state_(purpose.device) {}

  Graph run() {
    for (const Node& node : forward_.nodes()) {
      if (node.kind != NodeKind::operation || node.op->forms.empty() || !is_large(forward_, node)) continue;
      const std::string key = key_of(forward_, node, purpose_);
      if (!chosen_.contains(key)) decide(node, key);
    }
    return chosen_.empty() ? forward_ : current();
  }

 private:
  /// The forward graph as decided so far.
  Graph current() const {
    return in_forms(forward_, [&](const Node& node) {
      const auto place = chosen_.find(key_of(forward_, node, purpose_));
      return place == chosen_.end() ? std::string() : place->second;
    });
  }

  void decide(const Node& node, const std::string& key) {
    {
      const std::lock_guard lock(decisions().mutex);
      const auto known = decisions().forms.find(key);
      if (known != decisions().forms.end()) {
        chosen_[key] = known->second;
        return;
      }
    }
    chosen_[key] = fastest(node, key);
    const std::lock_guard lock(decisions().mutex);
    decisions().forms[key] = chosen_[key];
  }

  std::string fastest(const Node& node, const std::string& key) {
    std::string best;
    chosen_[key] = best;
    const Graph plain = current();
    std::set<std::string> tried = {to_text(plain)};
    std::optional<double> best_time;
    for (const ops::Form& form : node.op->forms) {
      chosen_[key] = form.name;
      Graph candidate = current();
      if (!tried.insert(to_text(candidate)).second) continue;  // it does not apply, or is what another form is
      if (!best_time) best_time = time_of(purpose_.complete(plain), state_);
      const double time = time_of(purpose_.complete(std::move(candidate)), state_);
      if (time >= least_gain * *best_time) continue;
      best = form.name;
      best_time = time;
    }
    return best;
  }

  const Graph& forward_;
  const Purpose& purpose_;
  State state_;
  std::map<std::string, std::string> chosen_;  // by key_of
};

}  // namespace

Graph in_forms(const Graph& graph, const FormOf& form_of) {
  Rewriter rewriter(graph);
  for (const Node& node : graph.nodes()) {
    Values outputs;
    if (node.kind == NodeKind::operation && !node.op->forms.empty()) {
      const std::string name = form_of(node);
      for (const ops::Form& form : node.op->forms) {
        if (name == form.name) outputs = form.rule(rewriter.target(), rewriter(node.inputs), node.attributes);
      }
    }
    if (outputs.empty()) rewriter.copy(node);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      FRIT_CHECK(outputs[i].type() == graph.type(node.outputs[i]));
      rewriter.map(node.outputs[i], outputs[i]);
    }
  }
  return apply(forward_pipeline(), rewriter.finish());
}

Graph choose_forms(const Graph& forward, const Purpose& purpose) {
  std::optional<std::string> forced;
  {
    const std::lock_guard lock(decisions().mutex);
    forced = decisions().forced;
  }
  if (forced) return in_forms(forward, [&](const Node&) { return *forced; });
  if (purpose.device.kind == DeviceKind::cpu) return forward;
  return Search(forward, purpose).run();
}

void force_form(std::optional<std::string> name) {
  const std::lock_guard lock(decisions().mutex);
  decisions().forced = std::move(name);
}

}  // namespace frit::graph
