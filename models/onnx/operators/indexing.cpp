#include "frit/ops/indexing/indexing.h"

#include <map>

#include "frit/models/onnx/operators/helpers.h"
#include "frit/ops/indexing/grid_sample.h"
#include "frit/ops/indexing/take_along_axis.h"

namespace frit::onnx {
namespace {

/// Indices as i64 counted from the axis's first element.
Value from_first(Value indices, std::int64_t size) {
  const Value wide = cast(indices, DType::i64);
  return where(less(wide, ops::scalar(wide, 0)), wide + static_cast<double>(size), wide);
}

/// Slices where the indices are known.
Values gather(const Call& call) {
  const Value x = call[0];
  const int axis = normalize_axis(call.integer("axis", 0), x.rank(), "axis");
  Shape shape = x.shape(), indices_shape = call[1].shape();
  shape.erase(axis);
  for (int i = indices_shape.rank(); i-- > 0;) {
    call.require_support(shape.rank() < Dims::max_rank, "the result's rank is more than ", Dims::max_rank);
    shape.insert(axis, indices_shape[i]);
  }
  if (call.is_constant(1)) return {reshape(take(call, x, axis, call.integers(1)), shape)};
  return {index_select(x, axis, from_first(call[1], x.dim(axis)))};
}

Values gather_elements(const Call& call) {
  Value x = call[0];
  const int axis = normalize_axis(call.integer("axis", 0), x.rank(), "axis");
  const Value indices = from_first(call[1], x.dim(axis));
  call.require_support(indices.rank() == x.rank(), "indices of shape ", indices.shape());
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis && indices.dim(i) < x.dim(i)) x = slice(x, i, 0, indices.dim(i));
  }
  return {frit::gather(x, axis, indices)};
}

/// x with the updates where `indices`, of their shape or with 1s in it, say along the axis: in place of what is there, added or multiplied.
Value scattered(const Call& call, Value x, Value indices, Value updates, int axis) {
  const std::string reduction = call.text("reduction", "none");
  call.require_support(reduction == "none" || reduction == "add" || reduction == "mul", "reduction = \"", reduction, '"');
  const Dims before = Dims::filled(x.rank(), 0);
  Dims after = before;  // where there are no indices
  for (int i = 0; i < x.rank(); ++i) after[i] = i == axis ? 0 : x.dim(i) - updates.dim(i);
  if (reduction != "mul") {
    const auto put = [&](Value values) {
      return padded(ops::put_along_axis(values, indices, axis, x.dim(axis), /*keep_dims=*/true), before, after, 0);
    };
    if (reduction == "add") return x + put(updates);
    return where(not_equal(put(cast(equal(indices, indices), DType::i64)), 0.0), put(updates), x);
  }
  constexpr std::int64_t most_factors = 1024;
  const std::int64_t count = indices.dim(axis);
  call.require_support(count <= most_factors, count, " factors, more than ", most_factors);
  const Value places = positions(call, x.dim(axis), axis, x.rank(), DType::i64);
  indices = padded(indices, before, after, -1);
  updates = padded(updates, before, after, 1);
  for (std::int64_t i = 0; i < count; ++i) {
    x = where(equal(places, slice(indices, axis, i, i + 1)), x * slice(updates, axis, i, i + 1), x);
  }
  return x;
}

Values scatter_elements(const Call& call) {
  const Value x = call[0];
  const int axis = normalize_axis(call.integer("axis", 0), x.rank(), "axis");
  const Value indices = from_first(call[1], x.dim(axis));
  call.require_support(indices.shape() == call[2].shape() && indices.rank() == x.rank(), "indices of shape ", indices.shape());
  return {scattered(call, x, indices, call[2], axis)};
}

/// Indices into the first axes, after `batch` of them, as indices into these axes as one.
Value joined_indices(Value indices, const Shape& shape, int batch) {
  const std::int64_t depth = indices.dim(-1);
  Value joined;
  for (std::int64_t i = 0; i < depth; ++i) {
    const std::int64_t size = shape[batch + static_cast<int>(i)];
    const Value index = from_first(squeeze(slice(indices, -1, i, i + 1), -1), size);
    joined = joined ? joined * static_cast<double>(size) + index : index;
  }
  return joined;
}

/// Shapes (joined axes, the rest) of what an operator with indices of several axes works on.
Value joined_axes(const Call& call, Value x, std::int64_t depth) {
  call.require_support(depth >= 1 && depth <= x.rank(), "indices of ", depth, " axes into an input of rank ", x.rank());
  Shape first(std::span(x.shape().begin(), static_cast<std::size_t>(depth)));
  Shape rest(std::span(x.shape().begin() + depth, x.shape().end()));
  return reshape(x, {element_count(first), element_count(rest)});
}

