#include <algorithm>
#include <iostream>
#include <map>

#include "apps/commands/commands.h"
#include "apps/common/json.h"
#include "apps/common/model_graph.h"
#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "apps/common/process.h"
#include "apps/common/sample_graph.h"
#include "apps/common/table.h"
#include "apps/common/text.h"
#include "frit/autograd/gradient_check.h"
#include "frit/core/random.h"
#include "frit/core/text.h"
#include "frit/models/model.h"

namespace frit::apps {
namespace {

struct GradcheckArguments {
  std::vector<std::string> names;
  bool all = false;
  bool full = false;
  bool json = false;
  std::uint64_t seed = 0;
  RunOptions run;
};

/// What was found for one input or parameter, over all samples of an operator.
struct Summary {
  GradientCheckResult result;
  int samples = 0;
};

/// The table, or JSON, and what is counted under it.
class Report {
 public:
  explicit Report(bool json) : as_json_(json) {}

  void add(const std::string& subject, const Summary& summary) {
    const GradientCheckResult& r = summary.result;
    const std::string shape = summary.samples == 1 ? concat(r.shape) : concat(summary.samples, " shapes");
    table_.add({subject, r.name, shape, grouped(r.checked), grouped(r.kinks), scientific(r.largest_error), r.passed() ? "ok" : "FAILED",
                printable(r.first_failure)});
    rows_.push_back({{"of", subject},
                     {"with_respect_to", r.name},
                     {"samples", summary.samples},
                     {"checked", r.checked},
                     {"kinks", r.kinks},
                     {"largest_error", r.largest_error},
                     {"verdict", r.passed() ? "ok" : "failed"},
                     {"remark", r.first_failure}});
    ++checked_;
    failed_ += !r.passed();
  }
  void skip(const std::string& subject, const std::string& reason) {
    table_.add({subject, "", "", "", "", "", "skipped", reason});
    rows_.push_back({{"of", subject}, {"verdict", "skipped"}, {"remark", reason}});
  }
  /// There was no gradient to compare.
  void fail(const std::string& subject, const std::string& reason) {
    table_.add({subject, "", "", "", "", "", "FAILED", printable(reason)});
    rows_.push_back({{"of", subject}, {"verdict", "failed"}, {"remark", reason}});
    ++checked_;
    ++failed_;
  }

  int finish() const {
    if (as_json_) {
      print(std::cout, {{"checked", checked_}, {"failed", failed_}, {"gradients", rows_}});
      return verdict();
    }
    table_.print(std::cout);
    std::cout << '\n' << checked_ - failed_ << " of " << checked_ << " gradients equal the central differences\n";
    return verdict();
  }

 private:
  int verdict() const {
    if (failed_ == 0) return exit_success;
    print_error(concat(failed_, " of ", checked_, " gradients differ from the central differences"));
    return exit_check_failed;
  }

  bool as_json_;
  Json rows_ = Json::array();
  Table table_{{{"of"},
                {"with respect to"},
                {"shape"},
                {"checked", Table::Column::right},
                {"kinks", Table::Column::right},
                {"largest error", Table::Column::right},
                {"verdict"},
                {""}}};
  int checked_ = 0;
  int failed_ = 0;
};

void check_model(const std::string& name, const GradcheckArguments& a, Device device, Report& report) {
  const Model model = make_model(name, make_model(name).small_config);
  const Graph graph = forward_graph(model, model.small_input, DType::f64);
  const auto state = std::make_shared<State>(device, a.seed);
  state->prepare(graph);
  Bindings inputs;  // integers are 0, which any number of classes has
  for (const auto& [input, type] : input_types(graph)) {
    inputs[input] = Tensor::zeros(type.shape, type.dtype);
    if (is_floating(type.dtype)) fill_normal(inputs[input], 0, 1, a.seed, stream_of(input));
  }
  const GradientCheckOptions options{.mode = a.full ? GradientCheckOptions::Mode::full : GradientCheckOptions::Mode::directional,
                                     .seed = a.seed};
  for (const GradientCheckResult& result : check_gradients(graph, inputs, state, options)) report.add(name, {result, 1});
}

std::vector<GradientCheckResult> check_sample(const ops::Operator& op, const ops::Sample& sample, std::uint64_t seed, Device device) {
  const SampleGraph call = sample_graph(op, sample, DType::f64, seed);
  const auto state = std::make_shared<State>(device);
  state->prepare(call.graph);
  return check_gradients(call.graph, call.inputs, state);
}

void merge(Summary& into, const GradientCheckResult& result) {
  GradientCheckResult& sum = into.result;
  if (into.samples++ == 0) {
    sum = result;
    return;
  }
  sum.checked += result.checked;
  sum.failed += result.failed;
  sum.kinks += result.kinks;
  sum.largest_gradient = std::max(sum.largest_gradient, result.largest_gradient);
  if (!(result.largest_error <= sum.largest_error)) sum.largest_error = result.largest_error;  // NaN stays
  if (sum.first_failure.empty()) sum.first_failure = result.first_failure;
}

void check_operator(const ops::Operator& op, const GradcheckArguments& a, Device device, Report& report) {
  if (!op.gradient) return report.skip(op.name, "no gradient: " + op.no_gradient);
  std::vector<std::string> order;
  std::map<std::string, Summary> by_input;
  int bent = 0;
  const std::vector<ops::Sample> samples = op.samples();
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (!samples[i].smooth) {
      ++bent;
      continue;
    }
    for (const GradientCheckResult& result : check_sample(op, samples[i], a.seed + i, device)) {
      if (!by_input.contains(result.name)) order.push_back(result.name);
      merge(by_input[result.name], result);
    }
  }
  for (const std::string& name : order) report.add(op.name, by_input.at(name));
  if (bent > 0) report.skip(op.name, concat(bent, bent == 1 ? " sample has" : " samples have", " kinks"));
}

int run_gradcheck(const GradcheckArguments& a) {
  require(a.all != !a.names.empty(), a.all ? "--all cannot be given with names" : "expected the names of models or operators, or --all");
  const Device device = a.run.apply();
  std::vector<std::string> names = a.names;
  if (a.all) {
    names = model_names();
    for (const ops::Operator* op : ops::registry().all()) names.push_back(op->name);
  }
  for (const std::string& name : names) names_model(name);  // all are known before the first is checked
  Report report(a.json);
  for (const std::string& name : names) {
    try {
      if (names_model(name))
        check_model(name, a, device, report);
      else
        check_operator(ops::registry().find(name), a, device, report);
    } catch (const Error& error) {
      report.fail(name, error.what());
    }
  }
  return report.finish();
}

}  // namespace

void add_gradcheck(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "gradcheck", "Compare gradients with central differences in float64");
  const auto a = std::make_shared<GradcheckArguments>();
  add_option(command, "MODEL|OPERATOR", a->names, "Models and operators (see `frit info`)").type_name("");
  add_flag(command, "--all", a->all, "Every model and operator");
  add_flag(command, "--full", a->full, "Models too by every entry of the Jacobian, not along random directions: slow");
  add_seed(command, a->seed);
  add_json(command, a->json);
  a->run.add_to(command);
  set_action(command, action, [a] { return run_gradcheck(*a); });
}

}  // namespace frit::apps
