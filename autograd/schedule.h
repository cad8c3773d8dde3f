#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "frit/core/fields.h"

namespace frit {

/// What a schedule remembers: only `plateau` does.
struct PlateauState {
  double best = std::numeric_limits<double>::infinity();  ///< the least loss so far
  std::int64_t waited = 0;                                ///< measurements since then, or since the last drop
  double factor = 1;                                      ///< the product of all drops

  void fields(FieldVisitor& v);
};

/// How the learning rate changes from update to update, as a factor of the optimizer's: a function of the number of updates before, and for
/// `plateau` of the losses that were measured. Formulas: torch.optim.lr_scheduler.
struct Schedule {
  enum class Kind {
    constant,
    step,       ///< StepLR: times `factor` every `interval` updates
    cosine,     ///< CosineAnnealingLR: from 1 to `final_factor` along half a cosine over `total` updates, and stays there
    one_cycle,  ///< OneCycleLR without its momentum: over `total` updates up from 1/25 to 1 in the first 30 %, then down to 1/250,000
    plateau     ///< ReduceLROnPlateau: times `factor` when more than `patience` measurements in a row did not beat the best by `threshold`
  };

  Kind kind = Kind::constant;
  std::int64_t warm_up = 0;  ///< updates in which the factor first rises linearly to 1; the schedule counts from their end
  std::int64_t total = 0;    ///< of all updates, those of the warm-up included
  std::int64_t interval = 1;
  double factor = 0.1;
  double final_factor = 0;
  std::int64_t patience = 10;
  double threshold = 1e-4;  ///< relative

  /// Throws ErrorKind::argument for numbers that make no schedule.
  void check() const;
  /// Of the update that follows `updates` others.
  double factor_at(std::int64_t updates, const PlateauState& state) const;
  /// Takes note of a measured loss; without effect but for `plateau`.
  void observe(double loss, PlateauState& state) const;
  /// Whether the length of the whole training plays a part.
  bool needs_total() const { return kind == Kind::cosine || kind == Kind::one_cycle; }

  /// "one-cycle".
  static const std::vector<std::string>& names();
  static Kind kind_of(std::string_view name);
};

}  // namespace frit
