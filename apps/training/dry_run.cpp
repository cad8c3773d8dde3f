#include "apps/training/dry_run.h"

#include <iostream>

#include "apps/common/json.h"
#include "apps/common/model_source.h"
#include "apps/common/table.h"
#include "apps/common/text.h"
#include "apps/training/training_graph.h"
#include "frit/core/memory/allocator.h"
#include "frit/core/numerics.h"
#include "frit/core/text.h"
#include "frit/graph/pipeline.h"

namespace frit::apps {
namespace {

std::int64_t bytes_of(const TensorType& type) { return byte_count(type.shape, size_of(type.dtype)); }

/// Plans the memory of a training for batches of any size.
class Planner {
 public:
  Planner(const Model& model, const Dataset& data, const Dataset* validation, const std::string& source, const TrainingOptions& options)
      : data_(data),
        settings_(options.settings),
        slots_(options.prefetch + 1),
        measured_(validation == nullptr ? 0 : validation->size()),
        step_(small_step(model, data, source, options)),
        inference_(graph::for_inference(step_.graph()), step_.shared_state(), {}, options.settings.precision),
        updates_(step_.later_bytes()) {}

  /// Each part in an arena of its own, which stays as long as the training: `last` is for a smaller batch at the end of an epoch, and
  /// `updates` for those by summed gradients.
  struct Memory {
    graph::MemoryPlan training = {};
    std::int64_t last = 0, updates = 0, validation = 0, last_validation = 0, batches = 0;

    /// Of whole batches alone: it grows with their size.
    std::int64_t whole() const { return training.arena_bytes + updates + validation + batches; }
    std::int64_t bytes() const { return whole() + last + last_validation; }
  };

  Memory of(std::int64_t batch_size) const {
    const std::int64_t size = std::min(batch_size, data_.size()), measured = std::min(batch_size, measured_);
    Memory memory{.training = training(size), .updates = updates_, .batches = batches(size) + batches(measured)};
    if (const std::int64_t rest = last_batch(batch_size)) memory.last = training(rest).arena_bytes;
    if (measured > 0) memory.validation = validation(measured);
    if (measured > 0 && measured_ % measured > 0) memory.last_validation = validation(measured_ % measured);
    return memory;
  }

  /// The examples of the last batch of an epoch where it is smaller than the others; otherwise 0.
  std::int64_t last_batch(std::int64_t batch_size) const {
    return settings_.overfit_one_batch ? 0 : data_.size() % std::min(batch_size, data_.size());
  }

  /// The least batch size with which both data make as many whole batches as with this one: from it to this one last batches get smaller.
  std::int64_t least_like(std::int64_t batch_size) const {
    const auto least = [&](std::int64_t examples) { return examples / (examples / batch_size + 1) + 1; };
    return std::max(least(data_.size()), least(measured_));
  }

  const TrainStep& step() const { return step_; }

 private:
  static TrainStep small_step(const Model& model, const Dataset& data, const std::string& source, const TrainingOptions& options) {
    const TrainSettings& settings = options.settings;
    Graph graph;
    const Value loss = with_content_of(source, [&] {
      require(data.size() > 0, "there are no examples");
      const BatchTypes batch = batch_types(data, std::min<std::int64_t>({2, settings.batch_size, data.size()}));
      return build_loss(graph, model, batch, settings.dtype, {settings.ignore_index});
    });
    TrainOptions step_options = settings.one_step_options();
    step_options.communicator = options.group.communicator();
    step_options.shards_optimizer = options.shards_optimizer;
    return TrainStep(loss, settings.make_optimizer(), options.device, step_options);
  }

  using Inputs = std::map<std::string, TensorType>;
  Inputs inputs(std::int64_t batch_size) const {
    const BatchTypes batch = batch_types(data_, batch_size);
    Inputs inputs;
    for (const graph::Node* node : step_.graph().all(graph::NodeKind::input)) {
      inputs[node->name] = {step_.graph().type(node->outputs[0]).dtype, batch.at(node->name).shape};
    }
    return inputs;
  }

  const graph::MemoryPlan& training(std::int64_t batch_size) const {
    const auto known = trainings_.find(batch_size);
    return known != trainings_.end() ? known->second : trainings_[batch_size] = step_.plan(inputs(batch_size));
  }
  std::int64_t validation(std::int64_t batch_size) const {
    const auto known = validations_.find(batch_size);
    return known != validations_.end() ? known->second : validations_[batch_size] = inference_.plan(inputs(batch_size)).arena_bytes;
  }

  /// Of one data set: those that are read ahead, the one at work, and where the model computes in another dtype, that one converted.
  std::int64_t batches(std::int64_t batch_size) const {
    const BatchTypes read = batch_types(data_, batch_size);
    std::int64_t bytes = 0;
    for (const auto& [name, type] : read) bytes += slots_ * bytes_of(type);
    for (const auto& [name, type] : inputs(batch_size)) {
      if (type.dtype != read.at(name).dtype) bytes += bytes_of(type);
    }
    return bytes;
  }

