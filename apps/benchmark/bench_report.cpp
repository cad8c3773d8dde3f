#include "apps/benchmark/bench_report.h"

#include <map>
#include <ostream>

#include "apps/common/table.h"
#include "apps/common/text.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

/// 0 where nothing was measured.
double ratio(double a, double b) { return b > 0 ? a / b : 0; }

double sum_of(const std::vector<OperatorTime>& operators) {
  double sum = 0;
  for (const OperatorTime& time : operators) sum += time.microseconds;
  return sum;
}

/// What follows from one operator's time; shares are of 1.
struct Rates {
  double bandwidth;    ///< GB/s
  double floor_share;  ///< the time that a copy of as many bytes takes, over the operator's
  double total_share;  ///< of all operators' time
  double flops;        ///< of multiplications with additions, in Gflop/s
  double peak_share;   ///< that, of what the cores can at most
};

Rates rates(const OperatorTime& time, const BenchReport& report, double total) {
  const double bandwidth = ratio(static_cast<double>(time.bytes), 1e3 * time.microseconds);
  const double flops = ratio(2 * time.multiplications, 1e3 * time.microseconds);
  return {bandwidth, ratio(bandwidth, report.copy_bandwidth), ratio(time.microseconds, total), flops, ratio(flops, report.peak)};
}

std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

void print_operators(std::ostream& out, const ModeTimes& mode, const BenchReport& report) {
  const double total = sum_of(mode.operators);
  out << '\n' << mode.mode << " by operator, each by itself: " << fixed(total, 1) << " us in all\n";
  if (mode.prepared > 0)
    out << "not in these: " << mode.prepared << " steps, " << fixed(mode.preparation, 1) << " us, that are computed once\n";
  constexpr auto right = Table::Column::right;
  Table table({{"operator"},
               {"calls", right},
               {"us", right},
               {"bytes", right},
               {"GB/s", right},
               {"of copy speed", right},
               {"Gflop/s", right},
               {"of peak", right},
               {"of total", right},
               {"schedule"},
               {"types"}});
  for (const OperatorTime& time : mode.operators) {
    const Rates r = rates(time, report, total);
    table.add({time.op, std::to_string(time.calls), fixed(time.microseconds, 1), grouped(time.bytes), fixed(r.bandwidth, 1),
               percent(r.floor_share), r.flops > 0 ? fixed(r.flops, 1) : "", r.peak_share > 0 ? percent(r.peak_share) : "",
               percent(r.total_share), time.schedule, time.types});
  }
  table.print(out);
}

/// Of bias and epilogue, what the plan does itself.
std::string fused_text(const ops::LibraryPlan& plan) {
  if (plan.fused_bias) return plan.fused_epilogue ? "bias, epilogue" : "bias";
  return plan.fused_epilogue ? "epilogue" : "";
}

/// How the plans were chosen, and what that took.
struct PlanSummary {
  std::map<std::string, int> decided;
  double seconds = 0, building = 0;

  explicit PlanSummary(const std::vector<ops::PlanChoice>& choices) {
    for (const ops::PlanChoice& choice : choices) {
      ++decided[choice.decided];
      seconds += choice.seconds;
      building += choice.building;
    }
  }
};

void print_summary(std::ostream& out, const PlanSummary& plans) {
  if (plans.decided.empty()) return;
  out << "\nplans of convolutions: ";
  for (const auto& [decided, count] : plans.decided) out << count << ' ' << decided << ", ";
  out << "in " << fixed(plans.seconds, 1) << " s, of which building them took " << fixed(plans.building, 1) << " s\n";
}

void print_plans(std::ostream& out, const std::vector<ops::PlanChoice>& choices) {
  out << "\nplans for " << choices.size() << " convolutions, the chosen one of each first\n";
  constexpr auto right = Table::Column::right;
  for (const ops::PlanChoice& choice : choices) {
    out << '\n' << choice.problem << "; chosen " << choice.decided << " in " << fixed(choice.seconds, 2) << " s\n";
    Table table({{"us", right}, {"workspace", right}, {"engine", right}, {"fused"}, {"knobs"}});
    for (const ops::LibraryPlan& plan : choice.plans) {
      table.add({plan.microseconds > 0 ? fixed(plan.microseconds, 1) : "-", grouped(plan.workspace), std::to_string(plan.engine),
                 fused_text(plan), plan.knobs});
    }
    table.print(out);
  }
}

/// A field of RFC 4180.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string result;
  for (const char c : text) result += c == '"' ? "\"\"" : std::string(1, c);
  return '"' + result + '"';
}

void print_row(std::ostream& out, const std::vector<std::string>& fields) {
  for (std::size_t i = 0; i < fields.size(); ++i) out << (i == 0 ? "" : ",") << quoted(fields[i]);
  out << '\n';
}

