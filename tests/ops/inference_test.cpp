#include <gtest/gtest.h>

#include <array>

#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

/// What calling an operator says whose rule gives so many results.
std::string message_of(std::size_t results, bool variadic_outputs) {
  const Operator op{.name = "rule", .inputs = {"input"}, .variadic_outputs = variadic_outputs, .infer = [=](const InferContext& call) {
                      return std::vector<TensorType>(results, call.inputs[0]);
                    }};
  const std::array types = {TensorType{DType::f32, {2}}};
  try {
    op.infer_types(types, {});
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument) << error.what();
    return error.what();
  }
}

TEST(Inference, ARuleGivesAsManyResultsAsItsOperatorHas) {
  EXPECT_EQ(message_of(0, false), "rule: its inference rule gave 0 results, expected 1");
  EXPECT_EQ(message_of(2, false), "rule: its inference rule gave 2 results, expected 1");
  EXPECT_EQ(message_of(0, true), "rule: its inference rule gave 0 results, expected 1 or more");
  EXPECT_EQ(message_of(1, false), "");
  EXPECT_EQ(message_of(2, true), "");
}

}  // namespace
}  // namespace frit::ops