Values gather_nd(const Call& call) {
  const Value x = call[0], indices = call[1];
  call.require_support(call.integer("batch_dims", 0) == 0, "batch_dims");
  call.require_support(indices.rank() >= 1, "indices of rank 0");
  const std::int64_t depth = indices.dim(-1);
  const Value table = joined_axes(call, x, depth), places = reshape(joined_indices(indices, x.shape(), 0), {-1});
  Shape shape = indices.shape();
  shape.erase(shape.rank() - 1);
  for (int i = static_cast<int>(depth); i < x.rank(); ++i) shape.push_back(x.dim(i));
  return {reshape(index_select(table, 0, places), shape)};
}

Values scatter_nd(const Call& call) {
  const Value x = call[0], indices = call[1];
  call.require_support(indices.rank() >= 1, "indices of rank 0");
  const Value table = joined_axes(call, x, indices.dim(-1));
  const Value places = reshape(joined_indices(indices, x.shape(), 0), {-1, 1});
  return {reshape(scattered(call, table, places, reshape(call[2], {places.dim(0), table.dim(1)}), 0), x.shape())};
}

/// What a text says.
template <class Option>
Option option_of(const Call& call, const char* attribute, const char* otherwise, const std::map<std::string, Option>& known) {
  const std::string text = call.text(attribute, otherwise);
  call.require_support(known.contains(text), attribute, " = \"", text, '"');
  return known.at(text);
}

/// Until opset 20 modes had the names that they have for images.
Values grid_sample_of(const Call& call) {
  using Padding = GridSampleOptions::Padding;
  GridSampleOptions options{.align_corners = call.integer("align_corners", 0) != 0};
  options.mode = option_of<ResizeMode>(call, "mode", "linear",
                                       {{"nearest", ResizeMode::nearest},
                                        {"linear", ResizeMode::linear},
                                        {"bilinear", ResizeMode::linear},
                                        {"cubic", ResizeMode::cubic},
                                        {"bicubic", ResizeMode::cubic}});
  options.padding = option_of<Padding>(call, "padding_mode", "zeros",
                                       {{"zeros", Padding::zeros}, {"border", Padding::border}, {"reflection", Padding::reflection}});
  return {grid_sample(call[0], call[1], options)};
}

/// k has been an input since opset 10.
Values top_k_of(const Call& call) {
  const Sizes k = call.opset() < 10 ? Sizes{call.integer("k", 0)} : call.integers(1);
  call.require_support(k.size() == 1, "k is not one number");
  const Sorted results = top_k(call[0], k[0], call.integer("axis", -1), call.integer("largest", 1) != 0);
  return {results.values, results.indices};
}

/// values[1] where the index is, values[0] elsewhere, along a new axis.
Values one_hot_of(const Call& call) {
  const Tensor depth = call.constant(1);
  call.require_support(depth.elements() == 1 && depth.item() >= 0 && depth.item() <= 1 << 20, "its depth");
  const auto size = static_cast<std::int64_t>(depth.item());
  const Value indices = from_first(call[0], size), values = call[2];
  const int rank = indices.rank() + 1, axis = normalize_axis(call.integer("axis", -1), rank, "axis");
  const Value here = equal(unsqueeze(indices, axis), positions(call, size, axis, rank, DType::i64));
  const auto value = [&](std::int64_t i) { return reshape(slice(values, 0, i, i + 1), {}); };
  return {where(here, value(1), value(0))};
}

/// Of places known at import, the elements where the condition holds.
Values compress(const Call& call) {
  const Sizes condition = call.integers(1);
  Sizes places;
  for (std::size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] != 0) places.push_back(static_cast<std::int64_t>(i));
  }
  const Value x = call[0];
  if (call.has("axis")) return {take(call, x, call.integer("axis", 0), places)};
  return {take(call, reshape(x, {-1}), 0, places)};
}

}  // namespace

void add_indexing(OperatorTable& table) {
  table["Gather"] = gather;
  table["GatherElements"] = gather_elements;
  table["GatherND"] = gather_nd;
  table["Scatter"] = scatter_elements;
  table["ScatterElements"] = scatter_elements;
  table["ScatterND"] = scatter_nd;
  table["GridSample"] = grid_sample_of;
  table["OneHot"] = one_hot_of;
  table["TopK"] = top_k_of;
  table["Compress"] = compress;
}

}  // namespace frit::onnx
