#include "apps/report/run_data.h"
#include "fuzz/fuzzing.h"

namespace frit::apps {
namespace {

/// The good lines, which written again are all good.
template <class Row>
std::vector<Row> read(std::vector<Row> (*parse)(const std::string&, const std::string&, std::string&),
                      std::string (*write)(const std::vector<Row>&), const std::string& bytes) {
  std::string damage, none;
  std::vector<Row> rows = parse(bytes, "input", damage);
  const std::string written = write(rows);
  FRIT_CHECK(write(parse(written, "written", none)) == written && none.empty());
  return rows;
}

}  // namespace

/// What a run that goes on reads of its own folder, and shows again.
FRIT_FUZZ_TARGET(run_files) {
  RunData run{.title = "run"};
  if (bytes.starts_with("step"))
    run.steps = read(parse_steps_csv, steps_csv, bytes);
  else
    run.epochs = read(parse_epochs_csv, epochs_csv, bytes);
  report_html(run);
}

}  // namespace frit::apps
