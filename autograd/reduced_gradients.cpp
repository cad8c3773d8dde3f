#include "frit/autograd/reduced_gradients.h"

#include <algorithm>
#include <numeric>

#include "frit/ops/communication/all_reduce.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

/// The half that a gradient was cast from, if it was; else the gradient.
Value before_cast(Value gradient) {
  Graph& graph = Graph::of(gradient);
  const graph::Node& producer = graph.producer(gradient.id());
  if (producer.kind != graph::NodeKind::operation || !producer.op->conversion) return gradient;
  const Value source = graph.value(producer.inputs[0]);
  return is_half(source.dtype()) ? source : gradient;
}

}  // namespace

Values reduced_gradients(const Values& gradients, const Communicator& communicator, bool in_halves) {
  Values sent;
  for (const Value& gradient : gradients) sent.push_back(in_halves ? before_cast(gradient) : gradient);
  std::vector<std::size_t> order(sent.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sent[a].id() < sent[b].id(); });

  Values reduced(sent.size());
  std::vector<std::size_t> bucket;
  std::int64_t bytes = 0;
  const auto reduce_bucket = [&] {
    Values tensors;
    for (const std::size_t i : bucket) tensors.push_back(sent[i]);
    if (tensors.empty()) return;
    const Values means = ops::all_reduce(tensors, communicator);
    for (std::size_t k = 0; k < bucket.size(); ++k) {
      const Value& gradient = gradients[bucket[k]];
      reduced[bucket[k]] = means[k].dtype() == gradient.dtype() ? means[k] : cast(means[k], gradient.dtype());
    }
    bucket.clear();
    bytes = 0;
  };
  for (const std::size_t i : order) {
    const std::int64_t more = sent[i].type().bytes();
    if (bytes + more > bucket_bytes || bucket.size() == ops::most_reduced_together) reduce_bucket();
    bucket.push_back(i);
    bytes += more;
  }
  reduce_bucket();
  return reduced;
}

}  // namespace frit
