// What a profiler sees.

#include "apps/program.h"

namespace frit {
namespace {

class Ranges : public ProgramTest {
 protected:
  Outcome bench(std::vector<std::string> environment) const {
    return run_program({.arguments = {"bench", "softmax", "--device", "cpu", "--dtype", "f16", "--mode", "forward", "--repeats", "1"},
                        .directory = folder,
                        .environment = std::move(environment)});
  }
};

TEST_F(Ranges, HaveTheNamesOfOperatorsAndSchedules) {
  const Outcome outcome = bench({"NVTX_INJECTION64_PATH=" FRIT_NVTX_LISTENER});
  EXPECT_EQ(outcome.code, 0) << outcome;
  EXPECT_TRUE(outcome.errors.starts_with("domain frit\nrange frit run\nrange softmax: converted to f32 and back\nrange ")) << outcome;
}

}  // namespace
}  // namespace frit
