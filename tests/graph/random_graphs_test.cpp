// Random graphs of what follows convolutions, as they stand and through all that a compiler of graphs does with them: the results and the
// gradients are the same. FRIT_RANDOM_GRAPHS=first..last names the seeds: 0..9999 is a thorough run, and a seed alone, n..n, is run again
// like that. A failure prints its seed, and the recipe with all steps left out that it does not need.

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <limits>
#include <set>

#include "frit/autograd/gradient.h"
#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/core/random.h"
#include "frit/graph/choose_lowerings.h"
#include "frit/graph/executable.h"
#include "graph/random_graph.h"
#include "ops/operator_checks.h"
#include "sanitized.h"

namespace frit {
namespace {

using graph::Node;
using graph::NodeKind;
using random_graphs::Recipe;
using random_graphs::Spelling;

/// The gradient of a random weighted sum of all outputs, with respect to most parameters, and to the input in every second graph.
void append_gradient(Graph& graph, std::uint64_t seed) {
  const auto wanted = [&](const Node& node) {
    const std::uint32_t draw = philox(seed, stream_of(node.name), 0)[0];
    return node.name == "x" ? draw % 2 == 0 : node.kind == NodeKind::variable && node.trainable && draw % 8 != 0;
  };
  Values outputs, seeds, with_respect_to;
  std::vector<std::string> names;
  for (const graph::Output& output : graph.outputs()) outputs.push_back(graph.value(output.value));
  for (const Value& output : outputs) seeds.push_back(graph.input(concat("seed", seeds.size()), output.shape(), output.dtype()));
  for (const Node& node : graph.nodes()) {
    if (!wanted(node)) continue;
    with_respect_to.push_back(graph.value(node.outputs[0]));
    names.push_back("gradient of " + node.name);
  }
  const Values gradients = gradient(outputs, seeds, with_respect_to);
  for (std::size_t i = 0; i < names.size(); ++i) graph.output(names[i], gradients[i]);
}

/// The most lowerings that an operator has.
std::size_t most_lowerings() {
  std::size_t most = 0;
  for (const ops::Operator* op : ops::registry().all()) most = std::max(most, op->lowerings.size());
  return most;
}

/// For each of 1, 2, ..., most_lowerings() every operation in another of its lowerings, each operation beginning with one of its own; for 0
/// as it is.
graph::LoweringOf lowerings_of(std::uint64_t seed, std::size_t variant) {
  return [=](const Node& node) -> std::string {
    if (variant == 0) return "";
    const std::size_t first = philox(seed, 8, static_cast<std::uint64_t>(node.outputs[0]))[0];
    return node.op->lowerings[(first + variant) % node.op->lowerings.size()].name;
  };
}

Graph lowered(const Graph& graph, DType precision) { return is_half(precision) ? graph::lower_precision(graph, precision) : graph; }

Graph as_it_stands(const Recipe& recipe, Spelling spelling) {
  Graph graph = random_graphs::build(recipe, spelling).graph;
  if (spelling != Spelling::exact) graph = lowered(graph, recipe.precision);
  append_gradient(graph, recipe.seed);
  return graph;
}

/// Everything that Program does, but lowerings come from the seed and not from times.
Graph compiled(const Recipe& recipe, std::size_t variant) {
  const graph::LoweringOf lowering_of = lowerings_of(recipe.seed, variant);
  Graph graph = random_graphs::build(recipe, Spelling::as_written).graph;
  if (!recipe.trained) graph = graph::for_inference(graph);
  graph = graph::apply(graph::forward_pipeline(), lowered(graph, recipe.precision));
  graph = graph::apply_lowerings(graph, [&](const Node& node) { return node.op->is_gradient ? "" : lowering_of(node); });
  append_gradient(graph, recipe.seed);
  graph = graph::apply_lowerings(graph, [&](const Node& node) { return node.op->is_gradient ? lowering_of(node) : ""; }, {});
  return graph::apply(graph::cleanup_pipeline(), std::move(graph));
}

using Results = std::map<std::string, Tensor>;
using Tolerances = std::map<std::string, double>;

/// Outputs, gradients, and what became of the variables.
Results run(const Graph& graph, Device device, std::uint64_t seed, int runs) {
  Bindings inputs;
  for (const Node* node : graph.all(NodeKind::input)) {
    const TensorType& type = graph.type(node->outputs[0]);
    inputs[node->name] = Tensor::empty(type.shape, type.dtype);
    fill_normal(inputs[node->name], 0, 1, seed, stream_of(node->name));
  }
  State state(device, seed);
  graph::Executable executable(graph, state);
  for (int i = 0; i < runs; ++i) executable.run(inputs);
  Results results;
  for (const graph::Output& output : graph.outputs()) results[output.name] = executable.output(output.name).to(Device::cpu()).clone();
  for (const auto& [name, tensor] : state.tensors()) results[name] = tensor.to(Device::cpu());
  return results;
}

/// Infinite where only one of them has a number.
double difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> left = a.to_vector<double>(), right = b.to_vector<double>();
  double largest = 0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] == right[i] || (std::isnan(left[i]) && std::isnan(right[i]))) continue;
    const double off = std::abs(left[i] - right[i]);
    largest = std::isfinite(off) ? std::max(largest, off) : INFINITY;
  }
  return largest;
}

