#include "apps/training/train_settings.h"

#include <cmath>

#include "apps/common/options.h"
#include "apps/common/text.h"
#include "apps/training/parameter_groups.h"
#include "frit/core/io/json.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

/// Goes through the flags that take a number of some range or a word of some: what the command line takes, a file may have.
template <class Flags>
void each_flag(TrainSettings& s, const Flags& flags) {
  constexpr std::int64_t one = 1, none = 0, million = 1'000'000;
  flags.number("--epochs", s.epochs, one, million, "How often to go through the data");
  flags.number("--batch-size", s.batch_size, one, one << 20, "Examples a step");
  flags.number("--accumulate", s.accumulate, one, one << 20, "Batches whose gradients' mean makes one update");
  flags.choice("--optimizer", s.optimizer, {"sgd", "adam", "adamw"}, "How parameters follow their gradients");
  flags.number("--lr", s.rate, 0.0, 1e6, "Learning rate; the default is 0.01 for sgd and 0.001 for adam and adamw");
  flags.number("--momentum", s.momentum, 0.0, 1.0, "Of sgd; the default is 0");
  flags.number("--weight-decay", s.weight_decay, 0.0, 1e6, "The default is 0, for adamw 0.01");
  flags.number("--clip-norm", s.clip_norm, 1e-30, 1e30, "Scale the gradients down to this global norm");
  flags.choice(
      "--lr-schedule", s.schedule, Schedule::names(),
      "How the learning rate changes: step drops it every --lr-step epochs, plateau when the loss stays; cosine and one-cycle reach "
      "their end with the last epoch");
  flags.number("--warm-up", s.warm_up, none, 1000 * million, "Updates over which the learning rate first rises to its value");
  flags.number("--lr-step", s.interval, one, million, "Epochs between two drops of the schedule step");
  flags.number("--lr-patience", s.patience, none, million, "Epochs without a lower loss that the schedule plateau bears");
  flags.number("--lr-factor", s.factor, 1e-9, 1.0, "What a drop of step or plateau multiplies the learning rate by");
  flags.number("--average-decay", s.average_decay, 0.0, 0.999999,
               "Keep an average of each parameter, this times itself plus the rest times the parameter after each update; it is what is "
               "measured, saved and served");
  flags.number("--lr-final", s.final_factor, 0.0, 1.0, "The last learning rate of cosine, as a share of the first");
}

struct AddedFlags {
  CLI::App& command;

  template <class T, class Value>
  void number(const char* flag, Value& value, T least, T most, const char* description) const {
    add_number<T>(command, flag, value, least, most, description);
  }
  void choice(const char* flag, std::string& value, const std::vector<std::string>& choices, const char* description) const {
    add_choice(command, flag, value, choices, description);
  }
};

struct CheckedFlags {
  template <class T>
  void number(const char* flag, const std::optional<T>& value, T least, T most, const char* description) const {
    if (value) number(flag, *value, least, most, description);
  }
  template <class T>
  void number(const char* flag, const T& value, T least, T most, const char*) const {
    require(value >= least && value <= most, flag, ": expected a number from ", least, " to ", most, ", got ", value);
  }
  void choice(const char* flag, const std::string& value, const std::vector<std::string>& choices, const char*) const {
    const bool known = std::find(choices.begin(), choices.end(), value) != choices.end();
    require(known, flag, ": \"", printable(value), "\" is none of its values");
  }
};

}  // namespace

void TrainSettings::fields(FieldVisitor& v) {
  auto signed_seed = static_cast<std::int64_t>(seed);
  v.field("lr-schedule", schedule);  // first: what comes later depends on it
  const bool counts_epochs = Schedule{.kind = Schedule::kind_of(schedule)}.needs_total();
  std::int64_t counted_epochs = counts_epochs ? epochs : 0;
  std::optional<double> ignored = ignore_index;
  v.field("optimizer", optimizer);
  v.field("lr", rate);
  v.field("momentum", momentum);
  v.field("weight-decay", weight_decay);
  v.field("clip-norm", clip_norm);
  v.field("warm-up", warm_up);
  v.field("lr-step", interval);
  v.field("lr-patience", patience);
  v.field("lr-factor", factor);
  v.field("lr-final", final_factor);
  v.field("epochs", counted_epochs);
  v.field("batch-size", batch_size);
  v.field("accumulate", accumulate);
  v.field("seed", signed_seed);
  v.field("dtype", dtype);
  v.field("precision", precision);
  v.field("freeze", freeze);
  v.field("groups", groups);
  v.field("average-decay", average_decay);
  v.field("ignore-index", ignored);
  v.field("overfit-one-batch", overfit_one_batch);
  v.field("sync-batch-norm", sync_batch_norm);
  seed = static_cast<std::uint64_t>(signed_seed);
  if (counts_epochs) epochs = counted_epochs;
  const bool whole = !ignored || (std::abs(*ignored) <= static_cast<double>(most_ignore_index) && *ignored == std::floor(*ignored));
  if (!whole) fail(ErrorKind::format, "ignore-index: expected a number of a class, got ", *ignored);
  ignore_index = ignored ? std::optional(static_cast<std::int64_t>(*ignored)) : std::nullopt;
}

