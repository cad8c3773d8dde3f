#include "frit/ops/libraries/cuda/nvrtc.h"

#include <gtest/gtest.h>

#include "frit/ops/operator/registry.h"

namespace frit {
namespace {

/// Compiling needs no GPU.
class Nvrtc : public testing::Test {
 protected:
  void SetUp() override {
    try {
      nvrtc::version();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

/// A kernel that applies each elementwise operator that programs are made of to what the one before gave.
std::string source_with_all_functions(const char* type) {
  std::string source = concat(
      "#include \"frit/ops/elementwise/program.cuh\"\n"
      "using namespace frit::ops::program;\n"
      "extern \"C\" __global__ void program(const __grid_constant__ Operands<2> operands, std::int64_t count) {\n"
      "  constexpr State state = {{0, 0}};\n"
      "  auto value = load<",
      type, ", Access::indexed, ", type, ", 2>(operands.of[0], 2 * threadIdx.x, count);\n");
  for (const ops::Operator* op : ops::registry().all()) {
    if (!op->cuda.functor) continue;
    const int number = op->cuda.functor(op->default_attributes, true).number;
    source += concat("  value = apply<", number, ">(state, value, value, value);\n");
  }
  return source + concat("  store<", type, ", Access::vector>(operands.of[1], 2 * threadIdx.x, count, value);\n}\n");
}

TEST_F(Nvrtc, CompilesEveryElementwiseOperator) {
  for (const char* type : {"float", "double"}) {
    const std::string source = source_with_all_functions(type);
    EXPECT_GT(std::count(source.begin(), source.end(), '\n'), 40);
    EXPECT_GT(nvrtc::compile_code(source, 90).size(), 1000u);
  }
}

TEST_F(Nvrtc, SaysWhatItDoesNotUnderstand) {
  try {
    nvrtc::compile_code("extern \"C\" __global__ void program() { nothing(); }", 90);
    FAIL() << "it compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_NE(std::string_view(error.what()).find("identifier \"nothing\" is undefined"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace frit
