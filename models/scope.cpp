#include "frit/models/scope.h"

// A program may have Eigen too, compiled for other processors: what it calls must not be what this file has compiled, nor the other way.
#define Eigen frit_eigen
#include <Eigen/Core>
#include <algorithm>
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

Initializer truncated_normal(double mean, double deviation, double low, double high) {
  const bool often_inside = low <= mean + 2 * deviation && high >= mean - 2 * deviation && high - low >= deviation / 10;
  require(deviation > 0 && often_inside, "truncated_normal: [", low, ", ", high,
          "] must reach within 2 deviations of the mean and be 0.1 of one ", "long, got mean ", mean, " and deviation ", deviation);
  return [=](const Tensor& tensor, std::uint64_t seed) {
    const Tensor drawn = Tensor::empty(tensor.shape(), DType::f64);
    std::vector<double> kept(static_cast<std::size_t>(tensor.elements()), low - 1);
    const auto outside = [&](double x) { return x < low || x > high; };
    for (std::uint64_t stream = 0; std::any_of(kept.begin(), kept.end(), outside); ++stream) {
      fill_normal(drawn, mean, deviation, seed, stream);
      for (std::size_t i = 0; i < kept.size(); ++i) kept[i] = outside(kept[i]) ? drawn.span<double>()[i] : kept[i];
    }
    copy(tensor, Tensor::from(kept, tensor.shape()));
  };
}

namespace {

struct Fans {
  double in, out;

  explicit Fans(const Shape& weight) {
    require(weight.rank() >= 2, "an initialiser by fan-in or fan-out needs a weight of rank 2 or more, got ", weight);
    const auto elements = static_cast<double>(std::max<std::int64_t>(1, element_count(weight)));
    in = elements / static_cast<double>(std::max<std::int64_t>(1, weight[0]));
    out = elements / static_cast<double>(std::max<std::int64_t>(1, weight[1]));
  }
};

/// Of the deviation that `deviation_of` finds for a weight's fans.
template <class DeviationOf>
Initializer by_fans(bool uniform_numbers, DeviationOf deviation_of) {
  return [=](const Tensor& tensor, std::uint64_t seed) {
    const double deviation = deviation_of(Fans(tensor.shape())), bound = std::sqrt(3.0) * deviation;
    (uniform_numbers ? uniform(-bound, bound) : normal(0, deviation))(tensor, seed);
  };
}

Initializer kaiming(bool uniform_numbers, double gain, Fan fan) {
  return by_fans(uniform_numbers, [=](const Fans& fans) { return gain / std::sqrt(fan == Fan::in ? fans.in : fans.out); });
}

Initializer xavier(bool uniform_numbers, double gain) {
  return by_fans(uniform_numbers, [=](const Fans& fans) { return gain * std::sqrt(2 / (fans.in + fans.out)); });
}

using Rows = Eigen::Map<Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

/// Gram-Schmidt, twice, so that rounding leaves nothing of the rows before.
void make_orthonormal(Rows& rows) {
  for (Eigen::Index i = 0; i < rows.rows(); ++i) {
    for (int pass = 0; pass < 2; ++pass) {
      const Eigen::RowVectorXd along = rows.row(i) * rows.topRows(i).transpose();
      rows.row(i).noalias() -= along * rows.topRows(i);
    }
    rows.row(i).normalize();
  }
}

}  // namespace

Initializer kaiming_uniform(double gain, Fan fan) { return kaiming(true, gain, fan); }
Initializer kaiming_normal(double gain, Fan fan) { return kaiming(false, gain, fan); }
Initializer xavier_uniform(double gain) { return xavier(true, gain); }
Initializer xavier_normal(double gain) { return xavier(false, gain); }

Initializer orthogonal(double gain) {
  return [=](const Tensor& tensor, std::uint64_t seed) {
    require(tensor.rank() >= 2, "orthogonal: a weight of rank 2 or more is needed, got ", tensor.shape());
    if (tensor.elements() == 0) return;
    const std::int64_t rows = tensor.dim(0), columns = tensor.elements() / rows, few = std::min(rows, columns),
                       many = std::max(rows, columns);
    const Tensor matrix = Tensor::empty({few, many}, DType::f64);
    fill_normal(matrix, 0, 1, seed, 0);
    Rows vectors(matrix.data<double>(), few, many);
    make_orthonormal(vectors);
    vectors *= gain;
    copy(tensor, (rows <= columns ? matrix : matrix.transpose(0, 1)).reshape(tensor.shape()));
  };
}

Initializer fan_in_uniform(std::int64_t fan_in) {
  const double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  return uniform(-bound, bound);
}

}  // namespace init
}  // namespace frit
