#pragma once

#include "apps/training/train_settings.h"
#include "frit/core/data/dataset.h"
#include "frit/models/model.h"

namespace frit::apps {

/// Prints on stdout what a training on `data` would take, from its memory plan: nothing of its size is allocated. `validation` may be null.
/// Throws as Training does for data that do not fit the model; `source` is their name.
void print_plan(const Model& model, const Dataset& data, const Dataset* validation, const std::string& source,
                const TrainSettings& settings, Device device, std::int64_t prefetch);

}  // namespace frit::apps
