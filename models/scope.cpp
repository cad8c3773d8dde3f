#include "frit/models/scope.h"

#include <cmath>

#include "frit/core/random.h"

namespace frit {

std::string Scope::path(std::string_view child) const {
  require(!child.empty(), "a scope or parameter below \"", name_, "\" needs a name");
  return name_.empty() ? std::string(child) : name_ + "." + std::string(child);
}

Scope Scope::operator/(std::string_view child) const {
  Scope below = *this;
  below.name_ = path(child);
  return below;
}

Scope Scope::reuse() const {
  Scope again = *this;
  again.reused_ = true;
  return again;
}

Value Scope::variable(std::string_view name, const TensorType& type, Initializer initialize, bool trainable) const {
  const std::string full = path(name);
  if (!reused_) return graph_->variable(full, type, std::move(initialize), trainable);
  const graph::Node* made = graph_->find(graph::NodeKind::variable, full);
  require(made != nullptr, "\"", full, "\" is to be reused, but nothing has made it");
  const Value value = graph_->value(made->outputs[0]);
  require(value.type() == type && made->trainable == trainable, "\"", full, "\" is to be reused as ", trainable ? "parameter " : "buffer ",
          type, ", but was made as ", made->trainable ? "parameter " : "buffer ", value.type());
  return value;
}

Value Scope::parameter(std::string_view name, const Shape& shape, Initializer initialize) const {
  return variable(name, {dtype_, shape}, std::move(initialize), /*trainable=*/true);
}

Value Scope::buffer(std::string_view name, const Shape& shape, Initializer initialize) const {
  return variable(name, {dtype_, shape}, std::move(initialize));
}

Value Scope::counter(std::string_view name) const { return variable(name, {DType::i64, {}}, init::zeros()); }

namespace init {

Initializer constant(double value) {
  return [value](const Tensor& tensor, std::uint64_t) { tensor.fill(value); };
}

Initializer uniform(double low, double high) {
  return [=](const Tensor& tensor, std::uint64_t seed) { fill_uniform(tensor, low, high, seed, 0); };
}

Initializer normal(double mean, double deviation) {
  return [=](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, mean, deviation, seed, 0); };
}

Initializer fan_in_uniform(std::int64_t fan_in) {
  const double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  return uniform(-bound, bound);
}

}  // namespace init
}  // namespace frit
