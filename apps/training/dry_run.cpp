#include "apps/training/dry_run.h"

#include <iostream>

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
  Planner(const Model& model, const Dataset& data, bool validates, const std::string& source, const TrainSettings& settings, Device device,
          std::int64_t prefetch)
      : data_(data),
        batches_(prefetch + 1),
        step_(small_step(model, data, source, settings, device)),
        inference_(graph::for_inference(step_.graph()), step_.shared_state(), {}, settings.precision),
        validates_(validates) {}

  struct Memory {
    graph::MemoryPlan training;
    std::int64_t validation = 0, batches = 0;
    std::int64_t bytes() const { return training.arena_bytes + validation + batches; }
  };

  Memory of(std::int64_t batch_size) const {
    const BatchTypes batch = BatchTypes::of(data_, batch_size);
    std::map<std::string, TensorType> inputs;
    for (const graph::Node* node : step_.graph().all(graph::NodeKind::input)) {
      const TensorType& given = node->name == "input" ? batch.input : batch.target;
      inputs[node->name] = {step_.graph().type(node->outputs[0]).dtype, given.shape};
    }
    return {step_.plan(inputs), validates_ ? inference_.plan(inputs).arena_bytes : 0,
            batches_ * (bytes_of(batch.input) + bytes_of(batch.target))};
  }

  const TrainStep& step() const { return step_; }

 private:
  static TrainStep small_step(const Model& model, const Dataset& data, const std::string& source, const TrainSettings& settings,
                              Device device) {
    Graph graph;
    const Value loss = with_content_of(source, [&] {
      require(data.size() > 0, "there are no examples");
      return build_loss(graph, model, BatchTypes::of(data, std::min<std::int64_t>({2, settings.batch_size, data.size()})), settings.dtype);
    });
    return TrainStep(loss, settings.make_optimizer(), device, settings.step_options(settings.warm_up + settings.accumulate));
  }

  const Dataset& data_;
  std::int64_t batches_;
  TrainStep step_;
  Program inference_;
  bool validates_;
};

/// What lives as long as the training.
struct Variables {
  std::int64_t parameters = 0, tensors = 0, elements = 0, optimizer = 0, others = 0;
  std::int64_t bytes() const { return parameters + optimizer + others; }
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

/// The largest number from 1 to `most` for which fits(number), which holds up to some number; 0 for none.
template <class Fits>
std::int64_t largest(std::int64_t most, const Fits& fits) {
  std::int64_t good = 0, bad = most + 1;
  for (std::int64_t next = 1; next <= most && fits(next); next *= 2) good = next;
  bad = std::min(bad, std::max<std::int64_t>(1, 2 * good));
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

std::string text_of(std::int64_t bytes) { return bytes_text(static_cast<std::size_t>(bytes)); }

}  // namespace

void print_plan(const Model& model, const Dataset& data, const Dataset* validation, const std::string& source,
                const TrainSettings& settings, Device device, std::int64_t prefetch) {
  const auto available = static_cast<std::int64_t>(std::min<std::size_t>(available_memory(device), std::size_t{1} << 62));
  const Planner planner(model, data, validation != nullptr, source, settings, device, prefetch);
  const Variables variables = variables_of(planner.step());
  const std::int64_t batch_size = std::min(settings.batch_size, data.size());
  const Planner::Memory memory = planner.of(batch_size);
  // Forms of operators that are chosen by time would have to be run at each size.
  Numerics by_rule = numerics();
  by_rule.deterministic = true;
  set_numerics(by_rule);
  const std::int64_t fitting = largest(data.size(), [&](std::int64_t size) {
    try {
      return variables.bytes() + planner.of(size).bytes() <= available;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::bug) throw;
      return false;  // more elements than a tensor can have
    }
  });
  Table table({{"what"}, {"memory", Table::Column::right}, {""}});
  table.add({"parameters", text_of(variables.parameters), grouped(variables.elements) + " in " + grouped(variables.tensors) + " tensors"});
  table.add({"optimizer", text_of(variables.optimizer), planner.step().optimizer().name});
  table.add({"other variables", text_of(variables.others), ""});
  table.add({"activations and gradients", text_of(memory.training.arena_bytes),
             concat("in one arena, ", text_of(memory.training.unplanned_bytes), " without sharing")});
  table.add({"validation", text_of(memory.validation), ""});
  table.add({"batches", text_of(memory.batches), concat(prefetch + 1, " of ", grouped(batch_size), " examples")});
  table.add({"total", text_of(variables.bytes() + memory.bytes()), concat("of ", text_of(available), " available on ", device)});
  table.print(std::cout);
  std::cout << "\nlargest batch that fits: " << grouped(fitting) << (fitting == data.size() ? ", which is all examples" : "") << '\n';
}

}  // namespace frit::apps
