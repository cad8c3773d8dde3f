#include "graph/random_graph.h"

#include <cmath>
#include <numeric>

#include "frit/core/random.h"
#include "frit/ops/convolution/convolution.h"
#include "frit/ops/elementwise/activation.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/compare.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/linear/linear.h"
#include "frit/ops/norm/norm.h"
#include "frit/ops/norm/norm_attributes.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/random/dropout.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit::random_graphs {
namespace {

/// Numbers that follow from a seed alone.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : seed_(seed) {}

  std::uint32_t bits() { return philox(seed_, 7, count_++)[0]; }
  std::int64_t from(std::int64_t least, std::int64_t most) {
    require(least <= most, "there is nothing to choose from");
    return least + bits() % (most - least + 1);
  }
  bool one_in(int count) { return from(1, count) == 1; }
  /// To two digits, so that graphs read well.
  double number(double least, double most) { return std::round(100 * (least + (most - least) * bits() / 4294967295.0)) / 100; }
  template <class T>
  T of(std::initializer_list<T> choices) {
    return choices.begin()[from(0, std::ssize(choices) - 1)];
  }

 private:
  std::uint64_t seed_, count_ = 0;
};

/// Larger results are left out, so that thousands of graphs take minutes.
constexpr std::int64_t most_elements = 20'000;

/// A graph on its way, as a move sees it.
struct Site {
  const Recipe& recipe;
  Spelling spelling;
  Graph graph = {};
  Value x = {};         ///< the value at hand
  Value scale = {};     ///< that it was multiplied by last
  Values earlier = {};  ///< all that x has been
  Draw draw = Draw(0);  ///< the step's
  int variables = 0;

  bool by_hand() const { return spelling != Spelling::as_written && !recipe.trained; }
  std::int64_t channels() const { return x.dim(1); }

  Value variable(DType dtype, const Shape& shape, bool trainable, const Initializer& initialize) {
    return graph.variable(concat("v", variables++), {dtype, shape}, initialize, trainable);
  }
  Value parameter(const Shape& shape, double mean = 0, double deviation = 0.7, bool trainable = true) {
    const auto normal = [=](const Tensor& tensor, std::uint64_t seed) { fill_normal(tensor, mean, deviation, seed, 0); };
    return variable(x.dtype(), shape, trainable, normal);
  }
  Shape along_channels() const {
    Shape shape = Dims::filled(x.rank() - 1, 1);
    shape[0] = channels();
    return shape;
  }
  Value another() { return cast(earlier[static_cast<std::size_t>(draw.from(0, std::ssize(earlier) - 1))], x.dtype()); }
  std::int64_t axis() { return draw.one_in(2) ? 1 : draw.from(0, x.rank() - 1); }
  Dims image(std::int64_t least, std::int64_t most) {
    Dims result;
    for (int axis = 2; axis < x.rank(); ++axis) result.push_back(draw.from(least, most));
    return result;
  }
};

Value emit(const char* name, std::initializer_list<Value> inputs) {
  return ops::emit_one(name, inputs, ops::registry().find(name).default_attributes);
}

/// Sometimes spelled out, for fusion to find, where it can be.
Value function_of(Site& s, const char* name) {
  const ops::Operator& op = ops::registry().find(name);
  if (!op.decompose || !s.draw.one_in(3)) return emit(name, {s.x});
  return op.decompose(s.graph, std::span(&s.x, 1), op.default_attributes).at(0);
}