Json json_of(const ModeTimes& mode, const BenchReport& report) {
  Json json = {{"mode", mode.mode},
               {"microseconds", {{"median", mode.median}, {"p10", mode.p10}, {"p90", mode.p90}}},
               {"first_step_seconds", mode.first},
               {"memory_bytes", {{"predicted", mode.predicted_bytes}, {"peak", mode.peak_bytes}}},
               {"computed_once", {{"steps", mode.prepared}}}};
  if (mode.operators.empty()) return json;
  const double total = sum_of(mode.operators);
  Json operators = Json::array();
  for (const OperatorTime& time : mode.operators) {
    const Rates r = rates(time, report, total);
    operators.push_back({{"operator", time.op},
                         {"types", time.types},
                         {"schedule", time.schedule},
                         {"calls", time.calls},
                         {"microseconds", time.microseconds},
                         {"bytes", time.bytes},
                         {"gigabytes_per_second", r.bandwidth},
                         {"floor_share", r.floor_share},
                         {"gigaflops_per_second", r.flops},
                         {"peak_share", r.peak_share},
                         {"total_share", r.total_share}});
  }
  json["operators_microseconds"] = total;
  json["computed_once"]["microseconds"] = mode.preparation;
  json["operators"] = std::move(operators);
  return json;
}

Json json_of(const ops::PlanChoice& choice) {
  Json json = {{"problem", choice.problem}, {"chosen", choice.decided}, {"seconds", choice.seconds}, {"plans", Json::array()}};
  for (const ops::LibraryPlan& plan : choice.plans) json["plans"].push_back(Json::parse(fields_to_json(plan)));
  return json;
}

}  // namespace

void print_table(std::ostream& out, const BenchReport& report) {
  out << report.model << ", input " << report.dtype << ' ' << report.input << "; " << report.device << "; " << report.threads
      << " threads; precision " << report.precision << ", math " << report.math << ", search " << report.search
      << (report.deterministic ? ", deterministic" : "") << "; a copy moves " << fixed(report.copy_bandwidth, 1) << " GB/s"
      << (report.peak > 0 ? concat(", the cores compute ", fixed(report.peak, 1), " Gflop/s in float32 at most") : "") << "\n\n";
  constexpr auto right = Table::Column::right;
  Table table({{"step"},
               {"median us", right},
               {"p10 us", right},
               {"p90 us", right},
               {"first after s", right},
               {"planned memory", right},
               {"peak memory", right}});
  for (const ModeTimes& mode : report.modes) {
    table.add({mode.mode, fixed(mode.median, 1), fixed(mode.p10, 1), fixed(mode.p90, 1), fixed(mode.first, 2),
               bytes_text(static_cast<std::size_t>(mode.predicted_bytes)), bytes_text(static_cast<std::size_t>(mode.peak_bytes))});
  }
  table.print(out);
  print_summary(out, PlanSummary(report.plans));
  for (const ModeTimes& mode : report.modes) {
    if (!mode.operators.empty()) print_operators(out, mode, report);
  }
  if (report.lists_plans) print_plans(out, report.plans);
}

void print_csv(std::ostream& out, const BenchReport& report) {
  print_row(out, {"model", "input", "device", "dtype", "mode", "operator", "types", "schedule", "calls", "microseconds", "p10", "p90",
                  "bytes", "gigabytes_per_second", "floor_share", "total_share"});
  for (const ModeTimes& mode : report.modes) {
    const std::vector<std::string> common = {report.model, concat(report.input), report.device, report.dtype, mode.mode};
    const auto add = [&](std::vector<std::string> fields) {
      fields.insert(fields.begin(), common.begin(), common.end());
      print_row(out, fields);
    };
    add({"step", "", "", "1", fixed(mode.median, 3), fixed(mode.p10, 3), fixed(mode.p90, 3), "", "", "", ""});
    for (const OperatorTime& time : mode.operators) {
      const Rates r = rates(time, report, sum_of(mode.operators));
      add({time.op, time.types, time.schedule, std::to_string(time.calls), fixed(time.microseconds, 3), "", "", std::to_string(time.bytes),
           fixed(r.bandwidth, 3), fixed(r.floor_share, 4), fixed(r.total_share, 4)});
    }
  }
}

Json json_of(const BenchReport& report) {
  const PlanSummary plans(report.plans);
  Json json = {
      {"model", report.model},
      {"config", Json::parse(report.config)},
      {"input", shape_json(report.input)},
      {"dtype", report.dtype},
      {"precision", report.precision},
      {"device", report.device},
      {"threads", report.threads},
      {"math", report.math},
      {"deterministic", report.deterministic},
      {"search", {{"mode", report.search}, {"chosen", plans.decided}, {"seconds", plans.seconds}, {"building_seconds", plans.building}}},
      {"optimizer", report.optimizer},
      {"repeats", report.repeats},
      {"copy_gigabytes_per_second", report.copy_bandwidth},
      {"peak_gigaflops_per_second", report.peak}};
  for (const ModeTimes& mode : report.modes) json["results"].push_back(json_of(mode, report));
  if (report.lists_plans) {
    json["plans"] = Json::array();
    for (const ops::PlanChoice& choice : report.plans) json["plans"].push_back(json_of(choice));
  }
  return json;
}

}  // namespace frit::apps
