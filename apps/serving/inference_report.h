#pragma once

#include <string>

#include "apps/common/stages.h"
#include "apps/serving/inference.h"
#include "apps/serving/result_sink.h"

namespace frit::apps {

/// What `frit infer` says at its end, and how.
struct InferenceReport {
  bool quiet = false, json = false, timing = false;
  bool compared = false;  ///< with references
  std::string model = {};
  Device device = {};

  void print(const InferenceStatistics& statistics, const ResultSink& results, const Stages& stages) const;

 private:
  void print_json(const InferenceStatistics& statistics, const ResultSink& results, const Stages& stages) const;
};

}  // namespace frit::apps
