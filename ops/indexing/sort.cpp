#include "frit/ops/indexing/sort.h"

#include <algorithm>
#include <utility>

#include "frit/ops/cpu/work_split.h"
#include "frit/ops/indexing/indexing.h"
#include "frit/ops/indexing/take_along_axis.h"
#include "frit/ops/operator/operator.h"

namespace frit {

Sorted sort(Value x, std::int64_t axis, bool descending) {
  const Values results = ops::emit("sort", {x}, ops::SortAttributes{normalize_axis(axis, x.rank(), "sort"), descending, -1});
  return {results[0], results[1]};
}

Value argsort(Value x, std::int64_t axis, bool descending) { return sort(x, axis, descending).indices; }

Sorted top_k(Value x, std::int64_t k, std::int64_t axis, bool largest) {
  const int along = normalize_axis(axis, x.rank(), "top_k");
  require(k >= 0 && k <= x.dim(along), "top_k: k must be in [0, ", x.dim(along), "], got ", k, " (input ", x.shape(), ")");
  const Values results = ops::emit("sort", {x}, ops::SortAttributes{along, largest, k});
  return {results[0], results[1]};
}

namespace ops {
namespace {

std::vector<TensorType> infer(const InferContext& call) {
  const auto& attributes = call.as<SortAttributes>();
  TensorType values = call.inputs[0];
  const int axis = normalize_axis(attributes.axis, values.shape.rank(), "sort");
  const std::int64_t size = values.shape[axis];
  call.require(attributes.count >= -1 && attributes.count <= size, "count must be in [0, ", size, "], or -1 for all, got ",
               attributes.count, " (input ", values.shape, ")");
  values.shape[axis] = attributes.count < 0 ? size : attributes.count;
  return {values, {DType::i64, values.shape}};
}

Values gradient(const GradientContext& call) {
  const std::int64_t axis = call.as<SortAttributes>().axis;
  return {put_along_axis(call.gradients[0], call.outputs[1], axis, call.inputs[0].dim(axis), /*keep_dims=*/true, /*distinct=*/true)};
}

/// In the order of keys, and of equal ones in that of the places.
using Element = std::pair<std::uint64_t, std::int64_t>;

WorkSplit work(const Shape& shape, const SortAttributes& attributes) {
  const SortedLines lines(shape, attributes);
  constexpr std::int64_t of_element = 64, most = std::int64_t{1} << 40;
  return {lines.lines(), std::min(lines.size, most) * of_element, static_cast<std::size_t>(lines.size) * sizeof(Element)};
}

/// Either result may be undefined.
void kernel(const KernelContext& call) {
  const Tensor& input = call.inputs[0];
  const auto& attributes = call.as<SortAttributes>();
  const SortedLines lines(input.shape(), attributes);
  std::int64_t* const indices = data_or_null<std::int64_t>(call.outputs[1]);
  dispatch_all(input.dtype(), [&]<class T>() {
    T* const values = data_or_null<T>(call.outputs[0]);
    work(input.shape(), attributes).run(call.scratch, [&](std::int64_t line, std::byte* workspace) {
      const std::int64_t before = line / lines.inner, column = line % lines.inner;
      const T* const x = input.data<T>() + before * lines.size * lines.inner + column;
      auto* const elements = reinterpret_cast<Element*>(workspace);
      for (std::int64_t i = 0; i < lines.size; ++i) elements[i] = {sort_key(x[i * lines.inner], attributes.descending), i};
      Element* const end = elements + lines.count;
      if (lines.count < lines.size) std::nth_element(elements, end, elements + lines.size);
      std::sort(elements, end);
      const std::int64_t first = before * lines.count * lines.inner + column;
      for (std::int64_t i = 0; i < lines.count; ++i) {
        const std::int64_t place = elements[i].second;
        if (values != nullptr) values[first + i * lines.inner] = x[place * lines.inner];
        if (indices != nullptr) indices[first + i * lines.inner] = place;
      }
    });
  });
}

std::vector<Sample> samples() {
  const auto input = [](Shape shape) { return SampleInput(std::move(shape), Fill::distinct); };
  return {
      {.inputs = {input({7})}},
      {.inputs = {input({3, 5})}, .attributes = SortAttributes{1, true, -1}},
      {.inputs = {input({2, 5, 3})}, .attributes = SortAttributes{-2, false, 2}},
      {.inputs = {input({2, 9, 3, 4})}, .attributes = SortAttributes{1, true, 4}},
      {.inputs = {input({1, 1})}, .attributes = SortAttributes{0, true, 1}},
      {.inputs = {input({3, 4})}, .attributes = SortAttributes{0, false, 0}},
      {.inputs = {input({0, 3})}, .attributes = SortAttributes{1, false, -1}},
      {.inputs = {input({3, 0})}, .attributes = SortAttributes{1, true, -1}},
      {.inputs = {SampleInput::integers({4, 300}, 5)}, .attributes = SortAttributes{-1, true, -1}, .smooth = false},
      {.inputs = {SampleInput::integers({5000, 3}, 40, DType::u8)}, .attributes = SortAttributes{0, false, -1}, .smooth = false},
      {.inputs = {SampleInput::integers({300, 3}, 40, DType::i32)}, .attributes = SortAttributes{0, true, 7}, .smooth = false},
      {.inputs = {Shape{2, 5000, 2}}, .attributes = SortAttributes{1, true, 4999}, .smooth = false, .in_halves = false},
      {.inputs = {Shape{1, 4097}}, .attributes = SortAttributes{1, false, 5}, .smooth = false, .in_halves = false},
  };
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(sort) {
  using namespace frit::ops;
  registry.add<SortAttributes>({
      .name = "sort",
      .summary = "the first elements of each line along an axis, once sorted, and their indices; equal ones in order, NaN the greatest",
      .inputs = {"input"},
      .outputs = {"values", "indices"},
      .infer = infer,
      .gradient = gradient,
      .cpu = {.run = kernel,
              .halves = true,
              .scratch = [](const InferContext& call) { return work(call.shape(0), call.as<SortAttributes>()).scratch(); }},
      .dtypes = {std::begin(frit::all_dtypes), std::end(frit::all_dtypes)},
      .samples = samples,
  });
}
