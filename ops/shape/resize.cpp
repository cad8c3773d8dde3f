#include "frit/ops/shape/resize.h"

#include <optional>
#include <span>
#include <vector>

#include "frit/core/thread_pool.h"
#include "frit/ops/cpu/converted_vectors.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/shape/resize_axis.h"
#include "frit/ops/shape/sizes.h"

namespace frit {
namespace {

/// Of an image axis.
constexpr std::int64_t most_elements = 1 << 30;

/// One more image axis, whose elements lie where PyTorch has them.
void add_axis(ops::ResizeAttributes& attributes, std::int64_t from, std::int64_t to, std::optional<double> factor, bool align_corners) {
  const auto input = static_cast<double>(from), output = static_cast<double>(to);
  double step = factor ? 1 / *factor : input / output;
  if (align_corners) step = to > 1 ? (input - 1) / (output - 1) : 0;
  if (attributes.mode == "nearest") {
    attributes.add_axis(from, to, static_cast<float>(step), 0);  // float32, as in PyTorch
  } else {
    attributes.add_axis(from, to, step, align_corners ? 0 : 0.5 * step - 0.5);
  }
}

}  // namespace

Value resize(Value input, const ResizeOptions& o) {
  const int images = input.rank() - 2;
  require(images >= 1 && images <= 3, "resize: input must be (N, C, ...) with 1 to 3 image axes, got ", input.shape());
  require(o.size.empty() != o.scale_factor.empty(), "resize: one of size and scale_factor is needed, got ",
          o.size.empty() ? "none" : "both");
  require(!o.align_corners || o.mode != ResizeMode::nearest, "resize: align_corners does not go with nearest");
  const std::size_t given = o.size.empty() ? o.scale_factor.size() : static_cast<std::size_t>(o.size.rank());
  require(given == 1 || given == static_cast<std::size_t>(images), "resize: ", o.size.empty() ? "scale_factor" : "size", " has ", given,
          " numbers, expected 1 or ", images, " (input ", input.shape(), ")");
  ops::ResizeAttributes attributes{.mode = ops::name_of(o.mode)};
  for (int i = 0; i < images; ++i) {
    const std::int64_t from = input.dim(i + 2);
    std::int64_t to = o.size.empty() ? 0 : o.size[given == 1 ? 0 : i];
    std::optional<double> factor;
    if (o.size.empty()) {
      factor = o.scale_factor[given == 1 ? 0 : static_cast<std::size_t>(i)];
      require(std::isfinite(*factor) && *factor > 0 && *factor < 1e9, "resize: scale_factor must be above 0, got ", *factor);
      to = static_cast<std::int64_t>(std::floor(static_cast<double>(from) * *factor));
    }
    require(from > 0 && to > 0 && to <= most_elements, "resize: axis ", i + 2, " of ", from, " cannot become ", to, " (input ",
            input.shape(), ")");
    add_axis(attributes, from, to, factor, o.align_corners);
  }
  return ops::resize_by(input, attributes);
}

namespace ops {

Value resize_by(Value input, const ResizeAttributes& attributes) {
  bool stays = true, repeats = true;
  for (int axis = 0; axis < attributes.from.rank(); ++axis) {
    stays = stays && attributes.stays(axis);
    repeats = repeats && attributes.from[axis] == 1;
  }
  if (stays) return input;
  if (!repeats) return emit_one("resize", {input}, attributes);
  Shape shape = {input.dim(0), input.dim(1)};
  for (const std::int64_t size : attributes.to) shape.push_back(size);
  return expand_to(input, with_batch_of(input, shape));
}

namespace {

std::vector<TensorType> infer(const InferContext& call, bool backward) {
  const auto& attributes = call.as<ResizeAttributes>();
  const Dims &given = backward ? attributes.to : attributes.from, &made = backward ? attributes.from : attributes.to;
  const int images = given.rank();
  call.require(images >= 1 && images <= 3 && made.rank() == images, "expected the sizes of 1 to 3 image axes before and after, got ",
               attributes.from, " and ", attributes.to);
  for (int i = 0; i < images; ++i) {
    call.require(std::min(given[i], made[i]) > 0 && std::max(given[i], made[i]) <= most_elements,
                 "image axes must have 1 to 2^30 elements, got ", attributes.from, " and ", attributes.to);
  }
  for (const double number : {attributes.step[0], attributes.step[1], attributes.step[2], attributes.offset[0], attributes.offset[1],
                              attributes.offset[2], attributes.cubic}) {
    call.require(std::isfinite(number), "steps, offsets and cubic must be finite, got ", number);
  }
  const std::string& mode = attributes.mode;
  call.require(mode == "nearest" || mode == "linear" || mode == "cubic", "mode must be nearest, linear or cubic, got \"", mode, '"');
  const Shape& shape = call.shape(0);
  call.require(shape.rank() == images + 2 && std::equal(given.begin(), given.end(), shape.begin() + 2),
               "expected (N, C, ...) with image axes of ", given, ", got ", shape);
  Shape result = {shape[0], shape[1]};
  for (const std::int64_t size : made) result.push_back(size);
  return {{call.inputs[0].dtype, result}};
}

/// Elements of the result for each of the input.
double enlargement(const ResizeAttributes& a, int axis) { return static_cast<double>(a.to[axis]) / static_cast<double>(a.from[axis]); }

/// Axis by axis, the one that is enlarged most first, until few enough elements of the result are made of one of the input: these are what
/// a thread reads one after another on a GPU. Halves are rounded in between.
Values gradient(const GradientContext& call) {
  constexpr double most = 64;
  ResizeAttributes left = call.as<ResizeAttributes>();
  Value result = call.gradients[0];
  for (;;) {
    int largest = 0;
    double readers = 1;
    for (int axis = 0; axis < left.from.rank(); ++axis) {
      readers *= enlargement(left, axis);
      if (enlargement(left, axis) > enlargement(left, largest)) largest = axis;
    }
    if (readers < most || readers == enlargement(left, largest)) return emit("resize_backward", {result}, left);
    ResizeAttributes one = left;
    for (int axis = 0; axis < left.from.rank(); ++axis) {
      axis == largest ? left.keep(axis, left.from[axis]) : one.keep(axis, left.to[axis]);
    }
    result = emit_one("resize_backward", {result}, one);
  }
}

/// What each element along an axis is made of: the rows of a sparse matrix.
class SparseRows {
 public:
  struct Entry {
    std::int64_t element;
    double weight;
  };

