#include "frit/graph/program.h"

#include <gtest/gtest.h>

#include "frit/core/memory/allocator.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"

namespace frit {
namespace {

Program doubling() {
  Graph graph;
  const Value x = graph.input("x", {1, 1024});
  graph.output("y", square(x + x));
  return Program(std::move(graph), std::make_shared<State>());
}

const graph::Executable* run(Program& program, std::int64_t rows) {
  const graph::Executable& executable = program.run({{"x", Tensor::full({rows, 1024}, 3)}});
  const Tensor& y = executable.output("y");
  EXPECT_EQ(y.shape(), Shape({rows, 1024}));
  EXPECT_EQ(y.span<float>().back(), 36);
  return &executable;
}

TEST(Program, CompilesASetOfShapesOnce) {
  Program program = doubling();
  const graph::Executable *const two = run(program, 2), *const three = run(program, 3);
  EXPECT_NE(two, three);
  EXPECT_EQ(run(program, 2), two);
  EXPECT_EQ(run(program, 3), three);
  EXPECT_EQ(&program.compile({{"x", {DType::f32, {2, 1024}}}}), two);
}

TEST(Program, KeepsWhatWasUsedLast) {
  Program program = doubling();
  const auto most = static_cast<std::int64_t>(Program::most_compiled);
  const graph::Executable* const first = run(program, 1);
  const auto in_use = [] { return allocator_of(Device::cpu()).statistics().in_use; };
  for (std::int64_t rows = 2; rows <= most; ++rows) run(program, rows);
  const std::size_t full = in_use();
  EXPECT_EQ(run(program, 1), first) << "used now, so that the others go before it";
  for (std::int64_t round = 0; round < 3; ++round) {
    for (std::int64_t rows = most + 1; rows < 2 * most; ++rows) run(program, rows);
    EXPECT_EQ(run(program, 1), first);
    for (std::int64_t rows = 2; rows <= most; ++rows) run(program, rows);
    EXPECT_EQ(run(program, 1), first);
    EXPECT_LE(in_use(), full + full / 8) << round;  // were none dropped, twice as much
  }
}

}  // namespace
}  // namespace frit