/// A plain one is like the reference models', whose settings go together with what follows.
Value convolved(Site& s, bool transposed, bool plain) {
  const std::int64_t in = s.channels();
  require(in > 0, "an empty batch's axis stands where channels should");
  const std::int64_t out = plain ? s.draw.of<std::int64_t>({16, 16, 16, transposed ? 5 : 32, transposed ? 6 : 32, transposed ? 16 : 64})
                                 : s.draw.of<std::int64_t>({in, 1, 2, 3, 4, 5, 6, 8, 12});
  const Dims kernel = s.image(plain && !s.draw.one_in(3) ? 3 : 1, 3);
  ConvolutionOptions options{.padding = s.image(0, plain ? 1 : 2)};
  if (plain && transposed) options.stride = {2};
  if (!plain) options.stride = s.image(1, 2);
  if (!plain && s.draw.one_in(3)) options.dilation = s.image(1, 2);
  if (!plain && s.draw.one_in(3)) options.groups = std::gcd(in, out);
  if (transposed && s.draw.one_in(3)) options.output_padding = s.image(0, 1);
  Shape shape = transposed ? Shape{in, out / options.groups} : Shape{out, in / options.groups};
  for (const std::int64_t size : kernel) shape.push_back(size);
  const Value weight = s.parameter(shape, 0, 1 / std::sqrt(static_cast<double>(in / options.groups * element_count(kernel))));
  const Value bias = s.draw.one_in(3) ? Value() : s.parameter({out});
  const auto of_rank = [&](auto of_lines, auto of_images, auto of_volumes) {
    return (s.x.rank() == 3 ? of_lines : s.x.rank() == 4 ? of_images : of_volumes)(s.x, weight, bias, options);
  };
  return transposed ? of_rank(conv_transpose1d, conv_transpose2d, conv_transpose3d) : of_rank(conv1d, conv2d, conv3d);
}

Value binary(Site& s, Value a, Value b) {
  if (s.draw.one_in(3)) std::swap(a, b);
  return s.draw.one_in(5) ? a / (square(b) + 0.5) : emit(s.draw.of({"add", "add", "subtract", "multiply"}), {a, b});
}

Value with_side_input(Site& s) {
  Shape sample = s.x.shape();
  sample[0] = 1;
  const Shape shape = s.draw.of({s.along_channels(), s.along_channels(), s.x.shape(), sample, Shape{}, Shape(Dims::filled(s.x.rank(), 1))});
  return binary(s, s.x, s.parameter(shape, 0.3));
}

Value selected(Site& s) {
  const Value other = s.draw.one_in(2) ? s.another() : s.parameter(s.along_channels());
  return s.draw.one_in(3) ? where(greater(s.x, other), s.x, other * 0.5) : emit(s.draw.of({"minimum", "maximum"}), {s.x, other});
}

Value clamped(Site& s) {
  const double min = s.draw.number(-1.5, 0.3), max = s.draw.number(0.4, 2);
  const std::int64_t which = s.draw.from(0, 4);
  return clamp(s.x, which == 0 ? std::nullopt : std::optional(min), which == 1 ? std::nullopt : std::optional(max));
}

enum class Norm { instance, group, layer };

Value normed(Site& s, Norm kind) {
  const std::int64_t rank = s.draw.from(1, s.x.rank() - 1);
  Shape shape{s.channels()};
  if (kind == Norm::layer) shape = Shape(std::span(s.x.shape().begin(), s.x.shape().end()).last(static_cast<std::size_t>(rank)));
  const bool affine = !s.draw.one_in(3);
  const Value weight = affine ? s.parameter(shape, 1, 0.5) : Value(), bias = affine ? s.parameter(shape) : Value();
  const double eps = s.draw.of({1e-5, 1e-3, 0.1});
  if (kind == Norm::instance) return instance_norm(s.x, weight, bias, eps);
  if (kind == Norm::layer) return layer_norm(s.x, rank, weight, bias, eps);
  const std::int64_t groups = std::gcd(s.channels(), s.draw.of<std::int64_t>({1, 2, 3, 4, 8, 16}));
  const Value y = group_norm(s.x, groups, weight, bias, eps);  // where it is no norm of one value
  if (!s.draw.one_in(3)) return y;
  const Values inputs = affine ? Values{s.x, weight, bias} : Values{s.x};
  return ops::registry().find("group_norm").decompose(s.graph, inputs, ops::GroupNormAttributes{.num_groups = groups, .eps = eps}).at(0);
}

