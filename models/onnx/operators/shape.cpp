#include <algorithm>
#include <numeric>

#include "frit/core/random.h"
#include "frit/models/onnx/operators/helpers.h"
#include "frit/ops/random/dropout.h"

namespace frit::onnx {
namespace {

/// 0 keeps a size, unless allowzero says that it is one; -1 is what is left.
Values reshaped(const Call& call) {
  const Value x = call[0];
  const std::optional<Sizes> given = call.integers("shape", 1);
  call.require_support(given.has_value(), "it has no shape");
  Shape shape = to_shape(call, *given);
  const bool keep_zeros = call.integer("allowzero", 0) != 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != 0 || keep_zeros) continue;
    call.require_support(i < x.rank(), "size 0 of axis ", i, " stands for none of ", x.shape());
    shape[i] = x.dim(i);
  }
  return {reshape(x, shape)};
}

Values flattened(const Call& call) {
  const Value x = call[0];
  std::int64_t axis = call.integer("axis", 1);
  if (axis < 0) axis += x.rank();
  call.require_support(axis >= 0 && axis <= x.rank(), "axis = ", axis);
  if (axis == 1 && x.rank() > 1) return {flatten(x)};
  Shape before, after;
  for (int i = 0; i < x.rank(); ++i) (i < axis ? before : after).push_back(x.dim(i));
  return {reshape(x, {element_count(before), element_count(after)})};
}

Values transposed(const Call& call) {
  const Value x = call[0];
  Sizes axes = call.integers("perm");
  if (axes.empty()) {
    axes.resize(static_cast<std::size_t>(x.rank()));
    std::iota(axes.rbegin(), axes.rend(), 0);
  }
  return {permute(x, to_shape(call, axes))};
}

Values squeezed(const Call& call) {
  const Value x = call[0];
  std::optional<Sizes> axes = call.integers("axes", 1);
  if (!axes) {
    axes.emplace();
    for (int i = 0; i < x.rank(); ++i) {
      if (x.dim(i) == 1) axes->push_back(i);
    }
  }
  return {axes->empty() ? x : squeeze(x, to_shape(call, *axes))};
}

Values unsqueezed(const Call& call) {
  const std::optional<Sizes> axes = call.integers("axes", 1);
  call.require_support(axes.has_value(), "it has no axes");
  to_shape(call, *axes);
  return {with_unit_axes(call[0], *axes)};
}

Values expanded(const Call& call) {
  const Value x = call[0];
  return {expand(x, broadcast_shapes(x.shape(), to_shape(call, call.integers(1))))};
}

Values tiled(const Call& call) {
  const Value x = call[0];
  Sizes repeats = call.integers(1);
  if (call.opset() < 6) {
    const Sizes axis = call.integers(2);
    call.require_support(repeats.size() == 1 && axis.size() == 1, "tiles and axis are not one number each");
    Sizes all(static_cast<std::size_t>(x.rank()), 1);
    all[static_cast<std::size_t>(normalize_axis(axis[0], x.rank(), "axis"))] = repeats[0];
    repeats = all;
  }
  call.require_support(static_cast<int>(repeats.size()) == x.rank(), repeats.size(), " repeats for an input of rank ", x.rank());
  return {tile(x, to_shape(call, repeats))};
}

Values concatenated(const Call& call) {
  const Values parts = call.all();
  return {concatenate(parts, call.integer("axis", 1))};
}

Values parts_of(const Call& call) {
  const Value x = call[0];
  const int axis = normalize_axis(call.integer("axis", 0), x.rank(), "axis");
  Sizes sizes = call.integers("split", 1).value_or(Sizes());
  const auto parts = static_cast<std::int64_t>(call.outputs());
  call.require_support(parts > 0, "it has no outputs");
  if (sizes.empty()) {
    const std::int64_t each = (x.dim(axis) + parts - 1) / parts;
    for (std::int64_t i = 0; i < parts; ++i) sizes.push_back(std::clamp<std::int64_t>(x.dim(axis) - i * each, 0, each));
  }
  return split(x, sizes, axis);
}

