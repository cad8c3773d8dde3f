#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "frit/core/error.h"
#include "frit/core/tensor.h"

namespace frit {

/// 0, 1, 2, ... in row-major order.
inline Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
  std::iota(values.begin(), values.end(), 0.0F);
  return Tensor::from(values, shape);
}

/// The message of the error of an argument that `body` throws.
template <class Body>
std::string argument_error(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return "no error";
}

}  // namespace frit