Value batch_normed(Site& s) {
  const Shape shape{s.channels()};
  require(s.x.type().elements() != s.channels(), "one value has no variance");
  const Value weight = s.parameter(shape, 1, 0.5), bias = s.parameter(shape);
  const Value mean = s.parameter(shape, 0, 0.5, false), variance = s.parameter(shape, 2, 0.2, false);
  const BatchNormOptions options{.eps = s.draw.of({1e-5, 0.1}), .momentum = s.draw.number(0, 1)};
  if (!s.by_hand()) return batch_norm(s.x, weight, bias, mean, variance, options);
  const auto along = [&](Value v) { return reshape(v, s.along_channels()); };
  return (s.x - along(mean)) / sqrt(along(variance) + options.eps) * along(weight) + along(bias);
}

Value pooled(Site& s, bool maximum, bool plain = false) {
  const ops::Pool pool{maximum, s.x.rank() - 2};
  if (plain) return pool(s.x, {.kernel_size = {s.draw.of<std::int64_t>({2, 2, 4, 3})}});
  PoolOptions options{.kernel_size = s.image(1, 3), .padding = s.draw.one_in(3) ? s.image(0, 1) : Dims()};
  if (s.draw.one_in(3)) options.stride = s.image(1, 3);
  if (s.draw.one_in(8)) options.dilation = s.image(1, 2);  // which an average does not take
  options.ceil_mode = s.draw.one_in(4);
  options.count_include_pad = s.draw.one_in(2);
  return pool(s.x, options);
}

Value reduced(Site& s, std::initializer_list<Value (*)(Value, const Dims&, bool)> reductions) {
  Dims axes;
  for (int axis = 1; axis < s.x.rank(); ++axis) {
    if (s.draw.one_in(2)) axes.push_back(axis);
  }
  const bool keep_dims = !s.draw.one_in(3);
  return s.draw.of(reductions)(s.x, axes.empty() ? Dims{1} : axes, keep_dims);
}

Value sliced(Site& s) {
  const std::int64_t axis = s.axis(), size = s.x.dim(axis), begin = s.draw.from(0, size - 1), end = s.draw.from(begin + 1, size);
  return slice(s.x, axis, begin, end, s.draw.from(1, 2));
}

Value padded(Site& s) {
  Dims before = Dims::filled(s.x.rank(), 0), after = before;
  before[static_cast<int>(s.axis())] = s.draw.from(0, 2);
  after[static_cast<int>(s.axis())] = s.draw.from(0, 3);
  return pad(s.x, before, after, s.draw.of({0.0, 0.5}));
}

Value concatenated(Site& s) {
  const Value parts[] = {s.x, s.another(), s.x};
  const std::size_t count = s.draw.one_in(3) ? 3 : 2;
  return concatenate(std::span(parts).first(count), s.axis());
}

Value last_axis_product(Site& s) {
  const Value weight = s.parameter({s.draw.from(1, 6), s.x.dim(-1)}, 0, 0.5);
  return linear(s.x, weight, s.draw.one_in(2) ? s.parameter({weight.dim(0)}) : Value());
}

/// In float64 there are none: they would round.
Value converted(Site& s) {
  const DType dtype = s.draw.of({DType::f32, DType::f16, DType::bf16, DType::f64});
  return s.recipe.dtype == DType::f64 || s.spelling == Spelling::exact ? s.x : cast(s.x, dtype);
}

Value dropped(Site& s) {
  const Value counter = s.variable(DType::i64, {}, false, [](const Tensor& tensor, std::uint64_t) { tensor.fill(0); });
  const double probability = s.draw.number(0, 0.9);
  return s.by_hand() ? s.x : dropout(s.x, counter, probability, s.draw.bits());
}

Value shown(Site& s) {
  s.graph.output(concat("y", s.graph.outputs().size()), s.x);
  return {};
}

struct Move {
  const char* name;
  int weight;                  ///< how often it is drawn
  Value (*apply)(Site& site);  ///< none: x stays what it is
  bool kinked = false;
};

