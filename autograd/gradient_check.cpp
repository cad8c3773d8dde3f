#include "frit/autograd/gradient_check.h"

#include <algorithm>
#include <cmath>

#include "frit/autograd/gradient.h"
#include "frit/core/random.h"

namespace frit {
namespace {

using graph::Node;
using graph::NodeKind;

/// A differentiated tensor: where its numbers lie on the host, to be moved and put back. `variable` follows it if it is a variable.
struct Point {
  std::string name;
  Tensor tensor;
  Tensor variable;
};

std::string seed_name(const std::string& output) { return "seed." + output; }
std::string gradient_name(const std::string& point) { return "gradient." + point; }

class Checker {
 public:
  Checker(const Graph& graph, const Bindings& inputs, std::shared_ptr<State> state, const GradientCheckOptions& options)
      : options_(options), forward_(graph, state), backward_(with_gradients(graph), state) {
    for (const auto& [name, tensor] : inputs) inputs_[name] = tensor.to(Device::cpu()).clone();
    for (const Node* node : graph.all(NodeKind::input)) {
      if (!is_floating(graph.type(node->outputs[0]).dtype)) continue;
      const auto given = inputs_.find(node->name);
      require(given != inputs_.end(), "gradient check: input \"", node->name, "\" was not given");
      add_point({node->name, given->second, {}});
    }
    for (const Node* node : graph.all(NodeKind::variable)) {
      const Tensor& variable = state->at(node->name);
      if (node->trainable)
        add_point({node->name, variable.to(Device::cpu()), variable});
      else
        kept_.push_back({variable, variable.clone()});
    }
  }

  std::vector<GradientCheckResult> run() {
    return options_.mode == GradientCheckOptions::Mode::full ? check_entries() : check_directions();
  }

 private:
  void add_point(Point point) {
    require(point.tensor.dtype() == DType::f64, "gradient check: \"", point.name, "\" is ", point.tensor.dtype(), ", expected f64");
    points_.push_back(std::move(point));
  }

  Graph with_gradients(const Graph& source) {
    Graph graph = source;
    Values outputs, seeds, with_respect_to;
    for (const graph::Output& output : source.outputs()) {
      const TensorType type = source.type(output.value);
      if (!is_floating(type.dtype)) continue;
      require(type.dtype == DType::f64, "gradient check: output \"", output.name, "\" is ", type.dtype, ", expected f64");
      outputs.push_back(graph.value(output.value));
      seeds.push_back(graph.input(seed_name(output.name), type.shape, DType::f64));
      output_names_.push_back(output.name);
    }
    for (const Node& node : source.nodes()) {
      const bool input = node.kind == NodeKind::input && is_floating(source.type(node.outputs[0]).dtype);
      if (input || (node.kind == NodeKind::variable && node.trainable)) with_respect_to.push_back(graph.value(node.outputs[0]));
    }
    const Values gradients = gradient(outputs, seeds, with_respect_to);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      graph.output(gradient_name(graph.producer(with_respect_to[i].id()).name), gradients[i]);
    }
    return graph;
  }

  /// All floating outputs, one after another.
  std::vector<double> evaluate() {
    const graph::Executable& executable = run_from_start(forward_, inputs_);
    std::vector<double> values;
    for (const std::string& name : output_names_) {
      const Tensor tensor = executable.output(name).to(Device::cpu());
      shapes_[name] = tensor.shape();
      const std::span<double> output = tensor.span<double>();
      values.insert(values.end(), output.begin(), output.end());
    }
    return values;
  }

  /// The gradients of sum(seed * outputs), one vector a point.
  std::vector<std::vector<double>> differentiate(std::span<const double> seed) {
    Bindings bindings = inputs_;
    for (const std::string& name : output_names_) {
      const Shape& shape = shapes_.at(name);
      const auto count = static_cast<std::size_t>(element_count(shape));
      bindings[seed_name(name)] = Tensor::from(seed.first(count), shape);
      seed = seed.subspan(count);
    }
    const graph::Executable& executable = run_from_start(backward_, bindings);
    std::vector<std::vector<double>> gradients;
    for (const Point& point : points_) gradients.push_back(executable.output(gradient_name(point.name)).to_vector<double>());
    return gradients;
  }

  /// Every run sees the same running statistics and random counters.
  const graph::Executable& run_from_start(Program& program, const Bindings& inputs) {
    for (const auto& [variable, value] : kept_) copy(variable, value);
    for (const Point& point : points_) {
      if (point.variable.defined() && point.variable.device() != Device::cpu()) copy(point.variable, point.tensor);
    }
    const graph::Executable& executable = program.run(inputs);
    for (const auto& [variable, value] : kept_) copy(variable, value);
    return executable;
  }

  /// The outputs with one number moved by `distance`.
  std::vector<double> moved(double& number, double distance) {
    const double before = number;
    number = before + distance;
    std::vector<double> values = evaluate();
    number = before;
    return values;
  }

  bool close(double a, double b) const {
    return std::abs(a - b) <= options_.absolute + options_.relative * std::max(std::abs(a), std::abs(b));
  }