bool has_halves(const Graph& graph) {
  bool found = false;
  for (int id = 0; id < graph.value_count(); ++id) found = found || is_half(graph.type(id).dtype);
  return found;
}

/// How far the results may lie from exact ones: by the usual error, or ten times as far as those of the graph as it stands.
Tolerances allowed(const Results& exact, const Results& plain, double error) {
  Tolerances result;
  if (error <= 1e-10) {  // float64
    for (const auto& [name, tensor] : exact) result[name] = error * std::max(1.0, largest_finite(tensor));
    return result;
  }
  double largest = 1;  // what is nearly zero may be a sum of large terms, each rounded
  for (const auto& [name, tensor] : exact) largest = std::max(largest, largest_finite(tensor));
  for (const auto& [name, tensor] : exact) result[name] = std::max(error * largest, 10 * difference(plain.at(name), tensor));
  // A gradient that is zero but for rounding, as that of a bias before a norm, is what halves leave of its terms, however large these are;
  // the same graphs in float64 have no such freedom.
  constexpr double nothing = 1e-9, of_halves = 1e-3;
  for (const auto& [name, tensor] : exact) {
    if (error > of_halves && largest_finite(tensor) < nothing * largest) result[name] = std::numeric_limits<double>::max();
  }
  return result;
}

class RandomGraphs : public testing::Test {
 protected:
  void TearDown() override { set_numerics({}); }

  /// Runs the graphs of all seeds, "first..last", and prints in how many of them each operator came to run.
  void check(Device device, const std::string& seeds) {
    device_ = device;
    const char* const given = std::getenv("FRIT_RANDOM_GRAPHS");
    const std::string range = given != nullptr ? given : seeds;
    const std::size_t dots = range.find("..");
    ASSERT_NE(dots, std::string::npos) << "FRIT_RANDOM_GRAPHS is " << range << ", expected first..last";
    const std::uint64_t first = std::stoull(range.substr(0, dots)), last = std::stoull(range.substr(dots + 2));
    int failures = 0;
    for (std::uint64_t seed = first; seed <= last && failures < 10; ++seed) failures += holds(random_graphs::random_recipe(seed)) ? 0 : 1;
    std::cout << last - first + 1 << " random graphs on " << device << ", compiled to";
    for (const auto& [name, graphs] : covered_) std::cout << ' ' << name << ' ' << graphs.size();
    std::cout << std::endl;
    for (const ops::Operator* op : ops::registry().all()) {
      EXPECT_TRUE(!op->fuse || covered_.contains(op->name) || last - first < 2000) << "no graph was fused to " << op->name;
    }
  }