// clang-format off
constexpr Move moves[] = {
    {"convolution", 5, [](Site& s) { return convolved(s, false, false); }},
    {"transposed_convolution", 3, [](Site& s) { return convolved(s, true, false); }},
    {"plain_convolution", 1, [](Site& s) { return convolved(s, false, true); }},
    {"plain_transposed_convolution", 1, [](Site& s) { return convolved(s, true, true); }},
    {"function", 8, [](Site& s) { return function_of(s, s.draw.of({"sigmoid", "tanh", "silu", "mish", "gelu", "softplus", "elu"})); }},
    {"positive_function", 2, [](Site& s) { return emit(s.draw.of({"log", "sqrt", "reciprocal"}), {square(s.x) + 0.5}); }},
    {"square", 1, [](Site& s) { return square(s.x); }},
    {"power", 1, [](Site& s) { return power(exp(tanh(s.x)), s.draw.number(-1, 1)); }},
    {"bent", 3, [](Site& s) { return function_of(s, s.draw.of({"relu", "abs", "leaky_relu", "hard_sigmoid", "hard_swish"})); }, true},
    {"clamp", 3, clamped, true},
    {"side_input", 6, with_side_input},
    {"number", 4, [](Site& s) { return binary(s, s.x, ops::scalar(s.x, s.draw.of({s.draw.number(-2, 2), 0.0, 1.0, 3.0}))); }},
    {"residual", 6, [](Site& s) { return binary(s, s.x, s.another()); }},
    {"select", 2, selected, true},
    {"scale", 2, [](Site& s) { return s.x * (s.scale = s.parameter(s.along_channels())); }},
    {"scale_again", 2, [](Site& s) { return s.scale ? s.x * s.scale : Value(); }},
    {"gate", 1, [](Site& s) { return s.x * sigmoid(s.x + s.draw.of({3.0, 3.0, 3.0, 2.0})) / 6.0; }},
    {"subtract", 1, [](Site& s) { return s.x - s.parameter({1, 1, 1, 1}); }},
    {"instance_norm", 3, [](Site& s) { return normed(s, Norm::instance); }},
    {"plain_instance_norm", 1, [](Site& s) { return instance_norm(s.x); }},
    {"group_norm", 3, [](Site& s) { return normed(s, Norm::group); }},
    {"layer_norm", 3, [](Site& s) { return normed(s, Norm::layer); }},
    {"batch_norm", 5, batch_normed},
    {"plain_max_pool", 1, [](Site& s) { return pooled(s, true, true); }, true},
    {"max_pool", 3, [](Site& s) { return pooled(s, true); }, true},
    {"avg_pool", 3, [](Site& s) { return pooled(s, false); }},
    {"global_avg_pool", 1, [](Site& s) { return global_avg_pool(s.x); }},
    {"reduce", 3, [](Site& s) { return reduced(s, {sum, mean, logsumexp}); }},
    {"extremum", 2, [](Site& s) { return reduced(s, {min, max}); }, true},
    {"max_channel", 2, [](Site& s) { return max(s.x, 1, s.draw.one_in(3)); }, true},
    {"logsumexp_channels", 1, [](Site& s) { return logsumexp(s.x, {1}, true); }},
    {"softmax", 2, [](Site& s) { return s.draw.one_in(3) ? log_softmax(s.x, s.axis()) : softmax(s.x, s.axis()); }},
    {"slice", 2, sliced},
    {"pad", 2, padded},
    {"permute", 2, [](Site& s) { return transpose(s.x, 1, s.draw.from(0, s.x.rank() - 1)); }},
    {"concatenate", 2, concatenated},
    {"linear", 2, last_axis_product},
    {"cast", 3, converted},
    {"dropout", 2, dropped},
    {"output", 3, shown},
    {"go_back", 2, [](Site& s) { return s.another(); }},
};
// clang-format on

std::size_t move_named(std::string_view name) {
  return static_cast<std::size_t>(std::find_if(std::begin(moves), std::end(moves), [&](const Move& m) { return m.name == name; }) - moves);
}

Step random_step(Draw& draw) {
  const int total = std::accumulate(std::begin(moves), std::end(moves), 0, [](int sum, const Move& move) { return sum + move.weight; });
  std::int64_t rest = draw.from(0, total - 1);
  std::size_t move = 0;
  while (rest >= moves[move].weight) rest -= moves[move++].weight;
  return {move, draw.bits()};
}

