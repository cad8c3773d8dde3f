#pragma once

#include <optional>
#include <string>

#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "frit/autograd/train_step.h"

namespace frit::apps {

/// What determines the numbers of a training, besides its model and its data: what a run that goes on must have again.
struct TrainSettings {
  std::string optimizer = "adam";
  std::optional<double> rate, momentum, weight_decay, clip_norm;
  std::string schedule = "constant";
  std::int64_t warm_up = 0;    ///< batches
  std::int64_t interval = 10;  ///< epochs, of the schedule "step"
  std::int64_t patience = 10;  ///< epochs, of the schedule "plateau"
  double factor = 0.1, final_factor = 0;
  std::int64_t epochs = 10;
  std::int64_t batch_size = 128, accumulate = 1;
  std::uint64_t seed = 0;
  DType dtype = DType::f32, precision = DType::f32;
  std::string freeze;  ///< patterns, with commas between them
  std::string groups;  ///< see parse_groups
  std::optional<double> average_decay;
  std::optional<std::int64_t> ignore_index;  ///< of segmentations: the target that counts for nothing
  bool overfit_one_batch = false, sync_batch_norm = false;

  /// Under the names of the command line's flags. Epochs count only where the schedule depends on them.
  void fields(FieldVisitor& v);
  void add_to(CLI::App& command);
  /// Of settings from a file: throws ErrorKind::argument for what the command line would refuse.
  void check() const;

  /// Throws ErrorKind::argument for settings that do not go together.
  Optimizer make_optimizer() const;
  std::vector<ParameterGroup> make_groups() const;
  TrainOptions step_options(std::int64_t batches_per_epoch) const;
  /// Likewise for a step by itself, in which the schedule, and how long it is, plays no part.
  TrainOptions one_step_options() const;

 private:
  Optimizer optimizer_with(const std::optional<double>& own_rate, const std::optional<double>& own_decay) const;
};

/// Throws unless the flags of `present`, a JSON object, have the values of `recorded`: ErrorKind::format for another optimizer, otherwise
/// ErrorKind::argument naming the flag and both values. `source` is where the record comes from.
void check_same_flags(const std::string& present, const std::string& recorded, const std::string& source);

/// Throws unless a run with `present` goes on as one with `recorded`, such settings as JSON, would have.
template <class Settings>
void check_same_settings(const Settings& present, const std::string& recorded, const std::string& source) {
  // Read and written again, so that a record of another version compares by its meaning.
  const auto read = with_content_of(source, [&] { return fields_from_json<Settings>(recorded, {}, "settings"); });
  check_same_flags(fields_to_json(present), fields_to_json(read), source);
}

}  // namespace frit::apps
