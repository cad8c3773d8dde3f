#include "frit/ops/reduction/softmax.h"

#include <limits>

#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/elementwise/unary.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/reduction/log_sum_exp_tile.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/reduction/reduction_axes.h"
#include "frit/ops/reduction/sum_tile.h"
#include "frit/ops/shape/image_axes.h"

namespace frit {
namespace ops {
namespace {

/// A whole line is one task's, which writes it while it is in the cache.
ReductionPlan plan_of(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  return {output.shape(), reduction_axes<SoftmaxAttributes>(call, output.rank()), /*may_split=*/false, output.layout()};
}

/// What a whole line has in common.
Invariance invariance(const Shape& input, const Attributes& attributes) {
  const auto axis = static_cast<int>(attributes.as<SoftmaxAttributes>().axis);
  Dims block = Dims::filled(input.rank(), 1);
  block[axis < 0 ? axis + input.rank() : axis] = input[axis < 0 ? axis + input.rank() : axis];
  return {block, /*scale=*/false};
}

std::vector<TensorType> infer(const InferContext& call) {
  reduction_axes<SoftmaxAttributes>(call);  // throws for an axis that there is not
  return infer_same(call);
}

/// body(offset, width) for all rows of a block.
template <class Body>
void for_each_row(const ReductionPlan& plan, const Block& block, const Body& body) {
  plan.for_each_rows(block, 0, [&](const Rows& rows) {
    for (std::int64_t row = 0; row < rows.count; ++row) body(rows.offset + row * rows.stride, rows.width);
  });
}

/// What the sum of exp(x - maximum) gives. An infinite maximum makes the whole line NaN, as in PyTorch.
template <class Form, class T>
T normalizer_of(T maximum, double sum) {
  return static_cast<T>(Form::normalizer(std::isinf(maximum) ? std::numeric_limits<double>::quiet_NaN() : sum));
}

template <class Form, class T>
void find_normalizers(const LogSumExpTile<T>& tile, int width, T* normalizers) {
  for (int i = 0; i < width; ++i) normalizers[i] = normalizer_of<Form>(tile.maximum[i], tile.sum[i]);
}

/// Lines as LogSumExpTile takes them; each exponential is computed once.
template <class Form, class T>
void normalize_lines(const T* x, T* y, std::int64_t count, int lines) {
  LogSumExpTile<T> tile;
  tile.take_lines(x, count, lines, std::is_same_v<Form, Softmax> ? y : nullptr);
  T maximum[tile_width], normalizer[tile_width];
  for (int line = 0; line < lines; ++line) {
    const std::int64_t width = std::min<std::int64_t>(count, tile_width);
    std::fill_n(maximum + line * width, width, tile.maximum[line]);
    std::fill_n(normalizer + line * width, width, normalizer_of<Form>(tile.maximum[line], tile.sum[line]));
  }
  for (std::int64_t first = 0; first < lines * count; first += tile_width) {
    const std::int64_t width = std::min<std::int64_t>(tile_width, lines * count - first);
    FRIT_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < width; ++i) {
      y[first + i] = Form::finish(Form::kept(x[first + i] - maximum[i], y[first + i]), normalizer[i]);
    }
  }
}

/// Each exponential is computed once.
template <class Form, class T>
void normalize_short_lines(const T* x, T* y, std::int64_t count, int width) {
  ShortLines<T> lines(x, count, width);
  LogSumExpTile<T> tile;
  tile.template take<std::is_same_v<Form, Softmax>>(lines);
  T normalizer[tile_width];
  find_normalizers<Form>(tile, width, normalizer);
  for (std::int64_t row = 0; row < count; ++row) {
    T* const of_row = lines.row(row);
    FRIT_INDEPENDENT_ITERATIONS
    for (int i = 0; i < width; ++i) of_row[i] = Form::finish(Form::kept(of_row[i] - tile.maximum[i], of_row[i]), normalizer[i]);
  }
  lines.store(y);
}

/// y = result(x - maximum, normalizer). A function of its own, in which the loop becomes vector code.
template <class Form, class T>
[[gnu::noinline, gnu::flatten]] void normalize_row(const T* x, const T* maximum, const T* normalizer, int width, T* y) {
  FRIT_INDEPENDENT_ITERATIONS
  for (int i = 0; i < width; ++i) y[i] = Form::result(x[i] - maximum[i], normalizer[i]);
}

template <class Form>
void kernel(const KernelContext& call) {
  const ReductionPlan plan = plan_of(call);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const T* const x = call.inputs[0].data<T>();
    T* const y = call.outputs[0].data<T>();
    if (plan.has_lines()) {
      const bool are_short = plan.has_short_lines(2 * simd::lanes<T>);  // columns that become lines again take longer
      const auto normalize = [&, run = are_short ? normalize_short_lines<Form, T> : normalize_lines<Form, T>](const Block& block) {
        run(x + block.offset, y + block.offset, plan.count(), block.width);
      };
      return are_short ? plan.for_each_short_lines(normalize) : plan.for_each_lines(normalize);
    }
    reduce<LogSumExpTile<T>>(
        plan, {}, [&](auto& tile, const Rows& rows) { tile.add(rows, x); },
        [&](const auto& tile, const Block& block) {
          T normalizer[tile_width];
          find_normalizers<Form>(tile, block.width, normalizer);
          for_each_row(plan, block, [&](std::int64_t offset, int width) {
            normalize_row<Form>(x + offset, tile.maximum, normalizer, width, y + offset);
          });
        });
  });
}