  const Dataset& data_;
  const TrainSettings& settings_;
  std::int64_t slots_, measured_;
  TrainStep step_;
  Program inference_;
  std::int64_t updates_;
  // By batch size.
  mutable std::map<std::int64_t, graph::MemoryPlan> trainings_;
  mutable std::map<std::int64_t, std::int64_t> validations_;
};

/// What lives as long as the training.
struct Variables {
  std::int64_t parameters = 0, tensors = 0, elements = 0, optimizer = 0, others = 0;
  std::int64_t measured = 0;  ///< once more, with averages of the parameters, which validation is of
  std::int64_t bytes() const { return parameters + optimizer + others + measured; }
};

Variables variables_of(const TrainStep& step) {
  Variables found;
  for (const auto& [name, tensor] : step.state().tensors()) {
    const graph::Node* const node = step.graph().find(graph::NodeKind::variable, name);
    if (node == nullptr) {
      found.optimizer += tensor.bytes();
    } else if (!node->trainable) {
      found.others += tensor.bytes();
    } else {
      found.parameters += tensor.bytes();
      found.elements += tensor.elements();
      ++found.tensors;
    }
  }
  return found;
}

/// The largest number of `least` to `most` for which fits(number), which holds up to some number; least - 1 for none.
template <class Fits>
std::int64_t largest(std::int64_t least, std::int64_t most, const Fits& fits) {
  std::int64_t good = least - 1, bad = most + 1;
  for (std::int64_t ahead = 1; good + ahead < bad; ahead *= 2) {
    if (fits(good + ahead)) {
      good += ahead;
    } else {
      bad = good + ahead;
    }
  }
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

/// The largest batch whose training takes at most `available` bytes besides its variables; 0 for none.
std::int64_t largest_batch(const Planner& planner, std::int64_t examples, std::int64_t available) {
  const auto fits = [&](std::int64_t size, auto bytes) {
    try {
      return (planner.of(size).*bytes)() <= available;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::bug) throw;
      return false;  // more elements than a tensor can have
    }
  };
  const auto with_last = [&](std::int64_t size) { return fits(size, &Planner::Memory::bytes); };
  std::int64_t size = largest(1, examples, [&](std::int64_t s) { return fits(s, &Planner::Memory::whole); });
  // What last batches add jumps up and down with the size. Between two jumps the sum rises or falls.
  while (size > 0 && !with_last(size)) {
    const std::int64_t least = planner.least_like(size);
    if (with_last(least)) return largest(least, size, with_last);
    size = least - 1;
  }
  return size;
}

std::string text_of(std::int64_t bytes) { return bytes_text(static_cast<std::size_t>(bytes)); }

struct Plan {
  Variables variables = {};
  Planner::Memory memory = {};  ///< for the batches that were asked for
  std::int64_t batch_size = 0, last_batch = 0, available = 0, largest_batch = 0;
  std::int64_t bytes() const { return variables.bytes() + memory.bytes(); }
};

Json json_of(const Plan& plan, const Model& model) {
  const Planner::Memory& memory = plan.memory;
  return {{"model", model.name},
          {"parameters", plan.variables.elements},
          {"memory_bytes",
           {{"parameters", plan.variables.parameters},
            {"optimizer", plan.variables.optimizer},
            {"other_variables", plan.variables.others + plan.variables.measured},
            {"training", memory.training.arena_bytes + memory.updates},
            {"last_batch", memory.last},
            {"validation", memory.validation + memory.last_validation},
            {"batches", memory.batches},
            {"total", plan.bytes()},
            {"available", plan.available}}},
          {"batch_size", plan.batch_size},
          {"largest_batch", plan.largest_batch}};
}

void print_table(const Plan& plan, const Planner& planner, const TrainingOptions& options, bool all) {
  const Variables& variables = plan.variables;
  const Planner::Memory& memory = plan.memory;
  Table table({{"what"}, {"memory", Table::Column::right}, {""}});
  table.add({"parameters", text_of(variables.parameters), grouped(variables.elements) + " in " + grouped(variables.tensors) + " tensors"});
  table.add({"optimizer", text_of(variables.optimizer), planner.step().optimizer().name});
  table.add({"other variables", text_of(variables.others + variables.measured),
             variables.measured > 0 ? concat(text_of(variables.measured), " of it averages that are measured") : ""});
  table.add({"activations and gradients", text_of(memory.training.arena_bytes + memory.updates),
             concat("in one arena, ", text_of(memory.training.unplanned_bytes), " without sharing")});
  if (plan.last_batch > 0) {
    table.add({"last batch", text_of(memory.last), concat("the same for ", grouped(plan.last_batch), " examples, in an arena of its own")});
  }
  table.add({"validation", text_of(memory.validation + memory.last_validation),
             memory.last_validation > 0 ? concat(text_of(memory.last_validation), " of it for the last batch") : ""});
  table.add(
      {"batches", text_of(memory.batches),
       concat(options.prefetch + 1, " of ", grouped(plan.batch_size), " examples", memory.validation > 0 ? ", and of validation" : "")});
  table.add({"total", text_of(plan.bytes()), concat("of ", text_of(plan.available), " available on ", options.device)});
  table.print(std::cout);
  std::cout << "\nlargest batch that fits: " << grouped(plan.largest_batch) << (all ? ", which is all examples" : "") << '\n';
}

}  // namespace

void print_plan(const Model& model, const Dataset& data, const Dataset* validation, const std::string& source,
                const TrainingOptions& options, bool json) {
  const auto available = static_cast<std::int64_t>(std::min<std::size_t>(available_memory(options.device), std::size_t{1} << 62));
  const Planner planner(model, data, validation, source, options);
  Plan plan{
      .variables = variables_of(planner.step()), .batch_size = std::min(options.settings.batch_size, data.size()), .available = available};
  plan.memory = planner.of(plan.batch_size);
  if (options.settings.average_decay && validation != nullptr) plan.variables.measured = plan.variables.parameters + plan.variables.others;
  plan.last_batch = planner.last_batch(plan.batch_size);
  // Lowerings of operators that are chosen by time would have to be run at each size.
  Numerics by_rule = numerics();
  by_rule.deterministic = true;
  set_numerics(by_rule);
  plan.largest_batch = largest_batch(planner, data.size(), available - plan.variables.bytes());
  if (json) return print(std::cout, json_of(plan, model));
  print_table(plan, planner, options, plan.largest_batch == data.size());
}

}  // namespace frit::apps