/// Elements begin, begin + step, ... above end, with a step below zero.
Value sliced_backwards(Value x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step) {
  const std::int64_t size = x.dim(axis);
  const auto placed = [size](std::int64_t bound) { return std::clamp<std::int64_t>(bound < 0 ? bound + size : bound, -1, size - 1); };
  // An end before the first element stays there.
  const std::int64_t first = placed(begin), last = end < -size ? -1 : placed(end), distance = -std::max(step, -size - 1);
  if (first <= last) return slice(x, axis, 0, 0);
  const std::int64_t lowest = first - (first - last - 1) / distance * distance;
  return flip(slice(x, axis, lowest, first + 1, distance), axis);
}

/// Attributes before opset 10, inputs since.
Values sliced(const Call& call) {
  Value x = call[0];
  const Sizes starts = call.integers("starts", 1).value_or(Sizes()), ends = call.integers("ends", 2).value_or(Sizes());
  Sizes axes = call.integers("axes", 3).value_or(Sizes());
  const Sizes steps = call.has_input(4) ? call.integers(4) : Sizes(starts.size(), 1);
  if (axes.empty()) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  call.require_support(ends.size() == starts.size() && axes.size() == starts.size() && steps.size() == starts.size(),
                       "starts, ends, axes and steps are not of one length");
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const int axis = normalize_axis(axes[i], x.rank(), "axes");
    call.require_support(steps[i] != 0, "a step is 0");
    x = steps[i] > 0 ? slice(x, axis, starts[i], ends[i], steps[i]) : sliced_backwards(x, axis, starts[i], ends[i], steps[i]);
  }
  return {x};
}

/// Elements before and after each axis; negative numbers cut.
Values pad_constant(const Call& call, Value x, const Sizes& pads, double value) {
  Dims before = Dims::filled(x.rank(), 0), after = before;
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t first = pads[static_cast<std::size_t>(i)], last = pads[static_cast<std::size_t>(i + x.rank())];
    call.require_support(std::min(first, last) >= -INT32_MAX, "pads has ", std::min(first, last));
    if (first < 0 || last < 0) {
      call.require_support(std::min<std::int64_t>(first, 0) + std::min<std::int64_t>(last, 0) >= -x.dim(i), "pads cut more than there is");
      x = slice(x, i, first < 0 ? -first : 0, x.dim(i) + std::min<std::int64_t>(last, 0));
    }
    before[i] = std::max<std::int64_t>(first, 0);
    after[i] = std::max<std::int64_t>(last, 0);
  }
  return {padded(x, before, after, value)};
}

/// Padding with the image's own elements.
Value pad_with_own(Value x, const Sizes& pads, const std::string& mode) {
  const std::span<const std::int64_t> all(pads);
  const Dims before(all.first(pads.size() / 2)), after(all.last(pads.size() / 2));
  return pad(x, before, after, mode == "reflect" ? PaddingMode::reflect : mode == "edge" ? PaddingMode::replicate : PaddingMode::circular);
}

/// Cut or padded on both sides alike; of an odd number of elements, the last one more is padded, and cut.
Values cropped_or_padded(const Call& call) {
  const Value x = call[0];
  const Sizes sizes = call.integers(1);
  Sizes axes = call.integers("axes");
  for (int axis = 0; axis < x.rank() && !call.has("axes"); ++axis) axes.push_back(axis);
  call.require_support(sizes.size() == axes.size(), sizes.size(), " sizes for ", axes.size(), " axes");
  Sizes pads(2 * static_cast<std::size_t>(x.rank()), 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(normalize_axis(axes[i], x.rank(), "axes"));
    call.require_support(sizes[i] >= 0 && sizes[i] <= INT32_MAX, "a size is ", sizes[i]);
    const std::int64_t all = sizes[i] - x.dim(static_cast<int>(axis));
    pads[axis] = all / 2;
    pads[axis + static_cast<std::size_t>(x.rank())] = all - all / 2;
  }
  return pad_constant(call, x, pads, 0);
}