std::vector<Sample> samples() {
  return {
      {.inputs = {Shape{7}}, .attributes = SoftmaxAttributes{0}},
      {.inputs = {Shape{3, 5}}, .attributes = SoftmaxAttributes{-1}},
      {.inputs = {Shape{2, 3, 5}}},
      {.inputs = {Shape{2, 4, 3, 2}}},
      {.inputs = {Shape{3, 2, 2}}, .attributes = SoftmaxAttributes{0}},
      {.inputs = {Shape{3, 24}}},
      {.inputs = {Shape{2, 16, 3, 4}}},
      {.inputs = {Shape{5, 16}}, .attributes = SoftmaxAttributes{0}},
      {.inputs = {Shape{2, 40}}},
      {.inputs = {Shape{2, 64}}},
      {.inputs = {Shape{2, 300}}},
      {.inputs = {Shape{1, 1}}},
      {.inputs = {Shape{0, 3}}},
  };
}

std::vector<TensorType> infer_backward(const InferContext& call) {
  reduction_axes<SoftmaxAttributes>(call);  // throws for an axis that there is not
  call.require(call.inputs[0] == call.inputs[1], "gradient is ", call.inputs[0], ", output is ", call.inputs[1]);
  return infer_same(call);
}

template <class Form, class T>
[[gnu::noinline, gnu::flatten]] void subtract_row(const T* g, const T* y, const T* sum, int width, T* result) {
  FRIT_INDEPENDENT_ITERATIONS
  for (int i = 0; i < width; ++i) result[i] = Form::gradient(g[i], y[i], sum[i]);
}

template <class Form, class T>
void subtract_short_lines(const T* g, const T* y, T* result, std::int64_t count, int width) {
  ShortLines<T> gradients(g, count, width);
  const ShortLines<T> lines(y, count, width);
  double sums[tile_width] = {};
  for (std::int64_t row = 0; row < count; ++row) {
    const T *const of_g = gradients.row(row), *const of_y = lines.row(row);
    for (int i = 0; i < width; ++i) sums[i] += Form::template term<double>(static_cast<double>(of_g[i]), static_cast<double>(of_y[i]));
  }
  T sum[tile_width];
  std::transform(sums, sums + width, sum, [](double s) { return static_cast<T>(s); });
  for (std::int64_t row = 0; row < count; ++row) {
    subtract_row<Form>(gradients.row(row), lines.row(row), sum, width, gradients.row(row));
  }
  gradients.store(result);
}

template <class Form, class T>
void subtract_lines(const T* g, const T* y, T* result, std::int64_t count, int lines) {
  const auto sum = [](auto a, auto b) { return a + b; };
  for (std::int64_t line = 0; line < lines; ++line, g += count, y += count, result += count) {
    const auto term = [g, y]<class To>(std::int64_t i) { return Form::template term<To>(load_as<To>(g + i), load_as<To>(y + i)); };
    const auto total = static_cast<T>(reduce_terms<double>(count, 0, term, sum));
    FRIT_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < count; ++i) result[i] = Form::gradient(g[i], y[i], total);
  }
}

template <class Form>
void backward_kernel(const KernelContext& call) {
  const ReductionPlan plan = plan_of(call);
  dispatch_floating(call.inputs[0].dtype(), [&]<class T>() {
    const T* const g = call.inputs[0].data<T>();
    const T* const y = call.inputs[1].data<T>();
    T* const result = call.outputs[0].data<T>();
    if (plan.has_lines()) {
      const bool are_short = plan.has_short_lines(simd::lanes<T> - 1);
      const auto subtract = [&, run = are_short ? subtract_short_lines<Form, T> : subtract_lines<Form, T>](const Block& block) {
        run(g + block.offset, y + block.offset, result + block.offset, plan.count(), block.width);
      };
      return are_short ? plan.for_each_short_lines(subtract) : plan.for_each_lines(subtract);
    }
    reduce<SumTile<double>>(
        plan, {},
        [&](auto& tile, const Rows& rows) { tile.add(rows, [&](std::int64_t i) { return Form::template term<double>(g[i], y[i]); }); },
        [&](const auto& tile, const Block& block) {
          T sum[tile_width];
          for (int i = 0; i < block.width; ++i) sum[i] = static_cast<T>(tile.sum[i]);
          plan.spread(sum);
          for_each_row(plan, block,
                       [&](std::int64_t offset, int width) { subtract_row<Form>(g + offset, y + offset, sum, width, result + offset); });
        });
  });
}

