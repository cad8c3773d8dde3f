// What imported operators compute where the ONNX project's own cases do not look.

#include <gtest/gtest.h>

#include <cmath>

#include "frit/autograd/gradient.h"
#include "frit/ops/reduction/reduction.h"
#include "models/onnx/model_builder.h"

namespace frit {
namespace {

using Floats = std::vector<float>;

/// Of y's sum, as a further output.
void add_gradient(Graph& graph, graph::NodeKind kind, const std::string& name) {
  const Value of = graph.value(graph.find(kind, name)->outputs[0]);
  graph.output("gradient", gradient(sum(graph.output_value("y")), std::span(&of, 1)).at(0));
}

/// y = op(x), float64.
OnnxModel function_model(const std::string& op, std::int64_t size) {
  ModelBuilder builder;
  builder.input("x", {size}, onnx::TensorProto::DOUBLE).output("y");
  builder.node(op, {"x"}, {"y"});
  return builder.model();
}

TEST(OnnxOperators, HyperbolicFunctionsLoseNoDigits) {
  const double inf = HUGE_VAL, nan = NAN;
  const std::vector<double> all = {0, 1e-300, 1e-12, -1e-9, 1e-5, -3e-3, 0.2, -0.7, 1.5, -3, 20, -1e9, 1e200, inf, -inf, nan};
  const std::vector<double> within_one = {0, 1e-300, 1e-12, -1e-9, 1e-5, -3e-3, 0.2, -0.7, 0.999999, -1, 1, 2, nan};
  const std::vector<double> from_one = {1, 1 + 1e-12, 1 + 1e-9, 1.001, 1.5, 3, 1e9, 1e200, inf, 0.5, nan};
  struct Function {
    const char* op;
    double (*function)(double);
    double (*slope)(double);
    const std::vector<double>& places;
  };
  const Function functions[] = {
      {"Sinh", std::sinh, std::cosh, all},
      {"Asinh", std::asinh, [](double x) { return 1 / std::sqrt(1 + x * x); }, all},
      {"Atanh", std::atanh, [](double x) { return 1 / ((1 - x) * (1 + x)); }, within_one},
      {"Acosh", std::acosh, [](double x) { return 1 / std::sqrt((x - 1) * (x + 1)); }, from_one},
  };
  for (const auto& [op, function, slope, places] : functions) {
    Graph graph = import_onnx(function_model(op, static_cast<std::int64_t>(places.size())));
    add_gradient(graph, graph::NodeKind::input, "x");
    State state;
    graph::Executable results(graph, state);
    results.run({{"x", Tensor::from(places, {static_cast<std::int64_t>(places.size())})}});
    const std::vector<double> y = results.output("y").to_vector<double>(), slopes = results.output("gradient").to_vector<double>();
    for (std::size_t i = 0; i < places.size(); ++i) {
      const double expected = function(places[i]);
      const auto agree = [](double a, double b) {
        return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-14 * std::abs(b);
      };
      EXPECT_PRED2(agree, y[i], expected) << op << " of " << places[i];
      if (!std::isfinite(expected) || std::abs(places[i]) > 1e100) continue;
      EXPECT_PRED2(agree, slopes[i], slope(places[i])) << op << " at " << places[i];
    }
  }
}

TEST(OnnxOperators, SlopesOfPReluHaveGradientsAtInfinity) {
  ModelBuilder builder;
  builder.input("x", {4}).output("y").weight("slope", {1}, {0.25f});
  builder.node("PRelu", {"x", "slope"}, {"y"});
  Graph graph = import_onnx(builder.model());
  add_gradient(graph, graph::NodeKind::variable, "slope");
  State state;
  graph::Executable results(graph, state);
  results.run({{"x", Tensor::from({HUGE_VALF, 2.0f, -3.0f, -4.0f}, {4})}});
  EXPECT_EQ(results.output("y").to_vector<float>(), (Floats{HUGE_VALF, 2, -0.75f, -1}));
  EXPECT_EQ(results.output("gradient").to_vector<float>(), (Floats{-7}));
}

TEST(OnnxOperators, SlicesBackwardsAreFlippedSlices) {
  const auto sliced = [](std::int64_t start, std::int64_t end, std::int64_t step) {
    ModelBuilder builder;
    builder.input("x", {7}).output("y");
    builder.integers("start", {1}, {start}).integers("end", {1}, {end}).integers("axes", {1}, {0}).integers("step", {1}, {step});
    builder.node("Slice", {"x", "start", "end", "axes", "step"}, {"y"});
    return run_graph(import_onnx(builder.model()), counting({7})).to_vector<float>();
  };
  EXPECT_EQ(sliced(-1, INT64_MIN, -1), (Floats{6, 5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(sliced(5, 0, -2), (Floats{5, 3, 1}));
  EXPECT_EQ(sliced(100, -7, -3), (Floats{6, 3}));
  EXPECT_EQ(sliced(4, -8, -3), (Floats{4, 1}));
  EXPECT_EQ(sliced(3, -8, INT64_MIN), (Floats{3}));
  EXPECT_EQ(sliced(1, 3, -1), Floats());
}

Tensor einsum(const std::string& equation, const std::vector<Tensor>& operands) {
  ModelBuilder builder;
  builder.output("y");
  ModelBuilder::Names names;
  Bindings bindings;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    names.push_back(concat("x", i));
    builder.input(names[i], std::vector<std::int64_t>(operands[i].shape().begin(), operands[i].shape().end()));
    bindings[names[i]] = operands[i];
  }
  ModelBuilder::set(builder.node("Einsum", names, {"y"}), "equation", equation);
  Program program(import_onnx(builder.model()), std::make_shared<State>());
  return program.run(bindings).output("y").clone();
}

/// Numbers are NumPy's.
TEST(OnnxOperators, EinsumIsSumsAndProducts) {
  const Tensor a = counting({2, 3}), b = counting({3, 2}), c = counting({2, 2});
  EXPECT_EQ(einsum("ij,jk->ik", {a, b}).to_vector<float>(), (Floats{10, 13, 28, 40}));
  EXPECT_EQ(einsum("ij,jk,kl->li", {a, b, c}).to_vector<float>(), (Floats{26, 80, 49, 148}));
  EXPECT_EQ(einsum(" i j , j k ", {a, b}).to_vector<float>(), (Floats{10, 13, 28, 40}));
  EXPECT_EQ(einsum("ba,ca", {a, a}).to_vector<float>(), (Floats{5, 14, 14, 50}));
  EXPECT_EQ(einsum("ii", {c}).to_vector<float>(), (Floats{3}));
  EXPECT_EQ(einsum("ii->i", {c}).to_vector<float>(), (Floats{0, 3}));
  EXPECT_EQ(einsum("ij->ji", {a}).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(einsum("ij,ij->i", {a, a}).to_vector<float>(), (Floats{5, 50}));
  EXPECT_EQ(einsum("i,j->ij", {counting({2}), counting({3})}).to_vector<float>(), (Floats{0, 0, 0, 0, 1, 2}));
  const Tensor batched = einsum("...ij,...jk->...ik", {counting({2, 1, 2, 2}), counting({3, 2, 1})});
  EXPECT_EQ(batched.shape(), (Shape{2, 3, 2, 1}));
  EXPECT_EQ(batched.to_vector<float>(), (Floats{1, 3, 3, 13, 5, 23, 5, 7, 23, 33, 41, 59}));
  EXPECT_EQ(einsum("...->", {a}).to_vector<float>(), (Floats{15}));
  for (const char* equation : {"ij,jk->ia", "ij->ij", "ij,jk,kl->il", "ijk,jk->i", "ij,jk->ii", "i-,jk->i", "ij,kj->ik"}) {
    EXPECT_NE(message_of([&] { einsum(equation, {a, b}); }).find("(Einsum, opset 17): "), std::string::npos) << equation;
  }
}

}  // namespace
}  // namespace frit
