#include <algorithm>
#include <map>

#include "frit/graph/pipeline.h"
#include "frit/graph/rewriter.h"

namespace frit::graph {
namespace {

constexpr int rank_of_lines = 3;  ///< (N, C, L)

/// (N, C, 1, L) of (N, C, L): with an axis of size 1 before the last one, if there are axes before that.
Shape with_unit_axis(const Shape& shape) {
  if (shape.rank() < 2) return shape;
  Shape result;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (axis == shape.rank() - 1) result.push_back(1);
    result.push_back(shape[axis]);
  }
  return result;
}

class UnitAxes {
 public:
  explicit UnitAxes(const Graph& graph) : graph_(graph), rewriter_(graph) {}

  Graph run() {
    for (const Node& node : graph_.nodes()) {
      if (node.kind != NodeKind::operation) {
        rewriter_.copy(node);
      } else if (node.op->view) {
        if (!drop(node)) rewriter_.copy(node);
        note(node);
      } else if (!compute(node)) {
        rewriter_.copy(node);
      }
    }
    return remove_dead_code(rewriter_.finish());
  }

 private:
  const Shape& shape(int id) const { return graph_.type(id).shape; }
  bool is_image(int id) const { return images_.contains(id); }

  /// A view that gives an image back.
  bool drop(const Node& view) {
    const int from = view.inputs[0], to = view.outputs[0];
    if (!is_image(from) || shape(to) != with_unit_axis(shape(from))) return false;
    rewriter_.map(to, images_.at(from));
    return true;
  }

  /// One that is made of an image.
  void note(const Node& view) {
    const int from = view.inputs[0], to = view.outputs[0];
    if (shape(to).rank() == rank_of_lines && shape(from) == with_unit_axis(shape(to))) images_.emplace(to, rewriter_(from));
  }

  /// What reads an image as (N, C, L).
  bool compute(const Node& node) {
    const bool elementwise = node.op->elementwise && shape(node.outputs[0]).rank() == rank_of_lines;
    const bool on_images = node.op->with_unit_axis && is_image(node.inputs[0]);
    if (!elementwise && !on_images) return false;
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [this](int id) { return is_image(id); })) return false;
    Values inputs;
    for (const int id : node.inputs) inputs.push_back(elementwise || shape(id).rank() == rank_of_lines ? image(id) : rewriter_(id));
    const ops::Attributes attributes = on_images ? node.op->with_unit_axis(node.attributes) : node.attributes;
    const Values results = rewriter_.target().emit(*node.op, inputs, attributes);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const int id = node.outputs[i];
      if (shape(id).rank() == rank_of_lines && results[i].shape() == with_unit_axis(shape(id))) images_.emplace(id, results[i]);
      rewriter_.map(id, reshaped(results[i], shape(id)));
    }
    return true;
  }

  Value image(int id) {
    if (!is_image(id)) return reshaped(rewriter_(id), with_unit_axis(shape(id)));
    return images_.at(id);
  }

  Value reshaped(const Value& value, const Shape& shape) {
    if (value.shape() == shape) return value;
    return reshape(rewriter_.target(), value, shape);
  }

  const Graph& graph_;
  Rewriter rewriter_;
  std::map<int, Value> images_;  ///< by the old value (N, C, L): the new one (N, C, 1, L)
};

}  // namespace

Graph compute_with_unit_axes(const Graph& graph) { return UnitAxes(graph).run(); }

}  // namespace frit::graph
