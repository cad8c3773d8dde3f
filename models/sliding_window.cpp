#include "frit/models/sliding_window.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "frit/models/predictor.h"

namespace frit {
namespace {

Shape image_of(const Shape& shape) { return Shape(std::span(shape.begin(), shape.end()).subspan(2)); }

Shape joined(std::int64_t first, std::int64_t second, const Shape& rest) {
  Shape shape{first, second};
  for (const std::int64_t size : rest) shape.push_back(size);
  return shape;
}

void check(const Tensor& input, const SlidingWindowOptions& o) {
  require(input.defined() && input.rank() >= 3 && input.device() == Device::cpu(),
          "sliding windows: expected an input (N, C, image axes) on cpu");
  require(o.window.rank() == input.rank() - 2, "sliding windows: a window of ", o.window, " for an image of ", input.rank() - 2,
          " axes (input ", input.shape(), ')');
  for (int axis = 0; axis < o.window.rank(); ++axis) {
    constexpr std::int64_t most = 1 << 20;
    require(o.window[axis] >= 1 && o.window[axis] <= most, "sliding windows: a window of ", o.window, ", expected sizes from 1 to ", most);
    require(input.dim(axis + 2) >= 1, "sliding windows: the image has no elements (input ", input.shape(), ')');
  }
  require(o.overlap >= 0 && o.overlap < 1, "sliding windows: an overlap of ", o.overlap, ", expected a part from 0 to below 1");
  require(o.batch_size >= 1, "sliding windows: ", o.batch_size, " windows at a time, expected 1 or more");
}

/// All windows of an image, numbered with the last axis innermost.
class Grid {
 public:
  Grid(const Shape& image, const Shape& window, double overlap) : image_(image), window_(window) {
    for (int axis = 0; axis < window.rank(); ++axis) axes_.emplace_back(image[axis], window[axis], overlap);
  }

  std::int64_t windows() const {
    std::int64_t count = 1;
    for (const WindowsOfAxis& axis : axes_) count *= std::ssize(axis.starts);
    return count;
  }

  /// Calls `visit(place in the image, place in the window, length, share)` for each line of the window that lies in the image; the share is
  /// what all but the last axis make of it.
  template <class Visit>
  void for_each_line(std::int64_t index, const Visit& visit) const {
    visit_axis(0, place(index), 0, 0, 1.0, visit);
  }
  /// What the last axis makes of a line, from the first place in the image on.
  const double* last_shares(std::int64_t index) const {
    const WindowsOfAxis& axis = axes_.back();
    const auto k = static_cast<std::size_t>(index % std::ssize(axis.starts));
    return axis.shares[k].data() + std::max<std::int64_t>(0, -axis.starts[k]);
  }

 private:
  /// Which window of each axis it is.
  std::vector<std::size_t> place(std::int64_t index) const {
    std::vector<std::size_t> place(axes_.size());
    for (std::size_t axis = axes_.size(); axis-- > 0; index /= std::ssize(axes_[axis].starts)) {
      place[axis] = static_cast<std::size_t>(index % std::ssize(axes_[axis].starts));
    }
    return place;
  }

  template <class Visit>
  void visit_axis(std::size_t axis, const std::vector<std::size_t>& place, std::int64_t image, std::int64_t window, double share,
                  const Visit& visit) const {
    const int a = static_cast<int>(axis);
    const std::int64_t start = axes_[axis].starts[place[axis]];
    const std::int64_t begin = std::max<std::int64_t>(start, 0), end = std::min(start + window_[a], image_[a]);
    image *= image_[a];
    window *= window_[a];
    if (axis + 1 == axes_.size()) return visit(image + begin, window + begin - start, end - begin, share);
    const std::vector<double>& shares = axes_[axis].shares[place[axis]];
    for (std::int64_t i = begin; i < end; ++i) {
      visit_axis(axis + 1, place, image + i, window + i - start, share * shares[static_cast<std::size_t>(i - start)], visit);
    }
  }

