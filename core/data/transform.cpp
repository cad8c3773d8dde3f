#include "frit/core/data/transform.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "frit/core/convert.h"

namespace frit {
namespace {

/// Numbers for the decisions of an Epoch, apart from those of datasets that this one reads.
constexpr std::uint64_t crop_decision = 0x100, flip_decision = 0x200;

Shape image_axes(const Dataset::Field& field) {
  require(field.shape.rank() >= 1, "the field \"", field.name, "\" is ", field.shape, ", expected (channels, image axes...)");
  Shape axes = field.shape;
  axes.erase(0);
  return axes;
}

bool ends_in(const Shape& shape, const Shape& axes) {
  return shape.rank() >= axes.rank() && std::equal(axes.begin(), axes.end(), shape.end() - axes.rank());
}

std::vector<Tensor> rows_for(const Dataset& dataset, std::size_t count) {
  std::vector<Tensor> rows;
  for (const Dataset::Field& field : dataset.fields()) {
    Shape shape = field.shape;
    shape.insert(0, static_cast<std::int64_t>(count));
    rows.push_back(Tensor::empty(shape, field.dtype));
  }
  return rows;
}

/// Copies the elements at `places` of the last axes; value() makes an element of one of the source's.
template <class From, class To, class Value>
class Gather {
 public:
  Gather(const std::vector<std::vector<std::int64_t>>& places, const Shape& from, const Value& value) : places_(places), value_(value) {
    strides_.assign(places.size(), 1);
    for (std::size_t axis = places.size(); axis-- > 1;) strides_[axis - 1] = strides_[axis] * from[static_cast<int>(axis)];
  }

  /// Returns where the next element is to go.
  To* operator()(const From* from, To* to, std::size_t axis = 0) const {
    if (axis == places_.size()) {
      *to = value_(*from);
      return to + 1;
    }
    const bool innermost = axis + 1 == places_.size();
    for (const std::int64_t place : places_[axis]) {
      if (place < 0) {
        to = std::fill_n(to, count_from(axis + 1), To{});
      } else if (innermost) {
        *to++ = value_(from[place]);
      } else {
        to = (*this)(from + place * strides_[axis], to, axis + 1);
      }
    }
    return to;
  }

 private:
  std::size_t count_from(std::size_t axis) const {
    std::size_t count = 1;
    for (; axis < places_.size(); ++axis) count *= places_[axis].size();
    return count;
  }

  const std::vector<std::vector<std::int64_t>>& places_;
  const Value& value_;
  std::vector<std::int64_t> strides_;
};

}  // namespace

ChannelStatistics channel_statistics(const Dataset& dataset) {
  require(dataset.size() > 0 && !dataset.fields().empty() && dataset.fields()[0].shape.rank() >= 1,
          "channel_statistics: needs examples of (channels, image axes...)");
  const auto channels = static_cast<std::size_t>(dataset.fields()[0].shape[0]);
  std::vector<double> sum(channels), squares(channels), pivot(channels);
  ChannelStatistics s{sum, sum, std::vector<double>(channels, INFINITY), std::vector<double>(channels, -INFINITY)};
  constexpr std::int64_t at_once = 64;
  double count = 0;
  for (std::int64_t begin = 0; begin < dataset.size(); begin += at_once) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(at_once, dataset.size() - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    const std::vector<Tensor> rows = rows_for(dataset, indices.size());
    dataset.read(indices, rows, {});
    const std::vector<float> values = rows[0].to_vector<float>();
    const std::size_t per_channel = values.size() / indices.size() / std::max<std::size_t>(channels, 1);
    count += static_cast<double>(indices.size() * per_channel);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t c = i / per_channel % channels;
      if (begin == 0 && i < channels * per_channel && i % per_channel == 0) pivot[c] = values[i];
      const double value = values[i], distance = value - pivot[c];
      sum[c] += distance;
      squares[c] += distance * distance;
      s.least[c] = std::min(s.least[c], value);
      s.largest[c] = std::max(s.largest[c], value);
    }
  }
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = sum[c] / count;
    s.mean[c] = pivot[c] + mean;
    s.deviation[c] = std::sqrt(std::max(0.0, squares[c] / count - mean * mean));
  }
  return s;
}

