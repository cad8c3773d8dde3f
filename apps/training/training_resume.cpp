// How a training goes on from a checkpoint.

#include <cmath>

#include "apps/common/model_source.h"
#include "apps/training/training.h"
#include "frit/core/data/fingerprint.h"
#include "frit/core/text.h"

namespace frit::apps {

void Training::resume(const TensorFile& checkpoint) {
  const auto entry = [&](const char* key) -> const std::string& {
    const auto place = checkpoint.metadata().find(key);
    if (place == checkpoint.metadata().end()) {
      fail(ErrorKind::format, checkpoint.file(), ": the metadata have no \"", key, "\": not written by `frit train`");
    }
    return place->second;
  };
  const Model recorded = model_of(checkpoint);
  if (recorded.name != model_.name || recorded.config != model_.config) {
    fail(ErrorKind::format, checkpoint.file(), ": model: expected ", model_.name, ' ', model_.config, ", got ", recorded.name, ' ',
         recorded.config);
  }
  check_same_settings(options_.settings, entry("settings"), checkpoint.file());
  check_same_settings(options_.data, entry("data"), checkpoint.file());
  auto position = fields_from_json<RunPosition>(entry("position"), {}, checkpoint.file());
  const Score learnt = fields_from_json(entry("epoch_score"), Score(model_.task), checkpoint.file()),
              score = fields_from_json(entry("score"), Score(model_.task), checkpoint.file());
  take_fingerprints();
  check_position(position, checkpoint.file());
  const bool scored = learnt.plausible() && score.plausible() && learnt.examples() <= position.examples;
  if (!scored) fail(ErrorKind::format, checkpoint.file(), ": the scores are none of ", position.examples, " examples");
  restore_training(checkpoint, step_);
  if (position.data.empty()) position.data = position_.data;
  if (position.validation.empty()) position.validation = position_.validation;
  position_ = position;
  learnt_ = learnt;
  score_ = score;
}

void Training::take_fingerprints() {
  if (position_.data.empty()) position_.data = fingerprint(data_.dataset());
  if (position_.validation.empty() && validation_ != nullptr) position_.validation = fingerprint(validation_->dataset());
}

/// Throws ErrorKind::format for a position of a run with other data, or that no run can have.
void Training::check_position(const RunPosition& position, const std::string& file) const {
  if (position.examples != position_.examples) {
    fail(ErrorKind::format, source_, ": has ", position_.examples, " examples; the run that is to go on (", file, ") has ",
         position.examples);
  }
  const auto check_same = [&](const char* what, const std::string& present, const std::string& recorded) {
    // Checkpoints did not always have fingerprints, and who measures on nothing has none.
    if (present.empty() || recorded.empty() || present == recorded) return;
    fail(ErrorKind::format, source_, ": the examples ", what, " are not those of the run that is to go on (", file, "): their checksum is ",
         present, ", was ", printable(recorded));
  };
  check_same("to learn", position_.data, position.data);
  check_same("to measure on", position_.validation, position.validation);
  // The last batch, which may be too small for the processes of now, may have been learnt.
  const std::int64_t batches = (position.examples + options_.settings.batch_size - 1) / options_.settings.batch_size;
  const bool possible = position.epoch >= 0 && position.batch >= 0 && position.batch <= batches && position.stale >= 0 &&
                        position.stale <= position.epoch && !std::isnan(position.best);
  if (possible) return;
  fail(ErrorKind::format, file, ": position: epoch ", position.epoch, ", batch ", position.batch, " of ", batches, ", best loss ",
       position.best, ' ', position.stale, " epochs ago");
}

}  // namespace frit::apps
