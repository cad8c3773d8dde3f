#include "frit/models/training/verify.h"

#include <algorithm>
#include <iostream>

#include "apps/commands/commands.h"
#include "apps/common/json.h"
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
  bool json = false;
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

Json json_of(const VerifyRow& row) {
  return {{"tensor", row.name},         {"shape", shape_json(row.shape)}, {"absolute", row.absolute}, {"relative", row.relative},
          {"tolerance", row.tolerance}, {"passed", row.passed},           {"remark", row.remark}};
}

int run_verify(const VerifyArguments& a) {
  const Device device = a.run.apply();
  std::int64_t tensors = 0, failed = 0;
  Json files = Json::array();
  for (const std::string& path : a.cases) {
    const std::vector<VerifyRow> rows = verify_case(read_safetensors(path), a.dtype, device, a.precision);
    files.push_back({{"file", path}, {"tensors", Json::array()}});
    for (const VerifyRow& row : rows) files.back()["tensors"].push_back(json_of(row));
    tensors += std::ssize(rows);
    failed += std::count_if(rows.begin(), rows.end(), [](const VerifyRow& row) { return !row.passed; });
    if (a.json) continue;
    std::cout << printable(path) << " in " << (a.precision == DType::f32 ? a.dtype : a.precision) << " on " << device << '\n';
    print_rows(rows);
    std::cout << std::endl;
  }
  if (a.json)
    print(std::cout, {{"device", concat(device)}, {"checked", tensors}, {"failed", failed}, {"files", files}});
  else
    std::cout << tensors - failed << " of " << tensors << " tensors of " << a.cases.size() << " files are within tolerance\n";
  if (failed == 0) return exit_success;
  print_error(concat(failed, " of ", tensors, " tensors differ"));
  return exit_check_failed;
}

}  // namespace

void add_verify(CLI::App& app, Action& action) {
  CLI::App& command = add_command(app, "verify", "Compare results and gradients with cases that another implementation wrote down");
  const auto a = std::make_shared<VerifyArguments>();
  add_option(command, "CASE", a->cases, ".safetensors files").required().type_name("").reads();
  add_dtype(command, a->dtype, {DType::f64, DType::f32});
  add_precision(command, a->precision, a->dtype);
  add_json(command, a->json);
  a->run.add_to(command);
  set_action(command, action, [a] { return run_verify(*a); });
}

}  // namespace frit::apps
