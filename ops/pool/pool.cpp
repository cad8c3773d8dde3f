#include "frit/ops/pool/pool.h"

#include "frit/ops/pool/pool_geometry.h"
#include "frit/ops/shape/image_axes.h"

namespace frit::ops {

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

}  // namespace frit::ops
