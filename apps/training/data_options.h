#pragma once

#include <memory>
#include <string>

#include "apps/common/options.h"
#include "apps/training/train_settings.h"
#include "frit/core/data/files.h"
#include "frit/models/model.h"

namespace frit::apps {

/// How `frit train` takes the examples that it is given.
struct DataOptions {
  ReadOptions read = {};
  Shape crop = {};
  Dims padding = {};
  std::string flip = {};
  std::string normalize = "none";

  /// Under the names of the command line's flags.
  void fields(FieldVisitor& v);
  void add_to(CLI::App& command);

  /// The examples that the model is to learn: cropped and flipped at random.
  std::shared_ptr<const Dataset> training(const Model& model, const std::string& path) const;
  /// The examples to measure on: patches on a grid, the middle of each image, the classes of what is learnt, which lies at `training_path`.
  std::shared_ptr<const Dataset> validation(const Model& model, const std::string& path, const std::string& training_path) const;
  /// The model after the normalisation that was asked for, as measured on the examples. Throws ErrorKind::format, naming `path`.
  Model normalized(const Model& model, const Dataset& examples, const std::string& path) const;

 private:
  std::shared_ptr<const Dataset> transformed(const Model& model, std::shared_ptr<const Dataset> data, const std::string& path,
                                             bool random) const;
};

/// One batch of examples, as often as the data have batches.
std::shared_ptr<const Dataset> one_batch(const std::shared_ptr<const Dataset>& data, const TrainSettings& settings);

}  // namespace frit::apps