TransformDataset::TransformDataset(std::shared_ptr<const Dataset> source, const TransformOptions& options)
    : source_(std::move(source)), options_(options) {
  require(source_ != nullptr && !source_->fields().empty(), "TransformDataset: the dataset is null or has no fields");
  fields_ = source_->fields();
  before_ = image_axes(fields_[0]);
  const int rank = before_.rank();
  if (options_.padding.rank() == 1) options_.padding = Dims::filled(rank, options_.padding[0]);
  if (options_.padding.empty()) options_.padding = Dims::filled(rank, 0);
  require(options_.padding.rank() == rank, "a padding of ", options_.padding, " does not go with an image of ", before_);
  const Shape crop = options_.crop.empty() ? before_ : options_.crop;
  require(crop.rank() == rank, "a crop of ", crop, " does not go with an image of ", before_);
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t padding = options_.padding[axis], padded = before_[axis] + 2 * padding;
    require(padding >= 0, "a padding must not be negative, got ", options_.padding);
    require(crop[axis] >= 1 && crop[axis] <= padded, "a crop of ", crop, " does not fit into an image of ", before_, " with ",
            options_.padding, " of padding");
  }
  after_ = crop;
  for (const std::int64_t axis : options_.flip) {
    require(axis >= 0 && axis < rank, "cannot flip axis ", axis, " of an image of ", before_);
  }
  const auto channels = static_cast<std::size_t>(fields_[0].shape[0]);
  require(options_.subtract.size() == options_.divide.size(), "normalisation needs as many numbers to subtract as to divide by");
  require(options_.divide.empty() || options_.divide.size() == channels, "normalisation of ", options_.divide.size(),
          " channels, the image has ", channels);
  for (const double divisor : options_.divide) require(divisor != 0 && std::isfinite(divisor), "cannot divide by ", divisor);
  if (!options_.divide.empty()) fields_[0].dtype = DType::f32;
  for (Field& field : fields_) {
    const bool stays = std::find(options_.still.begin(), options_.still.end(), field.name) != options_.still.end();
    moves_.push_back(!stays && ends_in(field.shape, before_));
    if (moves_.back()) std::copy(after_.begin(), after_.end(), field.shape.end() - rank);
  }
}

std::vector<std::vector<std::int64_t>> TransformDataset::places(std::int64_t example, const Epoch& epoch) const {
  std::vector<std::vector<std::int64_t>> places;
  for (int axis = 0; axis < before_.rank(); ++axis) {
    const auto decision = static_cast<std::uint64_t>(axis);
    const std::int64_t room = before_[axis] + 2 * options_.padding[axis] - after_[axis];
    const std::int64_t begin = options_.random ? epoch.below(room + 1, crop_decision + decision, example) : room / 2;
    std::vector<std::int64_t>& here = places.emplace_back();
    for (std::int64_t i = 0; i < after_[axis]; ++i) {
      const std::int64_t place = begin + i - options_.padding[axis];
      here.push_back(place < before_[axis] ? std::max<std::int64_t>(place, -1) : -1);
    }
    const bool flips = std::find(options_.flip.begin(), options_.flip.end(), axis) != options_.flip.end();
    if (flips && options_.random && epoch.below(2, flip_decision + decision, example) == 1) std::reverse(here.begin(), here.end());
  }
  return places;
}

void TransformDataset::read(std::span<const std::int64_t> indices, std::span<const Tensor> batch, const Epoch& epoch) const {
  const std::vector<Tensor> rows = rows_for(*source_, indices.size());
  source_->read(indices, rows, epoch);
  for (std::size_t f = 0; f < fields_.size(); ++f) {
    const Shape& shape = source_->fields()[f].shape;
    if (!moves_[f]) {
      copy(batch[f], rows[f]);
      continue;
    }
    const auto images = static_cast<std::size_t>(element_count(shape) / std::max<std::int64_t>(element_count(before_), 1));
    const auto from_size = static_cast<std::size_t>(element_count(before_)), to_size = static_cast<std::size_t>(element_count(after_));
    dispatch_all(rows[f].dtype(), [&]<class From>() {
      const From* const from = rows[f].data<From>();
      for (std::size_t row = 0; row < indices.size(); ++row) {
        const auto where = places(indices[row], epoch);
        for (std::size_t image = 0; image < images; ++image) {
          const From* const source = from + (row * images + image) * from_size;
          const std::size_t to = (row * images + image) * to_size;
          if (f == 0 && !options_.divide.empty()) {
            const double subtract = options_.subtract[image], divide = options_.divide[image];
            const auto value = [&](From x) { return static_cast<float>((convert<double>(x) - subtract) / divide); };
            Gather<From, float, decltype(value)>(where, before_, value)(source, batch[f].data<float>() + to);
          } else {
            const auto value = [](From x) { return x; };
            Gather<From, From, decltype(value)>(where, before_, value)(source, batch[f].data<From>() + to);
          }
        }
      }
    });
  }
}

}  // namespace frit
