#include <array>

#include "frit/ops/linear/axis_product.h"
#include "frit/ops/pool/pool.h"
#include "frit/ops/reduction/reduction.h"
#include "frit/ops/shape/shape_ops.h"

namespace frit {
namespace {

/// Output o of an axis is of the elements floor(o from / to) ... ceil((o + 1) from / to) - 1.
struct Windows {
  std::int64_t from, to;

  std::int64_t begin(std::int64_t o) const { return o * from / to; }
  std::int64_t end(std::int64_t o) const { return ((o + 1) * from + to - 1) / to; }
};

using PoolAxis = Value (*)(Value, int, const Windows&);

/// Axes are pooled from the last on, so that of equal maxima the first in row-major order is taken.
Value adaptive_pool(const char* name, Value input, const Dims& output_size, const std::array<ops::Pool, 3>& pools, PoolAxis pool_axis) {
  const int images = input.rank() - 2;
  require(images >= 1 && images <= 3, name, ": input must be (N, C, ...) with 1 to 3 image axes, got ", input.shape());
  require(output_size.rank() == 1 || output_size.rank() == images, name, ": output_size has ", output_size.rank(),
          " numbers, expected 1 or ", images, " (input ", input.shape(), ")");
  Dims kernel;
  std::vector<Windows> axes;
  bool equal = true;
  for (int i = 0; i < images; ++i) {
    const Windows windows{input.dim(i + 2), output_size[output_size.rank() == 1 ? 0 : i]};
    require(windows.from > 0 && windows.to > 0, name, ": axis ", i + 2, " of ", windows.from, " cannot become ", windows.to, " (input ",
            input.shape(), ")");
    equal = equal && windows.from % windows.to == 0;
    kernel.push_back(windows.from / windows.to);
    axes.push_back(windows);
  }
  if (equal) return pools[static_cast<std::size_t>(images - 1)](input, kernel);
  for (int i = images - 1; i >= 0; --i) {
    const Windows& windows = axes[static_cast<std::size_t>(i)];
    if (windows.from != windows.to) input = pool_axis(input, i + 2, windows);
  }
  return input;
}

Value maximum_of(Value x, int axis, const Windows& windows) {
  require(windows.to <= 1 << 16, "adaptive_max_pool: axis ", axis, " would be made of ", windows.to, " slices, at most 65536 are taken");
  Values parts;
  for (std::int64_t o = 0; o < windows.to; ++o) {
    parts.push_back(max(slice(x, axis, windows.begin(o), windows.end(o)), Dims{axis}, /*keep_dims=*/true));
  }
  return concatenate(parts, axis);
}

Value mean_of(Value x, int axis, const Windows& windows) {
  ops::Matrix matrix("adaptive_avg_pool", windows.to, windows.from);
  for (std::int64_t o = 0; o < windows.to; ++o) {
    const std::int64_t begin = windows.begin(o), end = windows.end(o);
    for (std::int64_t i = begin; i < end; ++i) matrix.at(o, i) = 1 / static_cast<double>(end - begin);
  }
  return ops::axis_product(x, axis, matrix);
}

}  // namespace

Value adaptive_avg_pool(Value input, const Dims& output_size) {
  return adaptive_pool("adaptive_avg_pool", input, output_size, {avg_pool1d, avg_pool2d, avg_pool3d}, mean_of);
}

Value adaptive_max_pool(Value input, const Dims& output_size) {
  return adaptive_pool("adaptive_max_pool", input, output_size, {max_pool1d, max_pool2d, max_pool3d}, maximum_of);
}

}  // namespace frit
