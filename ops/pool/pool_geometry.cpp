#include "frit/ops/pool/pool_geometry.h"

#include <limits>

#include "frit/ops/shape/image_axes.h"

namespace frit {

void PoolOptions::fields(FieldVisitor& v) {
  v.field("kernel_size", kernel_size);
  v.field("stride", stride);
  v.field("padding", padding);
  v.field("dilation", dilation);
  v.field("ceil_mode", ceil_mode);
  v.field("count_include_pad", count_include_pad);
}

namespace ops {
namespace {

Dims filled_out(const Dims& given, int rank, const Dims& missing) {
  if (given.empty()) return missing;
  return given.rank() == 1 ? Dims::filled(rank, given[0]) : given;
}

void require_range(const char* name, const Dims& dims, int rank, std::int64_t least) {
  require(dims.rank() == rank, name, " has ", dims.rank(), " numbers, expected 1 or ", rank);
  for (const std::int64_t value : dims) {
    require(value >= least && value <= std::numeric_limits<std::int32_t>::max(), name, " must be in [", least, ", 2^31), got ", dims);
  }
}

void require_options(const PoolOptions& options, int rank) {
  require_range("kernel_size", options.kernel_size, rank, 1);
  require_range("stride", options.stride, rank, 1);
  require_range("padding", options.padding, rank, 0);
  require_range("dilation", options.dilation, rank, 1);
  for (int axis = 0; axis < rank; ++axis) {
    require(options.padding[axis] <= options.kernel_size[axis] / 2, "padding must be at most half of kernel_size, got padding ",
            options.padding, " and kernel_size ", options.kernel_size);
  }
}

/// 0 if the kernel does not fit.
std::int64_t output_size(std::int64_t image, std::int64_t kernel, std::int64_t stride, std::int64_t padding, std::int64_t dilation,
                         bool ceil_mode) {
  const std::int64_t room = image + 2 * padding - dilation * (kernel - 1) - 1;
  if (room < 0 && (!ceil_mode || room <= -stride)) return 0;
  const std::int64_t size = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  // A window that would begin in the padding on the right is left out.
  return ceil_mode && (size - 1) * stride >= image + padding ? size - 1 : size;
}

}  // namespace

PoolOptions canonical_options(PoolOptions options, int image_rank) {
  options.kernel_size = filled_out(options.kernel_size, image_rank, {});
  options.stride = filled_out(options.stride, image_rank, options.kernel_size);
  options.padding = filled_out(options.padding, image_rank, Dims::filled(image_rank, 0));
  options.dilation = filled_out(options.dilation, image_rank, Dims::filled(image_rank, 1));
  return options;
}

PoolGeometry pool_geometry(const Shape& input, const PoolOptions& given, int image_rank) {
  require(input.rank() == image_rank + 2, "expected input ", image_rank == 2 ? "(N, C, H, W)" : "(N, C, D, H, W)", ", got ", input);
  for (int axis = 1; axis < input.rank(); ++axis) require(input[axis] > 0, "only the batch may be empty, got input ", input);
  const PoolOptions options = canonical_options(given, image_rank);
  require_options(options, image_rank);
  PoolGeometry g{.planes = input[0] * input[1]};
  Dims output;
  for (int axis = 0; axis < image_rank; ++axis) {
    const std::size_t i = static_cast<std::size_t>(axis + 3 - image_rank);
    g.image[i] = input[axis + 2];
    g.kernel[i] = options.kernel_size[axis];
    g.stride[i] = options.stride[axis];
    g.padding[i] = options.padding[axis];
    g.dilation[i] = options.dilation[axis];
    g.output[i] = output_size(g.image[i], g.kernel[i], g.stride[i], g.padding[i], g.dilation[i], options.ceil_mode);
    output.push_back(g.output[i]);
  }
  require(*std::min_element(output.begin(), output.end()) > 0, "output size ", output, " is too small (input ", input, ", kernel_size ",
          options.kernel_size, ", stride ", options.stride, ", padding ", options.padding, ", dilation ", options.dilation, ")");
  return g;
}

std::int64_t row_grain(const PoolGeometry& g) {
  std::int64_t cost = g.output[2];
  for (std::size_t axis = 0; axis < 3; ++axis) cost *= std::min(g.kernel[axis], g.image[axis]);
  return std::max<std::int64_t>(1, 32768 / cost);
}

Shape pool_output_shape(const Shape& input, const PoolGeometry& geometry) {
  Shape shape = input;
  for (int axis = 2; axis < shape.rank(); ++axis) shape[axis] = geometry.output[static_cast<std::size_t>(axis + 3 - shape.rank())];
  return shape;
}

Shape pool_input_shape(const InferContext& call, int image_rank) {
  const PoolBackwardAttributes& attributes = call.as<PoolBackwardAttributes>();
  const Shape& gradient = call.shape(0);
  call.require(gradient.rank() == image_rank + 2, "gradient must have rank ", image_rank + 2, ", got ", gradient);
  Shape input{gradient[0], gradient[1]};
  for (const std::int64_t size : attributes.image) input.push_back(size);
  const Shape output = pool_output_shape(input, pool_geometry(input, attributes.options, image_rank));
  call.require(gradient == output, "gradient must have shape ", output, ", got ", gradient);
  return input;
}

PoolBackwardAttributes pool_backward_attributes(const Shape& input, const PoolOptions& options) {
  return {.options = options, .image = Dims(std::span(input.begin() + 2, input.end()))};
}

Value Pool::operator()(Value input, const PoolOptions& options) const {
  const auto name_for = [&](int image_rank) { return concat(maximum ? "max_pool" : "avg_pool", image_rank, 'd'); };
  PoolOptions o = options;
  if (maximum) o.count_include_pad = true;  // of no meaning here: equal calls get equal attributes
  if (axes > 1) return emit_one(name_for(axes), {input}, canonical_options(o, axes));
  const std::string text = name_for(1);
  const char* const name = text.c_str();
  require(o.kernel_size.rank() == 1, name, ": kernel_size has ", o.kernel_size.rank(), " numbers, expected 1");
  o.kernel_size = {1, o.kernel_size[0]};
  o.stride = after_unit(o.stride, 1, name, "stride");
  o.padding = after_unit(o.padding, 0, name, "padding");
  o.dilation = after_unit(o.dilation, 1, name, "dilation");
  return without_unit_axis(emit_one(name_for(2), {with_unit_axis(input, name)}, canonical_options(o, 2)));
}

std::vector<Sample> pool_samples(int image_rank, Fill fill) {
  const auto of = [fill](const Shape& shape, const PoolOptions& options) {
    return Sample{.inputs = {{shape, fill}}, .attributes = options};
  };
  if (image_rank == 3) {
    return {of({1, 2, 2, 4, 4}, {.kernel_size = {2}}), of({2, 1, 1, 1, 1}, {.kernel_size = {1}}),
            of({0, 2, 2, 2, 2}, {.kernel_size = {2}})};
  }
  return {of({2, 2, 4, 4}, {.kernel_size = {2}}),
          of({1, 2, 5, 7}, {.kernel_size = {3}, .stride = {2}, .padding = {1}}),
          of({1, 2, 7, 4}, {.kernel_size = {2, 1}, .stride = {3, 3}}),
          of({2, 8, 7, 5}, {.kernel_size = {3}, .stride = {2}, .padding = {1}}),
          of({1, 2, 12, 13}, {.kernel_size = {12, 13}}),
          of({1, 3, 1, 1}, {.kernel_size = {1}}),
          of({1, 43, 3, 3}, {.kernel_size = {2}, .stride = {1}}),
          of({2, 3, 1, 1}, {.kernel_size = {2}, .stride = {1}, .padding = {1}}),
          of({0, 2, 4, 4}, {.kernel_size = {2}})};
}

}  // namespace ops
}  // namespace frit
