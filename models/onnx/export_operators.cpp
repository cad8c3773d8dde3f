#include <algorithm>
#include <cmath>

#include "frit/models/onnx/exporter.h"

namespace frit::onnx {
namespace {

using Sizes = std::vector<std::int64_t>;

constexpr std::int64_t boolean = TensorProto::BOOL, byte = TensorProto::UINT8;

std::string plain(const Operation& o, const char* op) { return o.out.add(op, o.inputs()); }

/// The attribute's numbers, one an image axis.
Sizes per_axis(const Operation& o, const char* attribute, std::size_t rank, std::int64_t otherwise) {
  Sizes numbers = o.list(attribute);
  if (numbers.empty()) numbers = {otherwise};
  if (numbers.size() == 1) numbers.resize(rank, numbers[0]);
  return numbers;
}

Sizes both_sides(const Sizes& padding) {
  Sizes pads = padding;
  pads.insert(pads.end(), padding.begin(), padding.end());
  return pads;
}

NamedAttributes convolution_attributes(const Operation& o) {
  const auto rank = static_cast<std::size_t>(o.type().shape.rank() - 2);
  return {{"strides", per_axis(o, "stride", rank, 1)},
          {"pads", both_sides(per_axis(o, "padding", rank, 0))},
          {"dilations", per_axis(o, "dilation", rank, 1)},
          {"group", o.integer("groups")}};
}

std::string convolution(const Operation& o) { return o.out.add("Conv", o.inputs(), convolution_attributes(o)); }

std::string transposed_convolution(const Operation& o) {
  NamedAttributes attributes = convolution_attributes(o);
  attributes.push_back({"output_padding", per_axis(o, "output_padding", static_cast<std::size_t>(o.type().shape.rank() - 2), 0)});
  return o.out.add("ConvTranspose", o.inputs(), attributes);
}

std::string pool(const Operation& o, bool maximum) {
  const auto rank = static_cast<std::size_t>(o.type().shape.rank() - 2);
  const Sizes kernel = per_axis(o, "kernel_size", rank, 1);
  const Sizes stride = o.list("stride").empty() ? kernel : per_axis(o, "stride", rank, 1);
  NamedAttributes attributes = {{"kernel_shape", kernel},
                                {"strides", stride},
                                {"pads", both_sides(per_axis(o, "padding", rank, 0))},
                                {"ceil_mode", std::int64_t{o.flag("ceil_mode")}}};
  if (maximum) attributes.push_back({"dilations", per_axis(o, "dilation", rank, 1)});
  if (!maximum) attributes.push_back({"count_include_pad", std::int64_t{o.flag("count_include_pad")}});
  return o.out.add(maximum ? "MaxPool" : "AveragePool", {o.input(0)}, attributes);
}

std::string transposed(const Operation& o, std::size_t i, bool transpose) {
  if (!transpose) return o.input(i);
  const int rank = o.type(i).shape.rank();
  Sizes axes;
  for (int axis = 0; axis < rank; ++axis) axes.push_back(axis < rank - 2 ? axis : 2 * rank - 3 - axis);
  if (const Tensor* tensor = o.known(i)) return o.out.constant(tensor->permute(Dims(axes)).contiguous());
  return o.out.add("Transpose", {o.input(i)}, {{"perm", axes}});
}

std::string linear(const Operation& o) {
  if (o.type().shape.rank() == 2) return o.out.add("Gemm", o.inputs(), {{"transB", std::int64_t{1}}});
  const std::string product = o.out.add("MatMul", {o.input(0), transposed(o, 1, true)});
  return o.has(2) ? o.out.add("Add", {product, o.input(2)}) : product;
}

std::string product(const Operation& o) {
  return o.out.add("MatMul", {transposed(o, 0, o.flag("transpose_a")), transposed(o, 1, o.flag("transpose_b"))});
}

/// A batch stays what it is: 0 keeps a size.
std::string reshaped(const Operation& o, const std::string& x, const Shape& from, const Shape& to) {
  Sizes sizes(to.begin(), to.end());
  const bool keeps_batch = !from.empty() && !to.empty() && from[0] == to[0] && element_count(to) > 0;
  if (keeps_batch) sizes[0] = 0;
  return o.out.add("Reshape", {x, o.out.integers(sizes)});
}

std::string reshape(const Operation& o) { return reshaped(o, o.input(0), o.type().shape, o.result().shape); }

/// Where the size stays it is 1, with which Expand leaves it.
std::string expand(const Operation& o) {
  Sizes sizes(o.result().shape.begin(), o.result().shape.end());
  const Shape& from = o.type().shape;
  const std::size_t first = sizes.size() - static_cast<std::size_t>(from.rank());
  for (int i = 0; i < from.rank(); ++i) {
    std::int64_t& size = sizes[first + static_cast<std::size_t>(i)];
    if (size == from[i]) size = 1;
  }
  return o.out.add("Expand", {o.input(0), o.out.integers(sizes)});
}

std::string slice(const Operation& o) {
  const auto one = [&](const char* attribute) { return o.out.integers({o.integer(attribute)}); };
  return o.out.add("Slice", {o.input(0), one("begin"), one("end"), one("axis"), one("step")});
}

/// Circular padding, which Pad has from opset 19 on.
std::string wrapped(const Operation& o, const Sizes& before, const Sizes& after) {
  std::string x = o.input(0);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto axis = static_cast<std::int64_t>(i);
    const auto part = [&](std::int64_t begin, std::int64_t end) {
      return o.out.add("Slice", {x, o.out.integers({begin}), o.out.integers({end}), o.out.integers({axis})});
    };
    Names parts = {x};
    if (before[i] > 0) parts.insert(parts.begin(), part(-before[i], INT64_MAX));
    if (after[i] > 0) parts.push_back(part(0, after[i]));
    if (parts.size() > 1) x = o.out.add("Concat", parts, {{"axis", axis}});
  }
  return x;
}

std::string pad(const Operation& o) {
  const Sizes before = o.list("before"), after = o.list("after");
  const std::string mode = o.text("mode");
  if (mode == "circular") return wrapped(o, before, after);
  Sizes pads = before;
  pads.insert(pads.end(), after.begin(), after.end());
  if (mode != "constant") return o.out.add("Pad", {o.input(0), o.out.integers(pads)}, {{"mode", mode == "reflect" ? mode : "edge"}});
  return o.out.add("Pad", {o.input(0), o.out.integers(pads), o.out.number(o.real("value"), o.type().dtype)});
}

/// Axes are an input of ReduceSum and an attribute of the others, of opset 17.
std::string reduction(const Operation& o, const char* op) {
  Sizes axes = o.list("axes");
  if (axes.empty()) {
    for (int axis = 0; axis < o.type().shape.rank(); ++axis) axes.push_back(axis);
  }
  const NamedAttribute keep = {"keepdims", std::int64_t{o.flag("keep_dims")}};
  if (op == std::string("ReduceSum")) return o.out.add(op, {o.input(0), o.out.integers(axes)}, {keep});
  return o.out.add(op, {o.input(0)}, {{"axes", axes}, keep});
}

std::string extremum(const Operation& o, const char* op) {
  return o.out.add(op, {o.input(0)}, {{"axes", Sizes{o.integer("axis")}}, {"keepdims", std::int64_t{o.flag("keep_dims")}}});
}

std::string filled(const Operation& o, const Shape& shape, double value) {
  return o.out.constant(Tensor::full(shape, value, o.type().dtype));
}

std::string instance_norm(const Operation& o) {
  const Shape channels = {o.type().shape[1]};
  const std::string weight = o.has(1) ? o.input(1) : filled(o, channels, 1), bias = o.has(2) ? o.input(2) : filled(o, channels, 0);
  return o.out.add("InstanceNormalization", {o.input(0), weight, bias}, {{"epsilon", o.real("eps")}});
}

std::string layer_norm(const Operation& o) {
  const std::int64_t rank = o.integer("normalized_rank");
  const Shape& shape = o.type().shape;
  const Shape axes(std::span(shape.end() - rank, shape.end()));
  Names inputs = {o.input(0), o.has(1) ? o.input(1) : filled(o, axes, 1)};
  if (o.has(2)) inputs.push_back(o.input(2));
  return o.out.add("LayerNormalization", inputs, {{"axis", -rank}, {"epsilon", o.real("eps")}});
}

/// Opset 17 has none: the groups as channels of an instance norm, as PyTorch exports it.
std::string group_norm(const Operation& o) {
  const std::int64_t groups = o.integer("num_groups");
  const Shape& shape = o.type().shape;
  const std::string grouped = o.out.add("Reshape", {o.input(0), o.out.integers({0, groups, -1})});
  const std::string normal =
      o.out.add("InstanceNormalization", {grouped, filled(o, {groups}, 1), filled(o, {groups}, 0)}, {{"epsilon", o.real("eps")}});
  std::string y = o.out.add("Reshape", {normal, o.out.add("Shape", {o.input(0)})});
  Sizes channels(static_cast<std::size_t>(shape.rank()), 1);
  channels[1] = shape[1];
  for (std::size_t i = 1; o.has(i); ++i) {
    const Tensor* known = o.known(i);
    const std::string numbers =
        known != nullptr ? o.out.constant(known->reshape(Dims(channels))) : o.out.add("Reshape", {o.input(i), o.out.integers(channels)});
    y = o.out.add(i == 1 ? "Mul" : "Add", {y, numbers});
  }
  return y;
}

std::string clamp(const Operation& o) {
  const auto bound = [&](const char* attribute) {
    return o.is(attribute) ? o.out.number(o.real(attribute), o.type().dtype) : std::string();
  };
  return o.out.add("Clip", {o.input(0), bound("min"), bound("max")});
}

/// x (1 + erf(x / sqrt(2))) / 2 as PyTorch spells it, or with tanh.
std::string gelu(const Operation& o) {
  const auto number = [&](double value) { return o.out.number(value, o.type().dtype); };
  const std::string x = o.input(0);
  const auto times_distribution = [&](const char* op, const std::string& inner) {
    return o.out.add("Mul", {o.out.add("Mul", {x, o.out.add("Add", {o.out.add(op, {inner}), number(1)})}), number(0.5)});
  };
  if (o.text("approximate") == "none") return times_distribution("Erf", o.out.add("Div", {x, number(1.4142135623730951)}));
  const std::string cube = o.out.add("Mul", {o.out.add("Mul", {x, x}), o.out.add("Mul", {x, number(0.044715)})});
  return times_distribution("Tanh", o.out.add("Mul", {o.out.add("Add", {x, cube}), number(0.79788456080286536)}));
}

std::string softplus(const Operation& o) {
  const std::string beta = o.out.number(o.real("beta"), o.type().dtype);
  return o.out.add("Div", {o.out.add("Softplus", {o.out.add("Mul", {o.input(0), beta})}), beta});
}

std::string times_of_itself(const Operation& o, const std::string& factor) { return o.out.add("Mul", {o.input(0), factor}); }

/// How a resize says where an image axis' elements lie in the input: at step * i + offset.
struct ResizedAxis {
  double from, to, step, offset;

