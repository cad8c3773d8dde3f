#include "frit/ops/pool/pool.h"
#include "frit/ops/shape/image_axes.h"

namespace frit {
namespace {

Value pool1d(const char* name, Value (*pool2d)(Value, const PoolOptions&), Value input, PoolOptions o) {
  require(o.kernel_size.rank() == 1, name, ": kernel_size has ", o.kernel_size.rank(), " numbers, expected 1");
  o.kernel_size = {1, o.kernel_size[0]};
  o.stride = ops::after_unit(o.stride, 1, name, "stride");
  o.padding = ops::after_unit(o.padding, 0, name, "padding");
  o.dilation = ops::after_unit(o.dilation, 1, name, "dilation");
  return ops::without_unit_axis(pool2d(ops::with_unit_axis(input, name), o));
}

}  // namespace

Value max_pool1d(Value input, const PoolOptions& options) { return pool1d("max_pool1d", max_pool2d, input, options); }
Value avg_pool1d(Value input, const PoolOptions& options) { return pool1d("avg_pool1d", avg_pool2d, input, options); }

}  // namespace frit
