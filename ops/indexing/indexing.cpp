#include "frit/ops/indexing/indexing.h"

#include "frit/ops/elementwise/compare.h"
#include "frit/ops/indexing/take_along_axis.h"
#include "frit/ops/shape/sizes.h"

namespace frit {
namespace {

Value as_indices(Value indices, const char* what) {
  require(indices.dtype() == DType::i64 || indices.dtype() == DType::i32, what, ": indices must be i64 or i32, got ", indices.type());
  return cast(indices, DType::i64);
}

}  // namespace

Value gather(Value x, std::int64_t axis, Value indices) {
  const int along = normalize_axis(axis, x.rank(), "gather");
  Shape expected = x.shape();
  if (indices.rank() == x.rank()) expected[along] = indices.dim(along);
  require(indices.shape() == expected, "gather: indices must have the input's shape ", x.shape(), " but for axis ", along, ", got ",
          indices.shape());
  return ops::take_along_axis(x, as_indices(indices, "gather"), along, /*keep_dims=*/true);
}

Value index_select(Value x, std::int64_t axis, Value indices) {
  const int along = normalize_axis(axis, x.rank(), "index_select");
  Shape line = Dims::filled(x.rank(), 1);
  line[along] = -1;
  const Value taken = ops::take_along_axis(x, reshape(as_indices(indices, "index_select"), line), along, /*keep_dims=*/true);
  if (indices.rank() == 1) return taken;
  std::vector<Size> sizes = ops::sizes_of(x), own = ops::sizes_of(indices);
  sizes.insert(sizes.erase(sizes.begin() + along), own.begin(), own.end());
  return ops::reshape_to(taken, sizes);
}

Value embedding(Value indices, Value weight) {
  require(weight.rank() == 2, "embedding: weight must be (V, D), got ", weight.shape());
  return index_select(weight, 0, indices);
}

Value one_hot(Value indices, std::int64_t classes, DType dtype, std::int64_t axis) {
  require(classes >= 0, "one_hot: classes must not be negative, got ", classes);
  const Value places = as_indices(indices, "one_hot");
  return ops::put_along_axis(cast(equal(places, places), dtype), places, normalize_axis(axis, indices.rank() + 1, "one_hot"), classes,
                             /*keep_dims=*/false);
}

}  // namespace frit