  float scale() const { return step == 0 ? 1 : static_cast<float>(1 / step); }
  bool size_follows() const { return std::floor(from * static_cast<double>(scale())) == to; }
  /// Whether Resize puts them there, the scale given as `scale`.
  bool lies_as(const std::string& coordinates, double scale, double shift) const {
    const bool corners = coordinates == "align_corners", half_pixel = coordinates == "half_pixel";
    const double their_step = corners ? (to > 1 ? (from - 1) / (to - 1) : 0) : 1 / scale;
    const double their_offset = shift + (half_pixel ? 0.5 * their_step - 0.5 : 0);
    const bool stays = from == to && step == 1 && offset == 0;
    const bool steps = to == 1 || std::abs(step - their_step) * to < 1e-6 * from;
    return stays || (steps && std::abs(offset - their_offset) < 1e-6);
  }
};

std::vector<ResizedAxis> resized_axes(const Operation& o) {
  const Sizes from = o.list("from"), to = o.list("to");
  std::vector<ResizedAxis> axes;
  for (std::size_t i = 0; i < from.size(); ++i) {
    axes.push_back({static_cast<double>(from[i]), static_cast<double>(to[i]), o.real(concat("step_", i)), o.real(concat("offset_", i))});
  }
  return axes;
}

/// By its result's sizes where they say it all, which is exact, else by scales.
std::string resize(const Operation& o) {
  const std::vector<ResizedAxis> axes = resized_axes(o);
  const auto all = [&](const auto& holds) { return std::all_of(axes.begin(), axes.end(), holds); };
  const bool nearest = o.text("mode") == "nearest", up = o.flag("round_up");
  for (const std::string coordinates : {"half_pixel", "align_corners", "asymmetric"}) {
    for (const double shift : {0.0, up ? -0.5 : 0.5}) {
      if (shift != 0 && !nearest) continue;
      const bool by_sizes = all([&](const ResizedAxis& axis) { return axis.lies_as(coordinates, axis.to / axis.from, shift); });
      const bool by_scales =
          all([&](const ResizedAxis& axis) { return axis.size_follows() && axis.lies_as(coordinates, axis.scale(), shift); });
      if (!by_sizes && !by_scales) continue;
      std::string scales, sizes;
      if (by_sizes) {
        const std::string kept = o.out.add("Slice", {o.out.add("Shape", {o.input(0)}), o.out.integers({0}), o.out.integers({2})});
        sizes = o.out.add("Concat", {kept, o.out.integers(o.list("to"))}, {{"axis", std::int64_t{0}}});
      } else {
        std::vector<float> numbers = {1, 1};
        for (const ResizedAxis& axis : axes) numbers.push_back(axis.scale());
        scales = o.out.constant(Tensor::from(numbers, {static_cast<std::int64_t>(numbers.size())}));
      }
      const std::string rounding = shift == 0 ? (up ? "ceil" : "floor") : up ? "round_prefer_floor" : "round_prefer_ceil";
      return o.out.add("Resize", {o.input(0), "", scales, sizes},
                       {{"mode", o.text("mode")},
                        {"coordinate_transformation_mode", coordinates},
                        {"nearest_mode", rounding},
                        {"cubic_coeff_a", o.real("cubic")},
                        {"exclude_outside", std::int64_t{o.flag("exclude_outside")}}});
    }
  }
  fail(ErrorKind::argument, "ONNX has no spelling of a resize whose places are ", o.real("step_0"), " * i + ", o.real("offset_0"));
}

/// Comparisons give bytes, ONNX's booleans.
std::string comparison(const Operation& o, const char* op) { return o.out.add("Cast", {plain(o, op)}, {{"to", byte}}); }

std::string where(const Operation& o) {
  return o.out.add("Where", {o.out.add("Cast", {o.input(0)}, {{"to", boolean}}), o.input(1), o.input(2)});
}

std::string along_axis(const Operation& o, const char* op) { return o.out.add(op, {o.input(0)}, {{"axis", o.integer("axis")}}); }

std::string cumulative_sum(const Operation& o) {
  std::string x = o.input(0);
  if (o.type().dtype != o.result().dtype) x = o.out.add("Cast", {x}, {{"to", element_of(o.result().dtype)}});
  return o.out.add("CumSum", {x, o.out.number(o.real("axis"), DType::i64)},
                   {{"exclusive", std::int64_t{o.flag("exclusive")}}, {"reverse", std::int64_t{o.flag("reverse")}}});
}

std::string sort(const Operation& o) {
  const std::int64_t axis = o.integer("axis");
  const Shape& result = o.result().shape;
  const std::string values = o.out.add("TopK", {o.input(0), o.out.integers({result[normalize_axis(axis, result.rank(), "sort")]})},
                                       {{"axis", axis}, {"largest", std::int64_t{o.flag("descending")}}});
  o.out.add_result(o.output(1));
  return values;
}

/// The shape of `x` with another size along an axis, whatever its batch is.
std::string resized_shape(const Operation& o, const std::string& x, std::int64_t axis, std::int64_t size) {
  const std::string before = o.out.add("Shape", {x}, {{"end", axis}}), after = o.out.add("Shape", {x}, {{"start", axis + 1}});
  return o.out.add("Concat", {before, o.out.integers({size}), after}, {{"axis", std::int64_t{0}}});
}

/// Indices that all lines share are Gather's; for those that some do, each line gets its own.
std::string take_along_axis(const Operation& o) {
  const Shape &x = o.type().shape, &indices = o.type(1).shape;
  const int axis = normalize_axis(o.integer("axis"), x.rank(), "take_along_axis");
  const NamedAttribute along = {"axis", std::int64_t{axis}};
  if (!o.flag("keep_dims")) {
    const std::string here = o.out.integers({axis}), wide = o.out.add("Unsqueeze", {o.input(1), here});
    return o.out.add("Squeeze", {o.out.add("GatherElements", {o.input(0), wide}, {along}), here});
  }
  bool all_share = true, none_share = true;
  for (int i = 0; i < x.rank(); ++i) {
    all_share = all_share && (i == axis || indices[i] == 1);
    none_share = none_share && (i == axis || indices[i] == x[i]);
  }
  if (none_share) return o.out.add("GatherElements", o.inputs(), {along});
  if (all_share) return o.out.add("Gather", {o.input(0), o.out.add("Reshape", {o.input(1), o.out.integers({-1})})}, {along});
  return o.out.add("GatherElements", {o.input(0), o.out.add("Expand", {o.input(1), resized_shape(o, o.input(0), axis, 1)})}, {along});
}

/// Added to zeros, with an index for each value.
std::string put_along_axis(const Operation& o) {
  const int axis = normalize_axis(o.integer("axis"), o.result().shape.rank(), "put_along_axis");
  std::string values = o.input(0), indices = o.input(1);
  if (!o.flag("keep_dims")) {
    const std::string here = o.out.integers({axis});
    values = o.out.add("Unsqueeze", {values, here});
    indices = o.out.add("Unsqueeze", {indices, here});
  } else if (o.type(1).shape != o.type().shape) {
    indices = o.out.add("Expand", {indices, o.out.add("Shape", {values})});
  }
  const std::string shape = resized_shape(o, values, axis, o.integer("size"));
  const std::string zeros = o.out.add("Expand", {o.out.number(0, o.result().dtype), shape});
  return o.out.add("ScatterElements", {zeros, indices, values}, {{"axis", std::int64_t{axis}}, {"reduction", "add"}});
}

void add_elementwise(SpellingTable& table) {
  table["add"] = [](const Operation& o) { return plain(o, "Add"); };
  table["subtract"] = [](const Operation& o) { return plain(o, "Sub"); };
  table["multiply"] = [](const Operation& o) { return plain(o, "Mul"); };
  table["divide"] = [](const Operation& o) { return plain(o, "Div"); };
  table["power"] = [](const Operation& o) { return plain(o, "Pow"); };
  table["minimum"] = [](const Operation& o) { return plain(o, "Min"); };
  table["maximum"] = [](const Operation& o) { return plain(o, "Max"); };
  table["negate"] = [](const Operation& o) { return plain(o, "Neg"); };
  table["abs"] = [](const Operation& o) { return plain(o, "Abs"); };
  table["exp"] = [](const Operation& o) { return plain(o, "Exp"); };
  table["log"] = [](const Operation& o) { return plain(o, "Log"); };
  table["sqrt"] = [](const Operation& o) { return plain(o, "Sqrt"); };
  table["sin"] = [](const Operation& o) { return plain(o, "Sin"); };
  table["cos"] = [](const Operation& o) { return plain(o, "Cos"); };
  table["erf"] = [](const Operation& o) { return plain(o, "Erf"); };
  table["floor"] = [](const Operation& o) { return plain(o, "Floor"); };
  table["ceil"] = [](const Operation& o) { return plain(o, "Ceil"); };
  table["round"] = [](const Operation& o) { return plain(o, "Round"); };
  table["sign"] = [](const Operation& o) { return plain(o, "Sign"); };
  table["rsqrt"] = [](const Operation& o) { return o.out.add("Reciprocal", {plain(o, "Sqrt")}); };
  table["stop_gradient"] = [](const Operation& o) { return plain(o, "Identity"); };
  table["reciprocal"] = [](const Operation& o) { return plain(o, "Reciprocal"); };
  table["square"] = [](const Operation& o) { return times_of_itself(o, o.input(0)); };
  table["relu"] = [](const Operation& o) { return plain(o, "Relu"); };
  table["sigmoid"] = [](const Operation& o) { return plain(o, "Sigmoid"); };
  table["tanh"] = [](const Operation& o) { return plain(o, "Tanh"); };
  table["silu"] = [](const Operation& o) { return times_of_itself(o, plain(o, "Sigmoid")); };
  table["mish"] = [](const Operation& o) { return times_of_itself(o, o.out.add("Tanh", {plain(o, "Softplus")})); };
  table["hard_sigmoid"] = [](const Operation& o) { return o.out.add("HardSigmoid", o.inputs(), {{"alpha", 1.0 / 6}, {"beta", 0.5}}); };
  table["hard_swish"] = [](const Operation& o) { return plain(o, "HardSwish"); };
  table["leaky_relu"] = [](const Operation& o) { return o.out.add("LeakyRelu", o.inputs(), {{"alpha", o.real("negative_slope")}}); };
  table["elu"] = [](const Operation& o) { return o.out.add("Elu", o.inputs(), {{"alpha", o.real("alpha")}}); };
  table["gelu"] = gelu;
  table["softplus"] = softplus;
  table["clamp"] = clamp;
  table["equal"] = [](const Operation& o) { return comparison(o, "Equal"); };
  table["not_equal"] = [](const Operation& o) { return o.out.add("Cast", {o.out.add("Not", {plain(o, "Equal")})}, {{"to", byte}}); };
  table["less"] = [](const Operation& o) { return comparison(o, "Less"); };
  table["less_equal"] = [](const Operation& o) { return comparison(o, "LessOrEqual"); };
  table["greater"] = [](const Operation& o) { return comparison(o, "Greater"); };
  table["greater_equal"] = [](const Operation& o) { return comparison(o, "GreaterOrEqual"); };
  table["where"] = where;
}

void add_layers(SpellingTable& table) {
  table["conv2d"] = table["conv3d"] = convolution;
  table["conv_transpose2d"] = table["conv_transpose3d"] = transposed_convolution;
  table["linear"] = linear;
  table["matmul"] = product;
  table["instance_norm"] = instance_norm;
  table["layer_norm"] = layer_norm;
  table["group_norm"] = group_norm;
  table["max_pool2d"] = table["max_pool3d"] = [](const Operation& o) { return pool(o, /*maximum=*/true); };
  table["avg_pool2d"] = table["avg_pool3d"] = [](const Operation& o) { return pool(o, /*maximum=*/false); };
}

void add_reductions(SpellingTable& table) {
  table["sum"] = [](const Operation& o) { return reduction(o, "ReduceSum"); };
  table["mean"] = [](const Operation& o) { return reduction(o, "ReduceMean"); };
  table["amax"] = [](const Operation& o) { return reduction(o, "ReduceMax"); };
  table["amin"] = [](const Operation& o) { return reduction(o, "ReduceMin"); };
  table["logsumexp"] = [](const Operation& o) { return reduction(o, "ReduceLogSumExp"); };
  table["max"] = [](const Operation& o) { return extremum(o, "ReduceMax"); };
  table["min"] = [](const Operation& o) { return extremum(o, "ReduceMin"); };
  table["argmax"] = [](const Operation& o) {
    return o.out.add("ArgMax", {o.input(0)}, {{"axis", o.integer("axis")}, {"keepdims", std::int64_t{o.flag("keep_dims")}}});
  };
  table["cumulative_sum"] = cumulative_sum;
  table["sort"] = sort;
  table["take_along_axis"] = take_along_axis;
  table["put_along_axis"] = put_along_axis;
  table["softmax"] = [](const Operation& o) { return along_axis(o, "Softmax"); };
  table["log_softmax"] = [](const Operation& o) { return along_axis(o, "LogSoftmax"); };
}

void add_shapes(SpellingTable& table) {
  table["reshape"] = table["flatten"] = reshape;
  table["permute"] = [](const Operation& o) { return o.out.add("Transpose", {o.input(0)}, {{"perm", o.list("axes")}}); };
  table["slice"] = slice;
  table["concatenate"] = [](const Operation& o) { return o.out.add("Concat", o.inputs(), {{"axis", o.integer("axis")}}); };
  table["pad"] = pad;
  table["resize"] = resize;
  table["expand"] = expand;
  table["cast"] = [](const Operation& o) { return o.out.add("Cast", {o.input(0)}, {{"to", element_of(o.result().dtype)}}); };
}

}  // namespace

const SpellingTable& spelling_table() {
  static const SpellingTable table = [] {
    SpellingTable made;
    for (const auto add : {add_elementwise, add_layers, add_reductions, add_shapes}) add(made);
    return made;
  }();
  return table;
}

}  // namespace frit::onnx
