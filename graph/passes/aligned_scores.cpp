#include <algorithm>
#include <array>
#include <limits>

#include "frit/graph/index.h"
#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/linear/matmul.h"
#include "frit/ops/reduction/softmax.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::graph {
namespace {

bool is(const Node& node, const char* name) { return node.kind == NodeKind::operation && node.op->name == name; }

/// Elements by which rows are short of whole vectors of 16 bytes.
std::int64_t missing_elements(const TensorType& type) {
  const std::int64_t lanes = 16 / static_cast<std::int64_t>(size_of(type.dtype));
  return (lanes - type.shape.back() % lanes) % lanes;
}

/// x with so many elements more at an axis's end.
Value longer(Value x, int axis, std::int64_t more, double value) {
  Dims after = Dims::filled(x.rank(), 0);
  after[axis < 0 ? axis + x.rank() : axis] = more;
  return pad(x, Dims::filled(x.rank(), 0), after, value);
}

class ScoreAligner {
 public:
  ScoreAligner(const Graph& graph, std::int64_t least_bytes)
      : graph_(graph), uses_(use_counts(graph)), readers_(uses_.size(), nullptr), more_(uses_.size(), 0), rewriter_(graph) {
    for (const Node& node : graph.nodes()) {
      for (const int id : node.inputs) readers_[index(id)] = &node;
    }
    for (const Node& node : graph.nodes()) {
      if (is(node, "softmax") && graph.type(node.outputs[0]).bytes() >= least_bytes) mark(node);
    }
  }

  Graph run() {
    for (const Node& node : graph_.nodes()) {
      const auto is_longer = [&](int id) { return more_[index(id)] > 0; };
      if (std::none_of(node.inputs.begin(), node.inputs.end(), is_longer) &&
          std::none_of(node.outputs.begin(), node.outputs.end(), is_longer)) {
        rewriter_.copy(node);
      } else {
        rewriter_.map(node.outputs[0], rewriter_.target().emit(*node.op, longer_inputs(node), node.attributes).at(0));
      }
    }
    return rewriter_.finish();
  }

 private:
  /// A softmax over the last axis, of a product's scores, whose weights are for another product; nothing else reads either.
  void mark(const Node& softmax) {
    const int weights = softmax.outputs[0], last = graph_.type(weights).shape.rank() - 1;
    if (normalize_axis(softmax.attributes.as<ops::SoftmaxAttributes>().axis, last + 1, "softmax") != last || !read_once(weights)) return;
    const Node& reader = *readers_[index(weights)];
    if (!is(reader, "matmul") || reader.inputs[0] != weights || reader.attributes.as<ops::MatmulAttributes>().transpose_a) return;
    const std::vector<int> scores = scores_from(softmax.inputs[0]);
    if (scores.empty()) return;
    const std::int64_t more = missing_elements(graph_.type(scores.front()));
    for (const int id : scores) more_[index(id)] = more;
    more_[index(weights)] = more;
  }

  bool read_once(int id) const { return uses_[index(id)] == 1 && readers_[index(id)] != nullptr; }

  /// A product's result, and what elementwise operators make of it, up to this value; empty if it is not made so. Of scores of zeros, and
  /// ones, the operators make finite numbers.
  std::vector<int> scores_from(int id) const {
    constexpr std::array elementwise = {"add", "subtract", "multiply", "divide", "cast"};
    const Node& node = graph_.producer(id);
    if (!read_once(id) || !is_float(id)) return {};
    if (is(node, "matmul")) return {id};
    if (std::none_of(elementwise.begin(), elementwise.end(), [&](const char* name) { return is(node, name); })) return {};
    for (const int input : node.inputs) {
      if (is(node, "divide") && input != node.inputs[0]) continue;
      std::vector<int> scores = graph_.type(input).shape == graph_.type(id).shape ? scores_from(input) : std::vector<int>();
      if (scores.empty()) continue;
      scores.push_back(id);
      return scores;
    }
    return {};
  }
  bool is_float(int id) const { return graph_.type(id).dtype == DType::f32 || is_half(graph_.type(id).dtype); }

  Values longer_inputs(const Node& node) {
    Values inputs = rewriter_(node.inputs);
    const std::int64_t given = more_[index(node.inputs[0])], made = more_[index(node.outputs[0])];
    if (is(node, "matmul")) {  // keys of zeros, or values of zeros
      const int rows = -2, columns = -1;
      const bool transposed = node.attributes.as<ops::MatmulAttributes>().transpose_b, is_key = made > 0;
      inputs[1] = longer(inputs[1], is_key == transposed ? rows : columns, is_key ? made : given, 0);
    } else if (is(node, "softmax")) {
      inputs[0] = inputs[0] + mask(inputs[0], made);
    } else {
      const std::int64_t length = graph_.type(node.outputs[0]).shape.back();
      for (Value& input : inputs) {
        if (input.rank() > 0 && input.dim(-1) == length && length > 1) input = longer(input, -1, made, 1);
      }
    }
    return inputs;
  }

  /// 0, but -inf for the last elements of a row: their weights become 0.
  Value mask(Value scores, std::int64_t more) {
    const Tensor result = Tensor::zeros({scores.dim(-1)}, scores.dtype());
    result.slice(0, scores.dim(-1) - more, scores.dim(-1)).fill(-std::numeric_limits<double>::infinity());
    return rewriter_.target().constant(result);
  }

  const Graph& graph_;
  std::vector<int> uses_;
  std::vector<const Node*> readers_;  // by value: the last
  std::vector<std::int64_t> more_;    // by value: elements that its rows get
  Rewriter rewriter_;
};

}  // namespace

Graph align_scores(const Graph& graph, std::int64_t least_bytes) { return ScoreAligner(graph, least_bytes).run(); }

}  // namespace frit::graph
