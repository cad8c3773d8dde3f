#include "frit/autograd/reduced_gradients.h"

#include <algorithm>
#include <numeric>

#include "frit/ops/communication/collectives.h"
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

/// In the order in which the graph computes them: body(the indices of a bucket's values, the values).
template <class Body>
void for_each_bucket(const Values& values, const Body& body) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a].id() < values[b].id(); });
  std::vector<std::size_t> bucket;
  Values tensors;
  std::int64_t bytes = 0;
  const auto end_bucket = [&] {
    if (!bucket.empty()) body(bucket, tensors);
    bucket.clear();
    tensors.clear();
    bytes = 0;
  };
  for (const std::size_t i : order) {
    const std::int64_t more = values[i].type().bytes();
    if (bytes + more > bucket_bytes || bucket.size() == ops::most_reduced_together) end_bucket();
    bucket.push_back(i);
    tensors.push_back(values[i]);
    bytes += more;
  }
  end_bucket();
}

using Reduce = Values (*)(std::span<const Value> tensors, const Communicator& communicator);

Values reduced_by(Reduce reduce, const Values& gradients, const Communicator& communicator, bool in_halves) {
  Values sent, reduced(gradients.size());
  for (const Value& gradient : gradients) sent.push_back(in_halves ? before_cast(gradient) : gradient);
  for_each_bucket(sent, [&](const std::vector<std::size_t>& bucket, const Values& tensors) {
    const Values results = reduce(tensors, communicator);
    for (std::size_t k = 0; k < bucket.size(); ++k) {
      const DType dtype = gradients[bucket[k]].dtype();
      reduced[bucket[k]] = results[k].dtype() == dtype ? results[k] : cast(results[k], dtype);
    }
  });
  return reduced;
}

}  // namespace

Values reduced_gradients(const Values& gradients, const Communicator& communicator, bool in_halves) {
  return reduced_by(ops::all_reduce, gradients, communicator, in_halves);
}

Values parts_of_reduced_gradients(const Values& gradients, const Communicator& communicator, bool in_halves) {
  return reduced_by(ops::reduce_scatter, gradients, communicator, in_halves);
}

void gather_parameters(const Values& parameters, const Communicator& communicator) {
  for_each_bucket(parameters, [&](const auto&, const Values& variables) { ops::gather_parts(variables, communicator); });
}

}  // namespace frit
