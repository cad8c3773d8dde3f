#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/serving/array_stream.h"
#include "apps/serving/inference.h"
#include "apps/serving/inference_files.h"
#include "apps/serving/nan_remark.h"

namespace frit::apps {

/// Where the arrays of `frit infer` come from: one file after another, or standard input.
class ArraySource {
 public:
  /// `check` throws for the shape of an array that the model does not take, which is then refused by name. Arrays are for a model of
  /// `dtype`.
  ArraySource(const InferenceFiles& files, DType dtype, ShapeCheck check);

  std::optional<Job> next();
  /// A call that waits for input ends.
  void stop();

 private:
  ShapeCheck check_of(const std::string& name) const;
  std::optional<Job> read();

  std::vector<std::string> files_;
  std::optional<ArrayInput> stream_;
  DType dtype_;
  ShapeCheck check_;
  std::size_t taken_ = 0;
  NanRemark nan_ = NanRemark("input");
  bool converted_ = false;
};

}  // namespace frit::apps