  Shape image_, window_;
  std::vector<WindowsOfAxis> axes_;
};

/// The windows `first`, first + 1, ... of all images, one after another, as (count, channels, window).
Tensor cut(const Tensor& input, const Grid& grid, std::int64_t first, std::int64_t count, const Shape& window) {
  const std::int64_t channels = input.dim(1), per_image = grid.windows(), size = element_count(window);
  const std::int64_t image_size = element_count(image_of(input.shape()));
  const auto element = static_cast<std::int64_t>(size_of(input.dtype()));
  const Tensor windows = Tensor::zeros(joined(count, channels, window), input.dtype());
  const auto* const from = static_cast<const std::byte*>(input.raw());
  auto* const to = static_cast<std::byte*>(windows.raw());
  for (std::int64_t k = 0; k < count; ++k) {
    const std::int64_t example = (first + k) / per_image;
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t image_begin = (example * channels + c) * image_size, window_begin = (k * channels + c) * size;
      grid.for_each_line((first + k) % per_image, [&](std::int64_t at, std::int64_t in_window, std::int64_t length, double) {
        std::memcpy(to + (window_begin + in_window) * element, from + (image_begin + at) * element,
                    static_cast<std::size_t>(length * element));
      });
    }
  }
  return windows;
}

/// Adds what was said of windows to the whole, each place by its share.
template <class T>
void blend(const Tensor& said, const Tensor& whole, const Grid& grid, std::int64_t first) {
  const std::int64_t values = whole.dim(1), per_image = grid.windows();
  const std::int64_t size = element_count(image_of(said.shape())), image_size = element_count(image_of(whole.shape()));
  for (std::int64_t k = 0; k < said.dim(0); ++k) {
    const std::int64_t index = (first + k) % per_image, example = (first + k) / per_image;
    const double* const shares = grid.last_shares(index);
    for (std::int64_t v = 0; v < values; ++v) {
      const T* const from = said.data<T>() + (k * values + v) * size;
      T* const to = whole.data<T>() + (example * values + v) * image_size;
      grid.for_each_line(index, [&](std::int64_t at, std::int64_t in_window, std::int64_t length, double share) {
        for (std::int64_t i = 0; i < length; ++i) to[at + i] += static_cast<T>(share * shares[i]) * from[in_window + i];
      });
    }
  }
}

}  // namespace

WindowsOfAxis::WindowsOfAxis(std::int64_t length, std::int64_t window, double overlap) {
  const std::int64_t room = length - window;
  if (room <= 0) {
    starts = {-(-room / 2)};
  } else {
    const double step = std::max(1.0, static_cast<double>(window) * (1 - overlap));
    const auto steps = static_cast<std::int64_t>(std::ceil(static_cast<double>(room) / step));
    for (std::int64_t i = 0; i <= steps; ++i) {
      starts.push_back(std::llround(static_cast<double>(room) * static_cast<double>(i) / static_cast<double>(steps)));
    }
  }
  std::vector<double> bell, total(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < window; ++i) {
    const double distance = (static_cast<double>(i) - static_cast<double>(window - 1) / 2) / (static_cast<double>(window) / 8);
    bell.push_back(std::exp(-distance * distance / 2));
  }
  const auto for_each_place = [&](const auto& visit) {
    for (std::size_t k = 0; k < starts.size(); ++k) {
      for (std::int64_t i = 0; i < window; ++i) {
        const std::int64_t place = starts[k] + i;
        if (place >= 0 && place < length) visit(k, static_cast<std::size_t>(i), static_cast<std::size_t>(place));
      }
    }
  };
  shares.assign(starts.size(), std::vector<double>(static_cast<std::size_t>(window)));
  for_each_place([&](std::size_t, std::size_t i, std::size_t place) { total[place] += bell[i]; });
  for_each_place([&](std::size_t k, std::size_t i, std::size_t place) { shares[k][i] = bell[i] / total[place]; });
}

Tensor predict_by_windows(const PredictWindows& predict, const Tensor& input, const SlidingWindowOptions& o) {
  check(input, o);
  const Tensor dense = input.contiguous();
  const Shape image = image_of(input.shape());
  const Grid grid(image, o.window, o.overlap);
  const std::int64_t windows = grid.windows() * input.dim(0);
  Tensor whole;
  for (std::int64_t first = 0; first == 0 || first < windows; first += o.batch_size) {
    const std::int64_t count = std::min(o.batch_size, windows - first);
    Tensor said = predict(cut(dense, grid, first, count, o.window));
    require(said.rank() == o.window.rank() + 2 && said.dim(0) == count && image_of(said.shape()) == o.window,
            "sliding windows: the network makes ", said.shape(), " of ", joined(count, input.dim(1), o.window), ", expected (N, values, ",
            o.window, ')');
    said = said.to(said.dtype() == DType::f64 ? DType::f64 : DType::f32).contiguous();
    if (!whole.defined()) whole = Tensor::zeros(joined(input.dim(0), said.dim(1), image), said.dtype());
    require(said.dim(1) == whole.dim(1), "sliding windows: the network makes ", said.dim(1), " values of a window, and ", whole.dim(1),
            " of another");
    dispatch_floating(said.dtype(), [&]<class T>() { blend<T>(said, whole, grid, first); });
  }
  return whole;
}

Tensor predict_by_windows(Predictor& predictor, const Tensor& input, const SlidingWindowOptions& options) {
  return predict_by_windows([&](const Tensor& windows) { return predictor(windows); }, input, options);
}

}  // namespace frit
