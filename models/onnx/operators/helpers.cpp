#include "frit/models/onnx/operators/helpers.h"

#include <algorithm>
#include <numeric>

#include "frit/ops/indexing/indexing.h"

namespace frit::onnx {
namespace {

/// Slices that `take` consists of at most.
constexpr std::size_t most_runs = 8;

struct Run {
  std::int64_t first, step, count;
};

/// The places as few runs, each of which one slice takes.
std::vector<Run> runs_of(const Sizes& places) {
  std::vector<Run> runs;
  for (const std::int64_t place : places) {
    if (!runs.empty()) {
      Run& run = runs.back();
      const std::int64_t step = place - (run.first + (run.count - 1) * run.step);
      if (run.count == 1 && step > 0) run.step = step;
      if (step > 0 && step == run.step) {
        ++run.count;
        continue;
      }
    }
    runs.push_back({place, 1, 1});
  }
  return runs;
}

}  // namespace

Shape to_shape(const Call& call, const Sizes& sizes) {
  call.require_support(sizes.size() <= Dims::max_rank, "rank ", sizes.size(), " is more than ", Dims::max_rank);
  return Shape(sizes);
}

Value with_unit_axes(Value x, Sizes axes) {
  const int rank = x.rank() + static_cast<int>(axes.size());
  for (std::int64_t& axis : axes) axis = normalize_axis(axis, rank, "axes");
  std::sort(axes.begin(), axes.end());
  Shape shape = x.shape();
  for (const std::int64_t axis : axes) shape.insert(static_cast<int>(axis), 1);
  return reshape(x, shape);
}

Value aligned(Value x, int rank, std::int64_t axis) {
  Shape shape = x.shape();
  const int first = normalize_axis(axis, rank, "axis");
  while (first + shape.rank() < rank) shape.push_back(1);
  return reshape(x, shape);
}

Dims axes_of(const Sizes& axes, int rank) {
  Sizes ordered;
  for (const std::int64_t axis : axes) ordered.push_back(normalize_axis(axis, rank, "axes"));
  if (axes.empty()) {
    ordered.resize(static_cast<std::size_t>(rank));
    std::iota(ordered.begin(), ordered.end(), 0);
  }
  std::sort(ordered.begin(), ordered.end());
  require(std::adjacent_find(ordered.begin(), ordered.end()) == ordered.end(), "an axis is named twice");
  return Dims(ordered);
}

Value positions(const Call& call, std::int64_t count, int axis, int rank, DType dtype) {
  call.require_support(count <= longest_list, "an axis of ", count, " elements is too long");
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  Shape shape = Dims::filled(rank, 1);
  shape[axis] = count;
  return call.graph().constant(Tensor::from(numbers, shape).to(dtype));
}

Value as_floating(Value x) { return is_floating(x.dtype()) ? x : cast(x, DType::f64); }

Value truncated(Value x) { return where(less(x, 0.0), ceil(x), floor(x)); }

Value take(const Call& call, Value x, std::int64_t axis, const Sizes& places) {
  const int along = normalize_axis(axis, x.rank(), "axis");
  const std::int64_t size = x.dim(along);
  Sizes inside = places;
  for (std::int64_t& place : inside) {
    call.require_support(place >= -size && place < size, "index ", place, " is not within an axis of ", size, " elements");
    if (place < 0) place += size;
  }
  const std::vector<Run> runs = runs_of(inside);
  if (runs.size() > most_runs) return index_select(x, along, call.emit(inside));
  Values parts;
  for (const Run& run : runs) parts.push_back(slice(x, along, run.first, run.first + (run.count - 1) * run.step + 1, run.step));
  if (parts.empty()) return slice(x, along, 0, 0);
  return parts.size() == 1 ? parts[0] : concatenate(parts, along);
}

Value padded(Value x, const Dims& before, const Dims& after, double value) {
  const auto nothing = [](const Dims& sizes) { return std::all_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n == 0; }); };
  return nothing(before) && nothing(after) ? x : pad(x, before, after, value);
}

const OperatorTable& operator_table() {
  static const OperatorTable table = [] {
    OperatorTable made;
    for (const auto add :
         {add_activations, add_casts, add_control, add_convolutions, add_einsum, add_elementwise, add_hyperbolic, add_indexing, add_linear,
          add_losses, add_norms, add_pools, add_rearrangements, add_reductions, add_resizing, add_shapes, add_sources}) {
      add(made);
    }
    return made;
  }();
  return table;
}

}  // namespace frit::onnx
