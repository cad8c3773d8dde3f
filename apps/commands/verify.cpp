#include "frit/models/training/verify.h"

#include <algorithm>
#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/options.h"
#include "apps/common/process.h"
#include "apps/common/table.h"
#include "apps/common/text.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

struct VerifyArguments {
  std::vector<std::string> cases;
  DType dtype = DType::f64, precision = DType::f32;
  RunOptions run;
};

void print_rows(const std::vector<VerifyRow>& rows) {
  Table table({{"tensor"},
               {"shape"},
               {"absolute", Table::Column::right},
               {"relative", Table::Column::right},
               {"tolerance", Table::Column::right},
               {"verdict"},
               {""}});
  for (const VerifyRow& row : rows) {
    table.add({row.name, concat(row.shape), scientific(row.absolute), scientific(row.relative), scientific(row.tolerance),
               row.passed ? "ok" : "FAILED", row.remark});
  }
  table.print(std::cout);
}

int run_verify(const VerifyArguments& a) {
  const Device device = a.run.apply();
  std::int64_t tensors = 0, failed = 0;
  for (const std::string& path : a.cases) {
    const std::vector<VerifyRow> rows = verify_case(read_safetensors(path), a.dtype, device, a.precision);
    std::cout << printable(path) << " in " << (a.precision == DType::f32 ? a.dtype : a.precision) << " on " << device << '\n';
    print_rows(rows);
    std::cout << std::endl;
    tensors += std::ssize(rows);
    failed += std::count_if(rows.begin(), rows.end(), [](const VerifyRow& row) { return !row.passed; });
  }
  std::cout << tensors - failed << " of " << tensors << " tensors of " << a.cases.size() << " files are within tolerance\n";
  if (failed == 0) return exit_success;
  print_error(concat(failed, " of ", tensors, " tensors differ"));
  return exit_check_failed;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  CLI::App& command = *app.add_subcommand("verify", "Compare results and gradients with cases that another implementation wrote down");
  const auto a = std::make_shared<VerifyArguments>();
  command.add_option("CASE", a->cases, ".safetensors files")->required()->type_name("");
  add_dtype(command, a->dtype, {DType::f64, DType::f32});
  add_precision(command, a->precision, a->dtype);
  a->run.add_to(command);
  command.callback([a, &action] { action = [a] { return run_verify(*a); }; });
}

}  // namespace frit::apps