/// What is not there has no weight.
Value softmax_of_longer_rows(std::span<const Value> inputs, const Attributes& attributes, std::int64_t more) {
  const Value x = inputs[0];
  if (normalize_axis(attributes.as<SoftmaxAttributes>().axis, x.rank(), "softmax") != x.rank() - 1) return {};
  const Tensor mask = Tensor::zeros({x.dim(-1)}, x.dtype());
  mask.slice(0, x.dim(-1) - more, x.dim(-1)).fill(-std::numeric_limits<double>::infinity());
  return softmax(x + x.emitter().constant(mask), -1);
}

Values softmax_second_gradient(const GradientContext& call) {
  const Dims axis{call.as<SoftmaxAttributes>().axis};
  const Value h = call.gradients[0], g = call.inputs[0], y = call.inputs[1];
  return {call.wanted[0] ? emit_one("softmax_backward", {h, y}, call.attributes) : Value{},
          call.wanted[1] ? h * (g - sum(g * y, axis, true)) - g * sum(h * y, axis, true) : Value{}};
}

Values log_softmax_second_gradient(const GradientContext& call) {
  const Dims axis{call.as<SoftmaxAttributes>().axis};
  const Value h = call.gradients[0], g = call.inputs[0];
  const Value weighted = h * exp(call.inputs[1]);
  return {call.wanted[0] ? h - sum(weighted, axis, true) : Value{}, call.wanted[1] ? -(weighted * sum(g, axis, true)) : Value{}};
}

std::vector<Sample> backward_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : result) sample.inputs.push_back(sample.inputs[0]);
  return result;
}

/// Along another axis, as in attention, rows are best read as they lie.
bool is_over_channels(const Shape& image, const Attributes& attributes) {
  return normalize_axis(attributes.as<SoftmaxAttributes>().axis, image.rank(), "softmax") == 1;
}

void add_staged(Registry& registry, Operator entry) {
  entry.staged_inputs = {{0}};
  entry.staged_output = true;
  entry.staged_where = is_over_channels;
  entry.cpu.any_layout_outputs = {0};
  entry.cpu.one_layout = true;
  registry.add<SoftmaxAttributes>(std::move(entry));
}

/// The operator and its gradient, of which the form gives the rest.
template <class Form>
void add(Registry& registry, Operator forward, Operator backward) {
  backward.name = forward.name + "_backward";
  backward.inputs = {"gradient", "output"};
  backward.infer = infer_backward;
  backward.cpu = {.run = backward_kernel<Form>, .any_layout_inputs = {0, 1}};
  backward.in_place = {{0, 0}, {0, 1}};
  backward.samples = backward_samples;
  forward.inputs = {"input"};
  forward.infer = infer;
  forward.gradient = [name = backward.name](const GradientContext& call) {
    return Values{emit_one(name, {call.gradients[0], call.outputs[0]}, call.attributes)};
  };
  forward.cpu = {.run = kernel<Form>, .any_layout_inputs = {0}};
  forward.in_place = {{0, 0}};
  forward.invariance = invariance;
  forward.with_unit_axis = axis_around_unit_axis<SoftmaxAttributes>;
  forward.samples = samples;
  add_staged(registry, std::move(forward));
  add_staged(registry, std::move(backward));
}

}  // namespace
}  // namespace ops

Value softmax(Value x, std::int64_t axis) {
  return ops::emit_one("softmax", {x}, ops::SoftmaxAttributes{normalize_axis(axis, x.rank(), "softmax")});
}

Value log_softmax(Value x, std::int64_t axis) {
  return ops::emit_one("log_softmax", {x}, ops::SoftmaxAttributes{normalize_axis(axis, x.rank(), "log_softmax")});
}

}  // namespace frit

FRIT_OPERATORS(softmax) {
  add<Softmax>(registry,
               {.name = "softmax",
                .summary = "exp(x) / sum(exp(x)) along an axis",
                .of_longer_rows = softmax_of_longer_rows,
                .precision = Precision::as_read},
               {.summary = "output (gradient - sum(gradient output))", .gradient = softmax_second_gradient});
  add<LogSoftmax>(registry, {.name = "log_softmax", .summary = "x - log(sum(exp(x))) along an axis", .precision = Precision::full},
                  {.summary = "gradient - exp(output) sum(gradient)", .gradient = log_softmax_second_gradient});
}
