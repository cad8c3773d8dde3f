#include "frit/models/onnx/operators/helpers.h"

namespace frit::onnx {
namespace {

/// -sum over classes of weight * log probability where the target is, reduced as the attribute says. log_probabilities (N, C, ...),
/// targets (N, ...), weights (C) or none.
Value negative_log_likelihood(const Call& call, Value log_probabilities, Value target, Value weight) {
  const std::string reduction = call.text("reduction", "mean");
  call.require_support(reduction == "mean" || reduction == "sum" || reduction == "none", "reduction = \"", reduction, '"');
  const int rank = log_probabilities.rank();
  call.require_support(rank >= 2 && target.rank() == rank - 1, "scores of rank ", rank, " with targets of rank ", target.rank());
  const DType dtype = log_probabilities.dtype();
  const Value classes = positions(call, log_probabilities.dim(1), 1, rank, DType::i64);
  const Value labels = unsqueeze(cast(target, DType::i64), 1);
  Value chosen = cast(equal(classes, labels), dtype);
  if (call.has("ignore_index")) {
    chosen = chosen * cast(not_equal(labels, ops::scalar(labels, static_cast<double>(call.integer("ignore_index", 0)))), dtype);
  }
  if (weight) {
    Shape shape = Dims::filled(rank, 1);
    shape[1] = weight.dim(0);
    chosen = chosen * reshape(weight, shape);
  }
  const Value zero = ops::scalar(log_probabilities, 0);
  const Value each = -sum(where(not_equal(chosen, zero), log_probabilities * chosen, zero), {1});
  if (reduction == "none") return each;
  return reduction == "sum" ? sum(each) : sum(each) / sum(chosen);
}

Values nll_loss(const Call& call) { return {negative_log_likelihood(call, call[0], call[1], call.optional(2))}; }

Values softmax_cross_entropy(const Call& call) {
  const Value log_probabilities = log_softmax(call[0], 1);
  return {negative_log_likelihood(call, log_probabilities, call[1], call.optional(2)), log_probabilities};
}

}  // namespace

void add_losses(OperatorTable& table) {
  table["NegativeLogLikelihoodLoss"] = nll_loss;
  table["SoftmaxCrossEntropyLoss"] = softmax_cross_entropy;
}

}  // namespace frit::onnx
