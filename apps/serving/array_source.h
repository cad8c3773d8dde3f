#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/serving/array_stream.h"
#include "apps/serving/inference.h"
#include "apps/serving/inference_files.h"
#include "apps/serving/nan_remark.h"

namespace frit::apps {

/// Throws for inputs, by name, that the model does not take.
using InputCheck = std::function<void(const std::map<std::string, TensorType>& types)>;

/// Where the arrays of `frit infer` come from: one file after another, or standard input.
class ArraySource {
 public:
  /// What `check` throws is said of the file. Arrays are for a model of `dtype`.
  ArraySource(const InferenceFiles& files, const Model& model, DType dtype, InputCheck check);

  std::optional<Job> next();
  /// A call that waits for input ends.
  void stop();

 private:
  ShapeCheck check_of(const std::string& name) const;
  std::optional<Job> read();
  Job read(const std::string& file) const;

  std::vector<std::string> files_;
  std::optional<ArrayInput> stream_;
  DType dtype_;
  const Model& model_;
  InputCheck check_;
  std::size_t taken_ = 0;
  NanRemark nan_ = NanRemark("input");
  bool converted_ = false;
};

}  // namespace frit::apps