Values padding(const Call& call) {
  const Value x = call[0];
  const std::string mode = call.text("mode", "constant");
  const char* const attribute = call.has("paddings") ? "paddings" : "pads";
  Sizes pads = call.integers(attribute, 1).value_or(Sizes());
  if (call.has_input(3)) {
    const Sizes axes = call.integers(3);
    call.require_support(pads.size() == 2 * axes.size(), "pads has ", pads.size(), " numbers for ", axes.size(), " axes");
    Sizes all(2 * static_cast<std::size_t>(x.rank()), 0);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const auto axis = static_cast<std::size_t>(normalize_axis(axes[i], x.rank(), "axes"));
      all[axis] = pads[i];
      all[axis + static_cast<std::size_t>(x.rank())] = pads[i + axes.size()];
    }
    pads = all;
  }
  call.require_support(static_cast<int>(pads.size()) == 2 * x.rank(), "pads has ", pads.size(), " numbers, expected ", 2 * x.rank());
  const bool own = mode == "reflect" || mode == "edge" || mode == "wrap";
  call.require_support(own || mode == "constant", "mode = \"", mode, '"');
  if (own) return {pad_with_own(x, pads, mode)};
  return pad_constant(call, x, pads, call.has_input(2) ? call.constant(2).item() : call.real("value", 0));
}

/// Blocks of channels become blocks of pixels: DCR has the blocks before the channels, CRD after.
Values depth_to_space(const Call& call) {
  const Value x = call[0];
  const std::int64_t block = call.integer("blocksize", 0);
  const std::string mode = call.text("mode", "DCR");
  call.require_support(mode == "DCR" || mode == "CRD", "mode = \"", mode, '"');
  call.require_support(x.rank() == 4 && block > 0 && block < (1 << 15) && x.dim(1) % (block * block) == 0, "blocksize = ", block);
  const std::int64_t n = x.dim(0), c = x.dim(1) / (block * block), h = x.dim(2), w = x.dim(3);
  if (mode == "CRD") return {pixel_shuffle(x, block)};
  return {reshape(permute(reshape(x, {n, block, block, c, h, w}), {0, 3, 4, 1, 5, 2}), {n, c, h * block, w * block})};
}

Values space_to_depth(const Call& call) {
  const Value x = call[0];
  const std::int64_t block = call.integer("blocksize", 0);
  const std::string mode = call.text("mode", "DCR");
  call.require_support(mode == "DCR" || mode == "CRD", "mode = \"", mode, '"');
  call.require_support(x.rank() == 4 && block > 0 && x.dim(2) % block == 0 && x.dim(3) % block == 0, "blocksize = ", block);
  const std::int64_t n = x.dim(0), c = x.dim(1), h = x.dim(2) / block, w = x.dim(3) / block;
  const Dims order = mode == "DCR" ? Dims{0, 3, 5, 1, 2, 4} : Dims{0, 1, 3, 5, 2, 4};
  return {reshape(permute(reshape(x, {n, c, h, block, w, block}), order), {n, c * block * block, h, w})};
}

/// In training mode as any network's: it drops while frit trains. Else the input, and where it is asked for a mask that keeps everything.
Values dropped(const Call& call) {
  const bool training = call.has_input(2) && call.constant(2).item() != 0;
  const double ratio = call.has_input(1) ? call.constant(1).item() : 0.5;
  if (training && ratio != 0) {
    const Value counter = call.counter();
    return {dropout(call[0], counter, ratio, stream_of(call.graph().producer(counter.id()).name))};
  }
  Values results = {call[0]};
  if (call.wants_output(1)) results.push_back(expand(call.graph().constant(Tensor::full({}, 1, DType::u8)), call[0].shape()));
  return results;
}

}  // namespace

void add_shapes(OperatorTable& table) {
  table["Reshape"] = reshaped;
  table["Flatten"] = flattened;
  table["Transpose"] = transposed;
  table["Squeeze"] = squeezed;
  table["Unsqueeze"] = unsqueezed;
  table["Expand"] = expanded;
  table["Tile"] = tiled;
  table["Concat"] = concatenated;
  table["Split"] = parts_of;
  table["Slice"] = sliced;
  table["Pad"] = padding;
  table["CenterCropPad"] = cropped_or_padded;
  table["DepthToSpace"] = depth_to_space;
  table["SpaceToDepth"] = space_to_depth;
  table["Dropout"] = dropped;
  table["Identity"] = [](const Call& call) -> Values { return {call[0]}; };
}

}  // namespace frit::onnx
