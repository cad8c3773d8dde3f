#include "apps/serving/inference_report.h"

#include <algorithm>
#include <iostream>

#include "apps/common/json.h"
#include "apps/common/text.h"
#include "frit/core/thread_pool.h"

namespace frit::apps {
namespace {

std::string times_text(const char* what, const std::vector<double>& times) {
  const Percentiles p = percentiles(times);
  return concat(what, " p50 ", fixed(p.p50, 2), " p90 ", fixed(p.p90, 2), " p99 ", fixed(p.p99, 2), " ms");
}

Json json_of(const std::vector<double>& times) {
  const Percentiles p = percentiles(times);
  return {{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}};
}

/// What was right of the classes in the reference.
Json json_of(const Score& score, const ConfusionMatrix& confusion) {
  Json json = {{"accuracy", score.accuracy() / 100}};
  if (score.top5()) json["top5"] = *score.top5() / 100;
  if (score.dice()) json["dice"] = *score.dice(), json["iou"] = *score.iou();
  for (std::int64_t c = 0; c < confusion.classes(); ++c) {
    Json counts = Json::array();
    for (std::int64_t predicted = 0; predicted < confusion.classes(); ++predicted) counts.push_back(confusion.count(c, predicted));
    json["confusion"].push_back(counts);
    json["class_dice"].push_back(confusion.dice(c));  // null where there is none
    json["class_iou"].push_back(confusion.iou(c));
  }
  return json;
}

double rate(const InferenceStatistics& statistics) { return static_cast<double>(statistics.examples) / std::max(statistics.seconds, 1e-9); }

}  // namespace

void InferenceReport::print_json(const InferenceStatistics& s, const ResultSink& results, const Stages& stages) const {
  Json result = {{"model", model},
                 {"device", concat(device)},
                 {"threads", thread_count()},
                 {"arrays", s.arrays},
                 {"examples", s.examples},
                 {"batches", s.batch.size()},
                 {"seconds", s.seconds},
                 {"examples_per_second", rate(s)},
                 {"batch_milliseconds", json_of(s.batch)},
                 {"response_milliseconds", json_of(s.response)}};
  if (results.confusion()) result["classes"] = json_of(results.score(), *results.confusion());
  if (compared && !results.confusion()) {
    const Comparison& comparison = results.comparison();
    result["reference"] = {
        {"elements", comparison.elements}, {"differing", comparison.differing}, {"largest_error", comparison.largest_error}};
  }
  for (const Stages::Stage& stage : timing ? stages.list() : std::vector<Stages::Stage>()) {
    result["start_milliseconds"][stage.name] = stage.milliseconds;
  }
  apps::print(std::cout, result);
}

void InferenceReport::print(const InferenceStatistics& s, const ResultSink& results, const Stages& stages) const {
  if (json) return print_json(s, results, stages);
  if (timing) {
    std::cerr << "start:";
    for (const Stages::Stage& stage : stages.list()) std::cerr << "  " << stage.name << ' ' << fixed(stage.milliseconds, 1);
    std::cerr << "  = " << fixed(stages.total(), 1) << " ms to the first result" << std::endl;
  }
  if (quiet) return;
  std::cerr << model << ": " << (s.arrays == 1 ? results.text() : concat(grouped(s.arrays), " arrays, ", grouped(s.examples), " examples"))
            << "; " << device << ", " << thread_count() << " threads; " << fixed(rate(s), 0) << " examples/s; "
            << times_text("batch", s.batch) << "; " << times_text("response", s.response);
  if (results.confusion()) std::cerr << "; " << results.score().answers_text();
  std::cerr << std::endl;
}

}  // namespace frit::apps
