#pragma once

#include <optional>
#include <string>

#include "apps/serving/comparison.h"
#include "apps/serving/inference.h"
#include "apps/serving/inference_files.h"
#include "apps/serving/nan_remark.h"
#include "apps/training/score.h"

namespace frit::apps {

/// Where the results of `frit infer` go, and what became of their comparison with a reference.
class ResultSink {
 public:
  struct Options {
    Tolerance tolerance = {};
    std::optional<std::int64_t> ignore_index = {};  ///< of references that are classes: what counts for nothing
  };
  ResultSink(const InferenceFiles& files, const Model& model, const Options& options);

  /// Writes an array, and compares it.
  void take(const Job& job);

  /// What was written, of one array.
  std::string text() const;
  const Comparison& comparison() const { return comparison_; }
  int differing_files() const { return differing_files_; }
  /// Of references that are classes; without a matrix there was none.
  const Score& score() const { return score_; }
  const std::optional<ConfusionMatrix>& confusion() const { return confusion_; }

 private:
  void write(const Job& job);
  void compare_with_reference(const Job& job);
  void count(const Tensor& logits, const Tensor& classes);

  const InferenceFiles& files_;
  const Model& model_;
  Options options_;
  Score score_;
  std::optional<ConfusionMatrix> confusion_;
  NanRemark nan_ = NanRemark("output");
  bool warned_ = false;  ///< of outputs that are not written
  Comparison comparison_;
  int differing_files_ = 0;
  Shape shape_;
  DType dtype_ = DType::f32;
};

}  // namespace frit::apps
