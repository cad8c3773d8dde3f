#include "frit/autograd/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "frit/core/error.h"
#include "frit/core/text.h"

namespace frit {
namespace {

/// From `start` to `end` along half a cosine while `share` goes from 0 to 1.
double along_cosine(double start, double end, double share) { return end + (start - end) * (1 + std::cos(std::numbers::pi * share)) / 2; }

double one_cycle(double update, double total) {
  constexpr double first = 1.0 / 25, last = first / 1e4, rising_share = 0.3;
  const double top = rising_share * total - 1, end = total - 1;
  if (top > 0 && update <= top) return along_cosine(first, 1, update / top);
  return along_cosine(1, last, std::min(1.0, (update - top) / (end - top)));
}

}  // namespace

void PlateauState::fields(FieldVisitor& v) {
  v.field("best", best);
  v.field("waited", waited);
  v.field("factor", factor);
}

void Schedule::check() const {
  require(warm_up >= 0, "schedule: warm_up is ", warm_up, ", expected 0 or more updates");
  require(!needs_total() || total > warm_up, "schedule: the training has ", total, " updates, the warm-up ", warm_up);
  require(interval >= 1, "schedule: interval is ", interval, ", expected 1 or more updates");
  require(factor > 0 && std::isfinite(factor), "schedule: factor is ", factor, ", expected a number above 0");
  require(final_factor >= 0 && std::isfinite(final_factor), "schedule: final_factor is ", final_factor, ", expected 0 or more");
  require(patience >= 0, "schedule: patience is ", patience, ", expected 0 or more measurements");
  require(threshold >= 0 && threshold < 1, "schedule: threshold is ", threshold, ", expected a number in [0, 1)");
}

double Schedule::factor_at(std::int64_t updates, const PlateauState& state) const {
  if (updates < warm_up) return static_cast<double>(updates + 1) / static_cast<double>(warm_up + 1);
  const auto update = static_cast<double>(updates - warm_up), length = static_cast<double>(total - warm_up);
  switch (kind) {
    case Kind::constant: break;
    case Kind::step: return std::pow(factor, std::floor(update / static_cast<double>(interval)));
    case Kind::cosine: return along_cosine(1, final_factor, std::min(1.0, update / length));
    case Kind::one_cycle: return one_cycle(update, length);
    case Kind::plateau: return state.factor;
  }
  return 1;
}

void Schedule::observe(double loss, PlateauState& state) const {
  if (kind != Kind::plateau) return;
  if (loss < state.best * (1 - threshold) || (std::isinf(state.best) && std::isfinite(loss))) {
    state.best = loss;
    state.waited = 0;
  } else if (++state.waited > patience) {
    state.factor *= factor;
    state.waited = 0;
  }
}

const std::vector<std::string>& Schedule::names() {
  static const std::vector<std::string> names = {"constant", "step", "cosine", "one-cycle", "plateau"};
  return names;
}

Schedule::Kind Schedule::kind_of(std::string_view name) {
  const auto place = std::find(names().begin(), names().end(), name);
  require(place != names().end(), "unknown schedule \"", printable(name), '"', did_you_mean(name, names()));
  return static_cast<Kind>(place - names().begin());
}

}  // namespace frit