  std::vector<GradientCheckResult> check_entries() {
    const std::vector<double> here = evaluate();
    std::vector<std::vector<std::vector<double>>> rows;  // [output element][point][input element]
    std::vector<double> seed(here.size(), 0);
    for (std::size_t row = 0; row < here.size(); ++row) {
      seed[row] = 1;
      rows.push_back(differentiate(seed));
      seed[row] = 0;
    }
    std::vector<GradientCheckResult> results;
    for (std::size_t p = 0; p < points_.size(); ++p) {
      GradientCheckResult result{.name = points_[p].name, .shape = points_[p].tensor.shape()};
      double* const numbers = points_[p].tensor.data<double>();
      for (std::size_t i = 0; i < static_cast<std::size_t>(points_[p].tensor.elements()); ++i) {
        std::vector<double> column;
        for (const auto& row : rows) column.push_back(row[p][i]);
        check_column(result, here, column, numbers[i], i);
      }
      results.push_back(std::move(result));
    }
    return results;
  }

  /// One input element against all outputs.
  void check_column(GradientCheckResult& result, const std::vector<double>& here, const std::vector<double>& gradient, double& number,
                    std::size_t index) {
    const double h = options_.step, wide = 100 * h;
    const std::vector<double> right = moved(number, h), left = moved(number, -h);
    std::vector<double> right1, left1, right2, left2;  // of the wider stencil, when an entry needs it
    for (std::size_t row = 0; row < here.size(); ++row) {
      double difference = (right[row] - left[row]) / (2 * h);
      if (!close(gradient[row], difference)) {
        const double bend = std::abs((right[row] - here[row]) - (here[row] - left[row])) / h;
        if (bend > 1e-3 * std::max({1.0, std::abs(difference), std::abs(gradient[row])})) {
          ++result.kinks;
          continue;
        }
        if (right1.empty()) {
          right1 = moved(number, wide), left1 = moved(number, -wide), right2 = moved(number, 2 * wide), left2 = moved(number, -2 * wide);
        }
        difference = (8 * (right1[row] - left1[row]) - (right2[row] - left2[row])) / (12 * wide);
      }
      record(result, gradient[row], difference, [&] { return concat("output ", row, ", element ", index); });
    }
  }

  std::vector<GradientCheckResult> check_directions() {
    std::vector<double> here = evaluate();
    std::vector<GradientCheckResult> results;
    for (const Point& point : points_) results.push_back({.name = point.name, .shape = point.tensor.shape()});
    for (int direction = 0; direction < options_.directions; ++direction) {
      const std::vector<double> seed = random_vector(here.size(), static_cast<std::uint64_t>(direction) * 1000);
      const std::vector<std::vector<double>> gradients = differentiate(seed);
      for (std::size_t p = 0; p < points_.size(); ++p) {
        const std::vector<double> way = random_vector(gradients[p].size(), static_cast<std::uint64_t>(direction) * 1000 + 1 + p);
        check_direction(results[p], points_[p].tensor, way, seed, gradients[p], direction);
      }
    }
    return results;
  }

  void check_direction(GradientCheckResult& result, const Tensor& tensor, const std::vector<double>& way, const std::vector<double>& seed,
                       const std::vector<double>& gradient, int direction) {
    const double expected = dot(way, gradient);
    const auto along = [&](double distance) {
      const Tensor before = tensor.clone();
      for (std::size_t i = 0; i < way.size(); ++i) tensor.data<double>()[i] += distance * way[i];
      const double value = dot(seed, evaluate());
      copy(tensor, before);
      return value;
    };
    const double h = options_.step, here = along(0), right = along(h), left = along(-h);
    double difference = (right - left) / (2 * h);
    if (!close(expected, difference)) {
      if (std::abs((right - here) - (here - left)) / h > 1e-3 * std::max({1.0, std::abs(difference), std::abs(expected)})) {
        ++result.kinks;
        return;
      }
      difference = (8 * (along(10 * h) - along(-10 * h)) - (along(20 * h) - along(-20 * h))) / (120 * h);
    }
    record(result, expected, difference, [&] { return concat("direction ", direction); });
  }

  /// `where` is asked for the first failure alone.
  template <class Where>
  void record(GradientCheckResult& result, double gradient, double difference, const Where& where) const {
    ++result.checked;
    result.largest_gradient = std::max(result.largest_gradient, std::abs(gradient));
    const double error = std::abs(gradient - difference);
    result.largest_error = std::isnan(error) ? error : std::max(result.largest_error, error);
    if (close(gradient, difference)) return;
    if (result.failed++ == 0) result.first_failure = concat(where(), ": gradient ", gradient, ", difference ", difference);
  }

  std::vector<double> random_vector(std::size_t count, std::uint64_t stream) const {
    const Tensor values = Tensor::empty({static_cast<std::int64_t>(count)}, DType::f64);
    fill_normal(values, 0, 1, options_.seed, stream);
    return values.to_vector<double>();
  }

  static double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }

  GradientCheckOptions options_;
  std::vector<std::string> output_names_;
  Program forward_, backward_;
  Bindings inputs_;
  std::vector<Point> points_;
  std::vector<std::pair<Tensor, Tensor>> kept_;  // what a run may update, and its value at the start
  std::map<std::string, Shape> shapes_;          // of the outputs
};

}  // namespace

std::vector<GradientCheckResult> check_gradients(const Graph& graph, const Bindings& inputs, const std::shared_ptr<State>& state,
                                                 const GradientCheckOptions& options) {
  return Checker(graph, inputs, state, options).run();
}

}  // namespace frit
