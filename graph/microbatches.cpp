#include "frit/graph/microbatches.h"

#include <algorithm>
#include <utility>

#include "frit/graph/index.h"
#include "frit/graph/preparation.h"
#include "frit/graph/together.h"

namespace frit::graph {
namespace {

/// Of more than this, which an operation reads and writes, the next one finds little in the caches of a usual core; of a sample that is
/// larger than the other it does not either.
constexpr std::int64_t cache_bytes = 8 << 20, most_sample_bytes = 24 << 20;

/// Whether the value may be a part of a larger one, which lies in pieces.
bool is_part(const Graph& graph, int value) {
  const Node& node = graph.producer(value);
  if (node.kind != NodeKind::operation) return false;
  return node.op->part || ((node.op->view || node.op->permutation) && is_part(graph, node.inputs[0]));
}

class Finder {
 public:
  Finder(const Graph& graph, Device device) : graph_(graph), prepared_(find_preparation(graph)), operations_(graph.nodes().size(), 0) {
    step_ = first_of_steps(graph, device);
    for (const int first : step_) ++operations_[index(first)];
  }

  std::vector<Microbatches> run() {
    for (int n = 0; n < static_cast<int>(graph_.nodes().size()); ++n) {
      if (node(n).kind != NodeKind::operation) continue;
      const Batch batch = batch_of(n);
      if (batch.samples != found_.samples || !takes_samples_alone(n)) end();
      if (batch.samples == 1) continue;
      if (found_.samples == 1) begin_ = n;
      last_ = n;
      found_ = {batch.samples, std::max(found_.bytes, batch.bytes)};
    }
    end();
    return std::move(result_);
  }

 private:
  /// The samples that had better be computed apart from each other, 1 if they had not, and the bytes of all of them.
  struct Batch {
    std::int64_t samples = 1, bytes = 0;
  };

  const Node& node(int n) const { return graph_.nodes()[index(n)]; }

  std::vector<bool> inputs_with_samples(const Node& node) const {
    return node.op->inputs_with_samples(graph_.types(node.inputs), node.attributes);
  }

  Batch batch_of(int n) const {
    const Node& of = node(n);
    if (prepared_[index(n)] || operations_[index(step_[index(n)])] != 1) return {};
    if (of.op->view || of.op->permutation || of.op->part || of.op->collective || !of.op->mutates.empty()) return {};
    const std::vector<bool> with_samples = inputs_with_samples(of);
    std::vector<int> batches = of.outputs;
    std::int64_t bytes = 0, whole_bytes = 0;
    for (std::size_t i = 0; i < with_samples.size(); ++i) {
      if (with_samples[i]) batches.push_back(of.inputs[i]);
      if (!with_samples[i]) whole_bytes += graph_.type(of.inputs[i]).bytes();
    }
    if (batches.size() == of.outputs.size()) return {};
    const Shape& shape = graph_.type(batches.back()).shape;
    const std::int64_t samples = shape.rank() > 0 ? shape[0] : 1;
    for (const int id : batches) {
      const TensorType& type = graph_.type(id);
      if (samples == 0 || type.shape.rank() == 0 || type.shape[0] % samples != 0 || is_part(graph_, id)) return {};
      bytes += type.bytes();
    }
    // What all samples read is read again for each.
    const bool gains = samples > 1 && bytes > cache_bytes && whole_bytes <= bytes / samples && bytes / samples <= most_sample_bytes;
    return gains && gives_samples(of, with_samples, samples) ? Batch{samples, bytes} : Batch{};
  }

  /// Whether the operator, with its attributes, takes one sample as it takes all.
  bool gives_samples(const Node& of, const std::vector<bool>& with_samples, std::int64_t samples) const {
    std::vector<TensorType> types = graph_.types(of.inputs);
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (with_samples[i]) types[i] = microbatch_of(types[i], samples);
    }
    const std::vector<TensorType> given = of.op->infer_types(types, of.attributes);
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (!(given[i] == microbatch_of(graph_.type(of.outputs[i]), samples))) return false;
    }
    return true;
  }

  /// Whether an operation needs no more than its own samples of what those before it give.
  bool takes_samples_alone(int n) const {
    if (found_.samples == 1) return true;
    const std::vector<bool> with_samples = inputs_with_samples(node(n));
    for (std::size_t i = 0; i < with_samples.size(); ++i) {
      const int producer = graph_.producer_index(node(n).inputs[i]);
      if (!with_samples[i] && producer >= begin_ && node(producer).kind == NodeKind::operation) return false;
    }
    return true;
  }

  void end() {
    const Batch batch = std::exchange(found_, {});
    if (batch.samples == 1 || last_ == begin_) return;
    std::int64_t count = 2;
    while (count < batch.samples && (batch.samples % count != 0 || batch.bytes / count > cache_bytes)) ++count;
    result_.push_back({begin_, last_, count});
  }

  const Graph& graph_;
  std::vector<int> step_;
  std::vector<bool> prepared_;
  std::vector<int> operations_;  // of each step, by its first node
  Batch found_;                  // of the operations from begin_ to last_: the most bytes
  int begin_ = 0, last_ = 0;
  std::vector<Microbatches> result_;
};

}  // namespace

std::vector<Microbatches> find_microbatches(const Graph& graph, Device device) {
  return device.kind == DeviceKind::cpu ? Finder(graph, device).run() : std::vector<Microbatches>();
}

TensorType microbatch_of(const TensorType& batch, std::int64_t count) {
  TensorType part = batch;
  part.shape[0] /= count;
  return part;
}

Tensor microbatch_of(const Tensor& batch, std::int64_t count, std::int64_t part) {
  const std::int64_t samples = batch.dim(0) / count;
  return batch.slice(0, part * samples, (part + 1) * samples);
}

}  // namespace frit::graph