void TrainSettings::add_to(CLI::App& command) {
  each_flag(*this, AddedFlags{command});
  add_seed(command, seed);
  add_dtype(command, dtype, {DType::f32, DType::f64, DType::f16, DType::bf16});
  add_precision(command, precision, dtype);
  add_option(command, "--freeze", freeze, "Parameters to leave as they are: names with commas between them; * stands for any characters")
      .type_name("NAME,...");
  add_option(command, "--groups", groups,
             "Parameters with a learning rate or a weight decay of their own, by name or by rank: of several groups the first that fits "
             "counts. Their rates follow the schedule in proportion")
      .type_name("'rank=0-1 weight-decay=0; names=head.* lr=R; ...'");
  add_ignore_index(command, ignore_index);
  add_flag(command, "--overfit-one-batch", overfit_one_batch,
           "Learn one batch over and over: a model that works brings its loss to almost nothing");
  add_flag(command, "--sync-batch-norm", sync_batch_norm,
           "Of several processes: batch norms normalise by the examples of all of them, not each by its own");
}

void TrainSettings::check() const {
  TrainSettings settings = *this;
  each_flag(settings, CheckedFlags{});
  (void)parse_groups(groups);
  require(is_floating(dtype), "--dtype ", dtype, ": expected floating numbers");
  const bool mixed = precision == DType::f16 || precision == DType::bf16;
  require(precision == DType::f32 || (mixed && dtype == DType::f32), "--precision ", precision, " does not go with --dtype ", dtype);
}

Optimizer TrainSettings::make_optimizer() const { return optimizer_with(rate, weight_decay); }

Optimizer TrainSettings::optimizer_with(const std::optional<double>& own_rate, const std::optional<double>& own_decay) const {
  require(!momentum || optimizer == "sgd", "--momentum does not go with --optimizer ", optimizer, "; it is sgd's");
  const auto filled = [&](auto chosen) {
    chosen.learning_rate = own_rate.value_or(chosen.learning_rate);
    chosen.weight_decay = own_decay.value_or(chosen.weight_decay);
    return chosen;
  };
  if (optimizer == "sgd") return filled(Sgd{.momentum = momentum.value_or(0)});
  return optimizer == "adam" ? Optimizer(filled(Adam{})) : Optimizer(filled(AdamW{}));
}

std::vector<ParameterGroup> TrainSettings::make_groups() const {
  std::vector<ParameterGroup> made;
  for (const GroupSettings& group : parse_groups(groups)) {
    made.push_back({.names = group.names,
                    .least_rank = group.least_rank,
                    .most_rank = group.most_rank,
                    .optimizer = optimizer_with(group.rate ? group.rate : rate, group.weight_decay ? group.weight_decay : weight_decay)});
  }
  return made;
}

TrainOptions TrainSettings::step_options(std::int64_t batches_per_epoch) const {
  const auto updates = [&](std::int64_t of_epochs) { return std::max<std::int64_t>(1, of_epochs * batches_per_epoch / accumulate); };
  const Schedule chosen{.kind = Schedule::kind_of(schedule),
                        .warm_up = warm_up,
                        .total = updates(epochs),
                        .interval = updates(interval),
                        .factor = factor,
                        .final_factor = final_factor,
                        .patience = patience};
  require(!chosen.needs_total() || warm_up < chosen.total, "--warm-up ", warm_up, " does not go with --epochs ", epochs,
          ": the whole training has ", chosen.total, " updates");
  return {.seed = seed,
          .clip_norm = clip_norm,
          .precision = precision,
          .schedule = chosen,
          .accumulate = accumulate,
          .freeze = split(freeze, ','),
          .guarded = true,
          .groups = make_groups(),
          .average_decay = average_decay,
          .sync_batch_norm = sync_batch_norm};
}

TrainOptions TrainSettings::one_step_options() const {
  TrainSettings settings = *this;
  settings.schedule = "constant";
  return settings.step_options(/*batches_per_epoch=*/1);
}

void check_same_flags(const std::string& present, const std::string& recorded, const std::string& source) {
  const auto ours = nlohmann::ordered_json::parse(present), theirs = nlohmann::ordered_json::parse(recorded);
  for (const auto& [flag, value] : theirs.items()) {
    if (ours.at(flag) == value) continue;
    const ErrorKind kind = flag == "optimizer" ? ErrorKind::format : ErrorKind::argument;
    fail(kind, "--resume ", source, " does not go with --", flag, ' ', json_excerpt(ours.at(flag)), ": the run that is to go on has ",
         json_excerpt(value));
  }
}

}  // namespace frit::apps
