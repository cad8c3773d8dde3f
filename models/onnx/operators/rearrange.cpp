#include <algorithm>

#include "frit/models/onnx/operators/window.h"
#include "frit/ops/indexing/take_along_axis.h"

// Operators that bring elements to other places of an image: PyTorch's fold, max_unpool and affine_grid.

namespace frit::onnx {
namespace {

/// (1, 1, ...): one element of each block, whose number its channel is, as the taps of a transposed convolution in groups.
Value one_tap_a_channel(const Call& call, const Dims& block, std::int64_t channels, DType dtype) {
  const std::int64_t size = element_count(block);
  const Value places = positions(call, size, 0, 2, DType::i64), taps = positions(call, size, 1, 2, DType::i64);
  Shape shape = {channels * size, 1};
  for (const std::int64_t length : block) shape.push_back(length);
  return reshape(tile(cast(equal(places, taps), dtype), {channels, 1}), shape);
}

/// (N, C * block, L) -> (N, C, ...): each column is a block of the image, and where blocks overlap they add up.
Values image_of_columns(const Call& call) {
  const Value x = call[0];
  const Sizes sizes = call.integers(1), block = call.integers(2);
  const auto rank = static_cast<int>(block.size());
  call.require_support(x.rank() == 3 && (rank == 2 || rank == 3) && sizes.size() == block.size(), "columns of shape ", x.shape(),
                       " and blocks of ", rank, " axes in images of ", sizes.size());
  for (int i = 0; i < 2 * rank; ++i) {
    const std::int64_t size = (i < rank ? sizes : block)[static_cast<std::size_t>(i % rank)];
    call.require_support(size >= 1 && size <= longest_list, "a size is ", size);
  }
  const std::int64_t elements = element_count(Dims(block));
  call.require_support(elements <= 1024 && x.dim(1) % elements == 0, x.dim(1), " channels of blocks of ", elements, " elements");
  const std::int64_t channels = x.dim(1) / elements;
  Shape image = {x.dim(0), channels}, columns = {x.dim(0), x.dim(1)};
  for (const std::int64_t size : sizes) image.push_back(size);
  const Window window = window_of(call, image, block);
  const Dims extent = window.extent();
  Dims extra = Dims::filled(rank, 0);
  for (int i = 0; i < rank; ++i) {
    const std::int64_t room = image[i + 2] + window.before[i] + window.after[i] - extent[i];
    call.require_support(room >= 0 && window.stride[i] > 0, "the block is larger than the padded image");
    columns.push_back(room / window.stride[i] + 1);
    extra[i] = room % window.stride[i];
  }
  call.require_support(element_count(columns) == x.type().elements(), "columns of shape ", x.shape(), " in an image of ", image);
  const ConvolutionOptions options{.stride = window.stride, .output_padding = extra, .dilation = window.dilation, .groups = channels};
  const Value taps = one_tap_a_channel(call, window.kernel, channels, x.dtype()), places = reshape(x, columns);
  Value y = rank == 3 ? conv_transpose3d(places, taps, {}, options) : conv_transpose2d(places, taps, {}, options);
  for (int i = 0; i < rank; ++i) y = slice(y, i + 2, window.before[i], y.dim(i + 2) - window.after[i]);
  return {y};
}

/// Elements to the places that MaxPool's indices name, in an image of the size that it read; zeros elsewhere, and after it up to a larger
/// size that is asked for.
Values unpooled(const Call& call) {
  const Value x = call[0];
  const Window window = window_of(call, x.shape());
  const Dims extent = window.extent();
  Shape image = x.shape();
  for (int axis = 2; axis < x.rank(); ++axis) {
    const int i = axis - x.rank() + window.rank();
    call.require_support(window.stride[i] >= extent[i], "windows that overlap");
    image[axis] = (image[axis] - 1) * window.stride[i] + extent[i] - window.before[i] - window.after[i];
    call.require_support(image[axis] > 0, "the image has no elements");
  }
  const Value all = ops::put_along_axis(reshape(x, {-1}), reshape(call[1], {-1}), 0, element_count(image), /*keep_dims=*/true);
  const Dims before = Dims::filled(x.rank(), 0);
  Dims after = before;
  const Shape whole = call.has_input(2) ? to_shape(call, call.integers(2)) : image;
  call.require_support(whole.rank() == x.rank(), "output_shape has ", whole.rank(), " numbers");
  for (int axis = 0; axis < x.rank(); ++axis) {
    after[axis] = whole[axis] - image[axis];
    call.require_support(after[axis] >= 0, "output_shape is smaller than ", image);
  }
  return {padded(reshape(all, image), before, after, 0)};
}

/// (N, H, W, 2) or (N, D, H, W, 3): the places, from -1 to 1, that grid_sample is to read, by a matrix for each image.
Values affine_grid(const Call& call) {
  const Value theta = call[0];
  const Sizes sizes = call.integers(1);
  const int rank = static_cast<int>(sizes.size()) - 2;
  call.require_support((rank == 2 || rank == 3) && theta.rank() == 3 && theta.dim(1) == rank && theta.dim(2) == rank + 1,
                       "matrices of shape ", theta.shape(), " for images of ", rank, " axes");
  const bool align_corners = call.integer("align_corners", 0) != 0;
  Shape shape = Shape::filled(rank + 2, 1);
  shape[0] = theta.dim(0), shape[rank + 1] = rank;
  const auto column = [&](int i) { return reshape(select(theta, 2, i), shape); };
  Value grid = column(rank);
  for (int i = 0; i < rank; ++i) {  // columns are of x, y, z, and the axis of x is the last
    const std::int64_t size = sizes[sizes.size() - 1 - static_cast<std::size_t>(i)];
    const double steps = static_cast<double>(std::max<std::int64_t>(1, align_corners ? size - 1 : size));
    const Value place = positions(call, size, rank - i, rank + 2, theta.dtype());
    const double first = !align_corners ? 1 / steps - 1 : size > 1 ? -1 : 0;
    grid = grid + (place * (2 / steps) + first) * column(i);
  }
  return {grid};
}

}  // namespace

void add_rearrangements(OperatorTable& table) {
  table["Col2Im"] = image_of_columns;
  table["MaxUnpool"] = unpooled;
  table["AffineGrid"] = affine_grid;
}

}  // namespace frit::onnx
