#pragma once

#include "apps/training/training.h"

namespace frit::apps {

/// Prints on stdout, as a table or as JSON, what a training on `data` with these options would take, from the memory plans of all that it
/// would compile: nothing of its size is allocated. `validation` may be null. Throws as Training does for data that do not fit the model;
/// `source` is their name.
void print_plan(const Model& model, const Dataset& data, const Dataset* validation, const std::string& source,
                const TrainingOptions& options, bool json);

}  // namespace frit::apps