  template <class Reads>
  static SparseRows of(const ResizeAxis& axis, int rows) {
    SparseRows result;
    for (int row = 0; row < rows; ++row) {
      const Reads reads(axis, row);
      for (int k = 0; k < reads.count(); ++k) {
        if (reads.weight(k) != 0) result.entries_.push_back({reads.element(k), reads.weight(k)});
      }
      result.ends_.push_back(result.entries_.size());
    }
    return result;
  }

  std::span<const Entry> operator[](std::int64_t row) const {
    const std::size_t begin = ends_[static_cast<std::size_t>(row)], end = ends_[static_cast<std::size_t>(row) + 1];
    return std::span(entries_).subspan(begin, end - begin);
  }

 private:
  std::vector<Entry> entries_;
  std::vector<std::size_t> ends_ = {0};
};

/// Of a call: its sizes by depth, height and width, and what the elements of its result are made of.
struct Work {
  std::int64_t planes;
  std::array<std::int64_t, 3> given, made;
  std::array<SparseRows, 3> reads;
};

template <ResizeMode mode, bool backward>
Work work_of(const KernelContext& call) {
  const ResizeAxes axes(call.as<ResizeAttributes>());
  Work work{call.inputs[0].dim(0) * call.inputs[0].dim(1), {}, {}, {}};
  std::size_t i = 0;
  for (const ResizeAxis* axis : {&axes.depth, &axes.height, &axes.width}) {
    const int made = backward ? axis->from : axis->to;
    work.given[i] = backward ? axis->to : axis->from;
    work.made[i] = made;
    work.reads[i++] = SparseRows::of<ResizeReads<mode, backward, double>>(*axis, made);
  }
  return work;
}

/// Rows of the result that are computed together, so that what each of their elements reads is looked up once.
constexpr std::size_t most_rows = 8;

/// The line that a row of the result is made of: all rows that it reads as one.
template <class T>
void fill_line(const Work& work, const T* plane, std::int64_t depth, std::int64_t height, std::span<double> line) {
  std::fill(line.begin(), line.end(), 0);
  for (const SparseRows::Entry& slice : work.reads[0][depth]) {
    for (const SparseRows::Entry& row : work.reads[1][height]) {
      const T* const x = plane + (slice.element * work.given[1] + row.element) * work.given[2];
      const double weight = slice.weight * row.weight;
      for (std::size_t w = 0; w < line.size(); ++w) line[w] += weight * static_cast<double>(x[w]);
    }
  }
}

template <class T>
void compute(const Work& work, const T* input, T* output) {
  const std::int64_t depth = work.made[0], height = work.made[1], width = work.made[2];
  const std::int64_t image = work.given[0] * work.given[1] * work.given[2], columns = work.given[2];
  const auto together = static_cast<std::int64_t>(most_rows);
  const std::int64_t grain = (16384 / (columns + width) + together) / together * together;
  parallel_for(work.planes * depth * height, grain, [&](std::int64_t first, std::int64_t end) {
    std::vector<double> line(static_cast<std::size_t>(columns));
    std::vector<std::array<double, most_rows>> lines(line.size());  // those of all rows side by side
    for (std::int64_t row = first; row < end; row += static_cast<std::int64_t>(most_rows)) {
      const auto rows = static_cast<std::size_t>(std::min<std::int64_t>(most_rows, end - row));
      for (std::size_t r = 0; r < rows; ++r) {
        const std::int64_t at = row + static_cast<std::int64_t>(r);
        fill_line(work, input + at / height / depth * image, at / height % depth, at % height, line);
        for (std::size_t w = 0; w < line.size(); ++w) lines[w][r] = line[w];
      }
      for (std::int64_t w = 0; w < width; ++w) {
        std::array<double, most_rows> sums{};
        for (const SparseRows::Entry& entry : work.reads[2][w]) {
          const std::array<double, most_rows>& elements = lines[static_cast<std::size_t>(entry.element)];
          for (std::size_t r = 0; r < most_rows; ++r) sums[r] += entry.weight * elements[r];
        }
        for (std::size_t r = 0; r < rows; ++r) output[(row + static_cast<std::int64_t>(r)) * width + w] = static_cast<T>(sums[r]);
      }
    }
  });
}

/// to[i] = value.template operator()<V>(i), in vectors V and one by one.
template <class T, class Value>
void store_each(T* to, std::int64_t count, const Value& value) {
  std::int64_t i = 0;
  for (; i + simd::lanes<T> <= count; i += simd::lanes<T>) store_as(to + i, value.template operator()<simd::Vector<T>>(i));
  for (; i < count; ++i) store_as(to + i, value.template operator()<T>(i));
}

/// The sum of the pieces of `from` that the entries name, each of so many elements, times what they count; two at a time.
template <class T>
void add_up(std::span<const SparseRows::Entry> entries, const T* from, std::int64_t count, T* to) {
  if (entries.empty()) std::fill_n(to, count, T{0});
  const std::size_t first = entries.size() % 2;
  for (std::size_t k = 0; k < entries.size(); k += k < first ? 1 : 2) {
    const T* const a = from + entries[k].element * count;
    const T weight = static_cast<T>(entries[k].weight);
    if (k < first && weight == 1) {
      store_each(to, count, [=]<class V>(std::int64_t i) { return load_as<V>(a + i); });
    } else if (k < first) {
      store_each(to, count, [=]<class V>(std::int64_t i) { return load_as<V>(a + i) * weight; });
    } else {
      const T* const b = from + entries[k + 1].element * count;
      const T other = static_cast<T>(entries[k + 1].weight);
      const auto both = [=]<class V>(std::int64_t i) { return load_as<V>(a + i) * weight + load_as<V>(b + i) * other; };
      if (k == 0) {
        store_each(to, count, both);
      } else {
        store_each(to, count, [=]<class V>(std::int64_t i) { return load_as<V>(to + i) + both.template operator()<V>(i); });
      }
    }
  }
}

/// Of images that lie channels-last: the rows that one of the result is made of become one, then pixels of that.
template <class T>
void compute_channels(const Work& work, std::int64_t channels, const T* input, T* output) {
  const std::int64_t depth = work.made[0], height = work.made[1], width = work.made[2], row_elements = work.given[2] * channels;
  const std::int64_t grain = std::max<std::int64_t>(1, 16384 / ((work.given[2] + width) * channels));
  parallel_for(work.planes / channels * depth * height, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> line(static_cast<std::size_t>(row_elements));
    std::vector<SparseRows::Entry> rows;
    for (std::int64_t row = begin; row < end; ++row) {
      const T* const image = input + row / height / depth * work.given[0] * work.given[1] * row_elements;
      rows.clear();
      for (const SparseRows::Entry& slice : work.reads[0][row / height % depth]) {
        for (const SparseRows::Entry& entry : work.reads[1][row % height]) {
          rows.push_back({slice.element * work.given[1] + entry.element, slice.weight * entry.weight});
        }
      }
      const bool is_given = rows.size() == 1 && rows[0].weight == 1;
      if (!is_given) add_up<T>(rows, image, row_elements, line.data());
      const T* const from = is_given ? image + rows[0].element * row_elements : line.data();
      for (std::int64_t w = 0; w < width; ++w) add_up(work.reads[2][w], from, channels, output + (row * width + w) * channels);
    }
  });
}

/// Of any mode: it is in the work's numbers.
void compute_all(const Work& work, const Tensor& input, const Tensor& output) {
  dispatch_floating(input.dtype(), [&]<class T>() {
    if (input.layout() == Layout::contiguous && output.layout() == Layout::contiguous) {
      return compute(work, input.data<T>(), output.data<T>());
    }
    compute_channels(work, input.dim(1), input.data<T>(), output.data<T>());
  });
}

template <bool backward>
void run(const KernelContext& call) {
  if (call.outputs[0].elements() == 0) return;
  dispatch_mode(call.as<ResizeAttributes>().mode,
                [&]<ResizeMode mode>() { compute_all(work_of<mode, backward>(call), call.inputs[0], call.outputs[0]); });
}

ResizeAttributes attributes_of(const Dims& from, const Dims& to, const char* mode, bool align_corners = false) {
  ResizeAttributes attributes{.mode = mode};
  for (int i = 0; i < from.rank(); ++i) add_axis(attributes, from[i], to[i], std::nullopt, align_corners);
  return attributes;
}

std::vector<Sample> samples(bool backward) {
  ResizeAttributes half_pixel = attributes_of({5, 3}, {3, 7}, "nearest"), region = attributes_of({4, 5}, {3, 4}, "linear"),
                   inside = attributes_of({4, 3}, {9, 2}, "cubic");
  half_pixel.offset = {0.5 * 5 / 3 - 1, 0.5 * 3 / 7 - 1};
  half_pixel.round_up = true;
  region.step = {-1.5, 0.25};  // mirrored, and in part outside
  region.offset = {4.25, -1.5};
  inside.exclude_outside = true;
  inside.cubic = -0.5;
  std::vector<Sample> result;
  const auto add = [&](std::int64_t n, std::int64_t channels, const ResizeAttributes& attributes) {
    Shape shape = {n, channels};
    for (const std::int64_t size : backward ? attributes.to : attributes.from) shape.push_back(size);
    result.push_back({.inputs = {shape}, .attributes = attributes});
  };
  add(2, 3, attributes_of({5}, {7}, "nearest"));
  add(1, 2, attributes_of({7}, {3}, "linear"));
  add(2, 8, attributes_of({4, 3}, {8, 6}, "nearest"));
  add(2, 8, attributes_of({4, 3}, {8, 6}, "linear"));
  add(1, 12, attributes_of({5, 4}, {7, 4}, "linear", /*align_corners=*/true));
  add(1, 21, attributes_of({4, 3}, {8, 8}, "linear"));
  add(1, 6, attributes_of({2, 5}, {37, 3}, "linear"));
  add(1, 3, attributes_of({3, 2}, {7, 20}, "nearest"));
  add(1, 58, attributes_of({2, 2}, {3, 4}, "linear"));
  add(1, 116, attributes_of({1, 2}, {2, 3}, "nearest"));
  add(1, 3, attributes_of({3, 4}, {7, 5}, "cubic"));
  add(2, 4, attributes_of({6, 7}, {4, 3}, "cubic", /*align_corners=*/true));
  add(1, 2, attributes_of({1, 2}, {19, 1}, "linear"));
  add(1, 16, attributes_of({2, 3, 2}, {4, 6, 4}, "linear"));
  add(2, 1, attributes_of({3, 4, 5}, {2, 4, 9}, "linear"));
  add(1, 8, attributes_of({4, 3, 2}, {3, 5, 2}, "nearest"));
  add(1, 2, attributes_of({2, 3, 2}, {3, 2, 4}, "cubic"));
  add(2, 3, half_pixel);
  add(1, 8, region);
  add(1, 2, inside);
  add(1, 3, attributes_of({1, 1}, {1, 1}, "cubic"));
  add(0, 3, attributes_of({2, 3}, {4, 3}, "linear"));
  return result;
}

/// The unit axis stays as it is.
Attributes resize_with_unit_axis(const Attributes& given) {
  const auto& of_line = given.as<ResizeAttributes>();
  ResizeAttributes result = of_line;
  result.from = result.to = {1};
  result.step[0] = 1, result.offset[0] = 0;
  result.add_axis(of_line.from[0], of_line.to[0], of_line.step[0], of_line.offset[0]);
  return result;
}

template <bool backward>
void add(Registry& registry, Operator entry) {
  entry.infer = [](const InferContext& call) { return infer(call, backward); };
  entry.samples_in = samples_of_input_0;
  entry.with_unit_axis = resize_with_unit_axis;
  entry.cpu = {.run = run<backward>, .any_layout_inputs = {0}, .any_layout_outputs = {0}, .one_layout = true};
  entry.samples = [] { return samples(backward); };
  registry.add<ResizeAttributes>(std::move(entry));
}

}  // namespace
}  // namespace ops
}  // namespace frit

FRIT_OPERATORS(resize) {
  add<false>(registry, {.name = "resize", .summary = "images of other sizes, interpolated", .inputs = {"input"}, .gradient = gradient});
  add<true>(registry, {.name = "resize_backward",
                       .summary = "each element's gradient from those of the elements that were made of it",
                       .inputs = {"gradient"},
                       .gradient = [](const GradientContext& call) { return emit("resize", {call.gradients[0]}, call.attributes); }});
}