/// What follows convolutions: in the reference models, and in common networks.
std::vector<Step> known_chain(Draw& draw) {
  using Names = std::vector<const char*>;
  const Names chains[] = {{"plain_convolution", "scale", "plain_instance_norm", "clamp", "scale_again", "max_channel"},
                          {"plain_convolution", "group_norm", "scale", "plain_max_pool", "clamp"},
                          {"plain_transposed_convolution", "logsumexp_channels", "gate", "subtract", "clamp"},
                          {"convolution", "batch_norm", "residual", "bent", "convolution", "batch_norm", "global_avg_pool"},
                          {"convolution", "group_norm", "function", "residual", "avg_pool"}};
  std::vector<Step> steps;
  for (const char* name : chains[draw.of({0, 0, 1, 1, 1, 2, 2, 3, 4})]) steps.push_back({move_named(name), draw.bits()});
  return steps;
}

/// A near miss: a step less, two in another order, or one more, such as another reader of an inner value.
void change(std::vector<Step>& steps, Draw& draw) {
  const auto place = steps.begin() + draw.from(0, std::ssize(steps) - 2);
  switch (draw.from(0, 3)) {
    case 0: steps.erase(place); break;
    case 1: std::swap(place[0], place[1]); break;
    case 2: steps.insert(place + 1, random_step(draw)); break;
    default: steps.insert(place + 1, {move_named("output"), draw.bits()});
  }
}

}  // namespace

Recipe random_recipe(std::uint64_t seed) {
  Draw draw(seed);
  Recipe recipe = {};
  recipe.seed = seed;
  recipe.input = {draw.one_in(16) ? 0 : draw.from(1, 3), draw.of<std::int64_t>({1, 2, 3, 3, 4, 4, 5, 8, 8, 16})};
  const std::int64_t axes = draw.of<std::int64_t>({1, 2, 2, 2, 3, 3, 3}), most = axes == 3 ? 6 : axes == 2 ? 12 : 40;
  for (std::int64_t axis = 0; axis < axes; ++axis) recipe.input.push_back(draw.from(1, most));
  recipe.dtype = draw.one_in(3) ? DType::f64 : DType::f32;
  recipe.precision = recipe.dtype == DType::f64 ? DType::f32 : draw.of({DType::f32, DType::f32, DType::f16, DType::bf16});
  recipe.tf32 = !draw.one_in(3);
  recipe.trained = !draw.one_in(4);
  if (draw.one_in(2)) {
    recipe.steps = known_chain(draw);
    if (draw.one_in(2)) change(recipe.steps, draw);
  } else {
    recipe.steps.push_back({move_named(draw.of({"convolution", "convolution", "transposed_convolution", "scale"})), draw.bits()});
  }
  for (std::int64_t more = draw.from(0, recipe.steps.size() > 1 ? 3 : 9); more > 0; --more) recipe.steps.push_back(random_step(draw));
  return recipe;
}

std::string to_text(const Recipe& recipe) {
  std::string text = concat(recipe.dtype, " stored in ", recipe.precision, recipe.tf32 ? ", tf32" : "",
                            recipe.trained ? ", trained" : ", at inference", ": input ", recipe.input, ';');
  for (const Step& step : recipe.steps) text += concat(' ', moves[step.move].name, ':', step.seed);
  return text;
}

Built build(const Recipe& recipe, Spelling spelling) {
  Site site{recipe, spelling};
  Built built;
  site.x = site.graph.input("x", recipe.input, spelling == Spelling::exact ? DType::f64 : recipe.dtype);
  site.earlier.push_back(site.x);
  for (const Step& step : recipe.steps) {
    site.draw = Draw(step.seed);
    const Move& move = moves[step.move];
    try {
      const Value y = move.apply(site);
      if (!y || y.type().elements() > most_elements) continue;
      site.x = y;
      site.earlier.push_back(y);
      built.kinked = built.kinked || move.kinked;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::argument) throw;  // the step does not fit
    }
  }
  shown(site);
  built.graph = std::move(site.graph);
  return built;
}

}  // namespace frit::random_graphs
