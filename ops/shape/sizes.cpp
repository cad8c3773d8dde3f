#include "frit/ops/shape/sizes.h"

#include <algorithm>
#include <numeric>

namespace frit {

Size size_of(Value x, std::int64_t axis) { return {x, normalize_axis(axis, x.rank(), "size_of")}; }

namespace ops {
namespace {

std::int64_t resolved(const InferContext& call, const SizesAttributes& sizes, int i) {
  std::int64_t size = sizes.numbers[i];
  if (sizes.inputs[i] >= 0) {
    const auto input = static_cast<std::size_t>(sizes.inputs[i]);
    call.require(input < call.inputs.size(), "size ", i, " is of input ", input, " of ", call.inputs.size());
    size = call.shape(input)[normalize_axis(sizes.axes[i], call.shape(input).rank(), "size_of")];
  }
  const std::int64_t times = sizes.times[i], over = sizes.over[i];
  std::int64_t product = 0;
  const bool whole = over > 0 && !__builtin_mul_overflow(size, times, &product) && product % over == 0;
  call.require(whole, "size ", i, " is ", size, " * ", times, " / ", over, ", which is no whole number");
  return product / over;
}

Shape resolve_sizes(const InferContext& call) {
  const auto& sizes = call.as<SizesAttributes>();
  for (const Dims* list : {&sizes.inputs, &sizes.axes, &sizes.times, &sizes.over}) {
    call.require(list->rank() == sizes.numbers.rank(), "the lists of attributes have ", sizes.numbers.rank(), " and ", list->rank(),
                 " entries");
  }
  Shape shape;
  for (int i = 0; i < sizes.numbers.rank(); ++i) shape.push_back(resolved(call, sizes, i));
  return shape;
}

}  // namespace

Operator to_sizes(Operator plain, std::string summary, ShapeRule infer, EmitShape emit_plain, std::vector<Sample> (*samples)()) {
  plain.name += "_to_sizes";
  plain.summary = std::move(summary);
  plain.inputs = {"input", {"of", true}};
  plain.variadic = true;
  plain.infer = [infer](const InferContext& call) { return infer(call, resolve_sizes(call)); };
  plain.at_known_sizes = [name = plain.name, emit_plain](Emitter&, std::span<const Value> inputs, const Attributes& attributes) {
    std::vector<TensorType> types;
    for (const Value& input : inputs) types.push_back(input.type());
    return Values{emit_plain(inputs[0], registry().find(name).infer_types(types, attributes)[0].shape)};
  };
  plain.reshaping = {};
  plain.samples = samples;
  return plain;
}

std::vector<Size> sizes_of(Value x) {
  std::vector<Size> sizes;
  for (int axis = 0; axis < x.rank(); ++axis) sizes.push_back(size_of(x, axis));
  return sizes;
}

std::vector<Size> with_batch_of(Value x, const Shape& shape) {
  std::vector<Size> sizes(shape.begin(), shape.end());
  const std::int64_t batch = x.rank() > 0 ? x.dim(0) : 0;
  if (batch > 0 && shape[0] > 0) {
    const std::int64_t common = std::gcd(batch, shape[0]);
    sizes[0] = size_of(x, 0) * (shape[0] / common) / (batch / common);
  }
  return sizes;
}

Value emit_to_sizes(std::string_view op, Value x, std::span<const Size> sizes, EmitShape emit_plain) {
  SizesAttributes attributes;
  Values inputs = {x};
  for (const Size& size : sizes) {
    auto input = std::find(inputs.begin(), inputs.end(), size.of);
    if (size.of && input == inputs.end()) input = inputs.insert(input, size.of);
    attributes.numbers.push_back(size.number);
    attributes.inputs.push_back(size.of ? input - inputs.begin() : -1);
    attributes.axes.push_back(size.axis);
    attributes.times.push_back(size.times);
    attributes.over.push_back(size.over);
  }
  const bool follow = std::any_of(sizes.begin(), sizes.end(), [](const Size& size) { return static_cast<bool>(size.of); });
  return follow ? emit(concat(op, "_to_sizes"), inputs, std::move(attributes)).front() : emit_plain(x, attributes.numbers);
}

}  // namespace ops
}  // namespace frit
