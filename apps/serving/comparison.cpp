#include "apps/serving/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace frit::apps {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double error_of(double found, double expected) {
  if (found == expected || (std::isnan(found) && std::isnan(expected))) return 0;
  const double error = std::abs(found - expected);
  return std::isnan(error) ? infinity : error;
}

/// "[0, 3, 1]" for the number of an element in row-major order.
std::string place_of(std::int64_t element, const Shape& shape) {
  std::string text = "]";
  for (int axis = shape.rank(); axis-- > 0; element /= shape[axis]) {
    text = concat(axis == 0 ? "" : ", ", element % shape[axis]) + text;
  }
  return '[' + text;
}

double absolute_of(const Tolerance& tolerance, const std::vector<double>& expected) {
  constexpr double least = 1e-5;
  if (tolerance.absolute) return *tolerance.absolute;
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::isfinite(value) ? std::abs(value) : 0);
  return std::max(least, tolerance.of_largest * largest);
}

}  // namespace

Comparison compare(const Tensor& found, const Tensor& expected, const Tolerance& tolerance) {
  Comparison result{.elements = found.elements()};
  if (!(found.shape() == expected.shape())) {
    result.differing = result.elements;
    result.difference = concat("the shape is ", found.shape(), ", expected ", expected.shape());
    return result;
  }
  const std::vector<double> a = found.to_vector<double>(), b = expected.to_vector<double>();
  const double absolute = absolute_of(tolerance, b);
  double worst = -infinity;
  std::size_t place = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = error_of(a[i], b[i]);
    const double allowed = absolute + tolerance.relative * (std::isfinite(b[i]) ? std::abs(b[i]) : 0);
    result.largest_error = std::max(result.largest_error, error);
    if (error <= allowed) continue;
    ++result.differing;
    if (error - allowed <= worst) continue;
    worst = error - allowed;
    place = i;
  }
  if (result.differing == 0) return result;
  result.difference =
      concat(result.differing, " of ", result.elements, " elements differ, most ",
             place_of(static_cast<std::int64_t>(place), found.shape()), ": got ", a[place], ", expected ", b[place], ", a difference of ",
             error_of(a[place], b[place]), " where ", absolute + tolerance.relative * std::abs(b[place]), " is allowed");
  return result;
}

}  // namespace frit::apps