 private:
  bool holds(const Recipe& recipe) {
    const std::string mistake = mistake_in(recipe);
    if (mistake.empty()) return true;
    const Recipe shrunk = this->shrunk(recipe);
    ADD_FAILURE() << "seed " << recipe.seed << ": " << mistake << "\n  " << random_graphs::to_text(recipe)
                  << "\nshrunk: " << mistake_in(shrunk) << "\n  " << random_graphs::to_text(shrunk) << '\n'
                  << graph::to_text(random_graphs::build(shrunk, Spelling::as_written).graph)
                  << "To run it alone: FRIT_RANDOM_GRAPHS=" << recipe.seed << ".." << recipe.seed;
    return false;
  }

  /// Without the steps that the failure does not need.
  Recipe shrunk(Recipe recipe) {
    for (std::size_t i = recipe.steps.size(); i-- > 0;) {
      Recipe less = recipe;
      less.steps.erase(less.steps.begin() + static_cast<std::ptrdiff_t>(i));
      if (mistake_in(less).empty()) continue;
      recipe = less;
      i = recipe.steps.size();
    }
    return recipe;
  }

  /// What is wrong; empty if nothing is. Where gradients jump, rounding may choose another element; hardly so for three sets of data.
  std::string mistake_in(const Recipe& recipe) {
    const bool may_jump = recipe.dtype != DType::f64 && random_graphs::build(recipe, Spelling::exact).kinked;
    std::string mistake = mistake_with(recipe, recipe.seed, may_jump);
    for (std::uint64_t data = 1; may_jump && data <= 2 && !mistake.empty(); ++data) {
      mistake = mistake_with(recipe, recipe.seed + (data << 32), may_jump);
    }
    return mistake;
  }

  std::string mistake_with(const Recipe& recipe, std::uint64_t data, bool may_jump) try {
    set_numerics({.tf32 = recipe.tf32});
    const bool on_gpu = device_.kind == DeviceKind::cuda;
    const int runs = on_gpu ? 3 : 1;  // the second is recorded, the third is the record
    const Results exact = run(as_it_stands(recipe, Spelling::exact), Device::cpu(), data, runs);
    const Graph plain = as_it_stands(recipe, Spelling::plain);
    const bool halves = has_halves(plain), jumps = may_jump && (halves || (on_gpu && recipe.tf32));  // with much rounding, nearly always
    const double error = expected_error(recipe.dtype, halves ? DType::f16 : DType::f32, device_);
    const Tolerances tolerances = allowed(exact, run(plain, device_, data, runs), error);
    std::set<std::string> seen;
    for (std::size_t variant = 0; variant <= most_lowerings(); ++variant) {
      const Graph graph = compiled(recipe, variant);
      const auto [text, is_new] = seen.insert(graph::to_text(graph));
      if (!is_new) continue;
      for (const Node* node : graph.all(NodeKind::operation)) covered_[node->op->name].insert(recipe.seed);
      for (const auto& [name, tensor] : run(graph, device_, data, runs)) {
        if (jumps && name.starts_with("gradient")) continue;
        const double off = difference(tensor, exact.at(name)), allowed = tolerances.at(name);
        if (!(off <= allowed)) return concat(name, " is off by ", off, ", more than ", allowed, ", in\n", *text);
      }
    }
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }

  Device device_;
  std::map<std::string, std::set<std::uint64_t>> covered_;  // by operator: in which graphs
};

// Two thirds of the time of all tests of graphs: sanitizers, which add to it, see a quarter of them.
constexpr const char* cpu_seeds = sanitized ? "0..49" : "0..199";

TEST_F(RandomGraphs, CompiledEqualTheirDecomposition) { check(Device::cpu(), cpu_seeds); }

class CudaRandomGraphs : public RandomGraphs {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaRandomGraphs, CompiledEqualTheirDecompositionOnTheCpu) { check({DeviceKind::cuda, 0}, "0..29"); }

}  // namespace
}  // namespace frit
