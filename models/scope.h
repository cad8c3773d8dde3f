#pragma once

#include <concepts>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "frit/graph/graph.h"

namespace frit {

/// What a network reads, or gives, by name.
using NamedValues = std::map<std::string, Value>;

/// A place in the tree of parameter names: scope / "conv" names its parameters "conv.weight", "conv.bias".
class Scope {
 public:
  /// Parameters made here have the dtype.
  explicit Scope(Graph& graph, std::string_view name = {}, DType dtype = DType::f32) : graph_(&graph), name_(name), dtype_(dtype) {}
  template <class Number>
  requires(std::integral<Number> || std::same_as<Number, std::nullptr_t>) Scope(Graph& graph, Number name, DType dtype = DType::f32)
  = delete;  // 0 is a null pointer, and no name

  Scope operator/(std::string_view child) const;
  /// scope / i is the i-th of several layers, named as in PyTorch's Sequential: "blocks.3".
  template <std::integral Index>
  requires(!std::same_as<Index, char>) Scope operator/(Index child) const { return *this / std::string_view(std::to_string(child)); }
  Scope operator/(std::nullptr_t child) const = delete;

  /// The same place for a second use of a layer: whatever is made there is what the first use made, which must be there and of the same
  /// type. So weights are shared where it says so, and nowhere by mistake:
  ///     Value left = tower(scope / "tower", a), right = tower((scope / "tower").reuse(), b);
  Scope reuse() const;

  /// A variable that optimizers update. Throws ErrorKind::argument if the name is taken, or where it is reused, is not.
  Value parameter(std::string_view name, const Shape& shape, Initializer initialize) const;
  /// A variable that only operators update, such as running statistics; of the scope's dtype.
  Value buffer(std::string_view name, const Shape& shape, Initializer initialize) const;
  /// The i64 scalar that counts a random operator's runs.
  Value counter(std::string_view name) const;

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  Graph& graph() const { return *graph_; }

 private:
  std::string path(std::string_view child) const;
  Value variable(std::string_view name, const TensorType& type, Initializer initialize, bool trainable = false) const;

  Graph* graph_;
  std::string name_;
  DType dtype_;
  bool reused_ = false;
};

/// Initialisers of floating variables. Each parameter draws from a stream of its own.
namespace init {

Initializer constant(double value);
inline Initializer zeros() { return constant(0); }
inline Initializer ones() { return constant(1); }
Initializer uniform(double low, double high);
Initializer normal(double mean = 0, double deviation = 1);
/// Normal, but what lies outside [low, high] is drawn again.
Initializer truncated_normal(double mean = 0, double deviation = 1, double low = -2, double high = 2);

/// What the deviation of a weight is made of: its fan-in, the elements of weight[0], or its fan-out, those of weight[:, 0].
enum class Fan { in, out };
/// Of deviation gain / sqrt(fan) (He et al., "Delving deep into rectifiers", 2015). gain sqrt(2) is for relu, 1 for none.
Initializer kaiming_uniform(double gain = 1.4142135623730951, Fan fan = Fan::in);
Initializer kaiming_normal(double gain = 1.4142135623730951, Fan fan = Fan::in);
/// Of deviation gain sqrt(2 / (fan_in + fan_out)) (Glorot and Bengio, 2010).
Initializer xavier_uniform(double gain = 1);
Initializer xavier_normal(double gain = 1);
/// gain times a matrix of weight[0], weight[1], ..., whose rows, or columns if they are fewer, are orthonormal (Saxe et al., 2013).
Initializer orthogonal(double gain = 1);
/// Uniform in +-1/sqrt(fan_in): PyTorch's default for the weights and biases of convolutions and linear layers.
Initializer fan_in_uniform(std::int64_t fan_in);

}  // namespace init
}  // namespace frit
