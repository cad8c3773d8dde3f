#include <algorithm>

#include "frit/models/onnx/operators/helpers.h"
#include "frit/ops/reduction/take_along_axis.h"

namespace frit::onnx {
namespace {

/// Steps that an operator may be spelled in, one for each index along an axis.
constexpr std::int64_t most_steps = 1024;

/// Indices as i64 counted from the axis's first element.
Value from_first(Value indices, std::int64_t size) {
  const Value wide = cast(indices, DType::i64);
  return where(less(wide, ops::scalar(wide, 0)), wide + static_cast<double>(size), wide);
}

/// 1 where the index is: an axis of `size` elements more.
Value one_hot(const Call& call, Value indices, std::int64_t size, DType dtype) {
  const Value places = positions(call, size, indices.rank(), indices.rank() + 1, indices.dtype());
  return cast(equal(unsqueeze(indices, -1), places), dtype);
}

/// Slices where the indices are known. Where a run gives them: a product with their one-hot rows, as of an embedding's table.
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
  const std::int64_t size = x.dim(axis);
  const Value table = as_floating(axis == x.rank() - 1 ? x : transpose(x, axis, -1));
  const Value chosen = one_hot(call, from_first(flatten(unsqueeze(call[1], 0), 0, -1), size), size, table.dtype());
  // (..., size) times (size, indices), and the axis back to its place.
  const Value rows = x.rank() == 1 ? reshape(table, {1, size}) : table;
  Value y = matmul(rows, transpose(chosen, 0, 1));
  if (x.rank() > 1 && axis != x.rank() - 1) y = transpose(y, axis, -1);
  return {cast(reshape(y, shape), x.dtype())};
}

/// One slice of indices along the axis after another.
Values gather_elements(const Call& call) {
  Value x = call[0];
  const int axis = normalize_axis(call.integer("axis", 0), x.rank(), "axis");
  const Value indices = from_first(call[1], x.dim(axis));
  call.require_support(indices.rank() == x.rank() && indices.dim(axis) <= most_steps, "indices of shape ", indices.shape());
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis && indices.dim(i) < x.dim(i)) x = slice(x, i, 0, indices.dim(i));
  }
  Values parts;
  for (std::int64_t i = 0; i < indices.dim(axis); ++i) {
    parts.push_back(ops::take_along_axis(x, slice(indices, axis, i, i + 1), axis, /*keep_dims=*/true));
  }
  if (parts.empty()) return {slice(x, axis, 0, 0)};
  return {concatenate(parts, axis)};
}

/// Likewise each slice of updates goes where its indices say; the later one stays, or is added or multiplied.
Values scatter_elements(const Call& call) {
  Value x = call[0];
  const int axis = normalize_axis(call.integer("axis", 0), x.rank(), "axis");
  Value indices = from_first(call[1], x.dim(axis)), updates = call[2];
  call.require_support(indices.rank() == x.rank() && indices.dim(axis) <= most_steps, "indices of shape ", indices.shape());
  const std::string reduction = call.text("reduction", "none");
  call.require_support(reduction == "none" || reduction == "add" || reduction == "mul", "reduction = \"", reduction, '"');
  // Where there are no indices for an element, one that is none.
  Dims before = Dims::filled(x.rank(), 0), after = before;
  for (int i = 0; i < x.rank(); ++i) after[i] = i == axis ? 0 : x.dim(i) - indices.dim(i);
  indices = padded(indices, before, after, -1);
  updates = padded(updates, before, after, 0);
  const Value places = positions(call, x.dim(axis), axis, x.rank(), DType::i64);
  for (std::int64_t i = 0; i < indices.dim(axis); ++i) {
    const Value here = equal(places, slice(indices, axis, i, i + 1)), update = slice(updates, axis, i, i + 1);
    x = where(here, reduction == "add" ? x + update : reduction == "mul" ? x * update : update, x);
  }
  return {x};
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
  const Value table = joined_axes(call, x, depth), wide = as_floating(table);
  const Value places = reshape(joined_indices(indices, x.shape(), 0), {-1});
  Shape shape = indices.shape();
  shape.erase(shape.rank() - 1);
  for (int i = static_cast<int>(depth); i < x.rank(); ++i) shape.push_back(x.dim(i));
  return {cast(reshape(matmul(one_hot(call, places, table.dim(0), wide.dtype()), wide), shape), x.dtype())};
}

Values scatter_nd(const Call& call) {
  const Value x = call[0], indices = call[1];
  const std::string reduction = call.text("reduction", "none");
  call.require_support(reduction == "none" || reduction == "add" || reduction == "mul", "reduction = \"", reduction, '"');
  call.require_support(indices.rank() >= 1, "indices of rank 0");
  Value table = joined_axes(call, x, indices.dim(-1));
  const Value places = reshape(joined_indices(indices, x.shape(), 0), {-1});
  const std::int64_t count = places.dim(0);
  call.require_support(count <= most_steps, count, " updates, more than ", most_steps);
  const Value updates = reshape(call[2], {count, table.dim(1)});
  const Value rows = positions(call, table.dim(0), 0, 2, DType::i64);
  for (std::int64_t i = 0; i < count; ++i) {
    const Value here = equal(rows, slice(places, 0, i, i + 1)), update = slice(updates, 0, i, i + 1);
    table = where(here, reduction == "add" ? table + update : reduction == "mul" ? table * update : update, table);
  }
  return {reshape(table, x.shape())};
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
  table["OneHot"] = one_hot_of;
  table["Compress"] = compress;
}

}  // namespace frit::onnx
