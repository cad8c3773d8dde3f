#pragma once

#include <string>
#include <string_view>

#include "frit/graph/graph.h"

namespace frit {

/// A place in the tree of parameter names: scope / "conv" names its parameters "conv.weight", "conv.bias".
class Scope {
 public:
  /// Parameters made here have the dtype.
  explicit Scope(Graph& graph, std::string_view name = {}, DType dtype = DType::f32) : graph_(&graph), name_(name), dtype_(dtype) {}

  Scope operator/(std::string_view child) const { return Scope(*graph_, path(child), dtype_); }

  /// A variable that optimizers update. Throws ErrorKind::argument if the name is taken.
  Value parameter(std::string_view name, const Shape& shape, Initializer initialize) const;
  /// A variable that only operators update, such as running statistics; of the scope's dtype.
  Value buffer(std::string_view name, const Shape& shape, Initializer initialize) const;
  /// The i64 scalar that counts a random operator's runs.
  Value counter(std::string_view name) const;

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }

 private:
  std::string path(std::string_view child) const;

  Graph* graph_;
  std::string name_;
  DType dtype_;
};

/// Initialisers of floating variables. Each parameter draws from a stream of its own.
namespace init {

Initializer constant(double value);
inline Initializer zeros() { return constant(0); }
inline Initializer ones() { return constant(1); }
Initializer uniform(double low, double high);
Initializer normal(double mean = 0, double deviation = 1);
/// Uniform in +-1/sqrt(fan_in): PyTorch's default for the weights and biases of convolutions and linear layers.
Initializer fan_in_uniform(std::int64_t fan_in);

}  // namespace init
}  // namespace frit
