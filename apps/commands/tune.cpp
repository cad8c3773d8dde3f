#include <algorithm>
#include <iostream>

#include "apps/benchmark/benchmark.h"
#include "apps/commands/commands.h"
#include "apps/common/json.h"
#include "apps/common/table.h"
#include "apps/common/text.h"
#include "frit/core/numerics.h"
#include "frit/core/plan_cache.h"
#include "frit/ops/libraries/library_plans.h"

namespace frit::apps {
namespace {

struct TuneArguments : BenchmarkOptions {
  bool quiet = false, json = false;
};

struct Tuned {
  std::string mode;
  double before, after;  ///< microseconds of a step: as it would run without the search, and with what that found
};

void search_by(Search search) {
  Numerics settings = numerics();
  settings.search = search;
  set_numerics(settings);
}

/// "0.41 s, 34 plans, the fastest takes 31.2 us: convolution f16 channels-last, input ...": the device is always the same.
void print_progress(const ops::PlanChoice& choice) {
  const std::size_t device_end = choice.problem.find(": ");
  std::cerr << fixed(choice.seconds, 2) << " s, " << choice.plans.size() << " plans, the fastest takes "
            << fixed(choice.plans.at(0).microseconds, 1)
            << " us: " << choice.problem.substr(device_end == std::string::npos ? 0 : device_end + 2) << std::endl;
}

void print_table(const std::vector<Tuned>& modes, int searched, double seconds) {
  constexpr auto right = Table::Column::right;
  Table table({{"step"}, {"before us", right}, {"tuned us", right}, {"gain", right}});
  for (const Tuned& mode : modes)
    table.add({mode.mode, fixed(mode.before, 1), fixed(mode.after, 1), fixed(mode.before / mode.after, 2) + "x"});
  table.print(std::cout);
  std::cout << "\nplans of " << searched << " convolutions were searched, in " << fixed(seconds, 1) << " s, and are kept in "
            << printable(plan_cache().path()) << '\n';
}

void print_json(const TuneArguments& a, const std::vector<Tuned>& modes, int searched, double seconds) {
  Json json = {{"model", a.model}, {"searched", searched}, {"seconds", seconds}, {"plan_cache", plan_cache().path()}};
  for (const Tuned& mode : modes)
    json["results"].push_back({{"mode", mode.mode}, {"before_microseconds", mode.before}, {"tuned_microseconds", mode.after}});
  print(std::cout, json);
}

int run_tune(const TuneArguments& a) {
  require(!a.run.deterministic, "frit tune: --deterministic chooses by rule, and reads no plan cache");
  const Device device = a.run.apply();
  require(!plan_cache().path().empty(), "frit tune: what is found is kept in the plan cache, which is off");
  Subject subject = a.subject(device);
  require(on_gpu(device), "frit tune: plans are a GPU's, and the device is ", device);
  if (a.mode == "all") std::erase(subject.modes, "backward");  // is part of training
  int searched = 0;
  ops::set_plan_observer([&](const ops::PlanChoice& choice) {
    if (choice.decided != "by time") return;
    ++searched;
    if (!a.quiet) print_progress(choice);
  });
  double seconds = 0;
  std::vector<Tuned> modes;
  for (const std::string& mode : subject.modes) {
    search_by(Search::heuristic);
    Tuned& tuned = modes.emplace_back(Tuned{mode, subject.measure(mode, a.on(device)).median, 0});
    search_by(Search::exhaustive);
    const ModeTimes times = subject.measure(mode, a.on(device));
    tuned.after = times.median;
    seconds += times.first;
  }
  ops::set_plan_observer(nullptr);
  a.json ? print_json(a, modes, searched, seconds) : print_table(modes, searched, seconds);
  return 0;
}

}  // namespace

void add_tune(CLI::App& app, Action& action) {
  CLI::App& command =
      add_command(app, "tune", "Search for the fastest plans and lowerings of a model on a GPU, and keep them for all later runs");
  const auto a = std::make_shared<TuneArguments>();
  a->add_to(command, /*with_search=*/false);
  add_quiet(command, a->quiet);
  add_json(command, a->json);
  set_action(command, action, [a] { return run_tune(*a); });
}

}  // namespace frit::apps
