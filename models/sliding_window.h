#pragma once

#include <functional>
#include <vector>

#include "frit/core/tensor.h"

namespace frit {

class Predictor;

struct SlidingWindowOptions {
  Shape window = {};            ///< the size of a window on each image axis
  double overlap = 0.5;         ///< the part of a window that the next one shares with it at least, from 0 to below 1
  std::int64_t batch_size = 1;  ///< windows that are computed at a time
};

/// Windows along one axis of an image: where each begins, and what each place of each counts for. A place's shares, of all windows that
/// cover it, are 1 together.
struct WindowsOfAxis {
  std::vector<std::int64_t> starts;         ///< in ascending order; negative where the window is larger than the image, and lies around it
  std::vector<std::vector<double>> shares;  ///< of each window, for each of its places

  /// As many windows as are needed for steps of at most window * (1 - overlap), at even distances, the first and the last at the ends. They
  /// count as F. Isensee et al. have it in nnU-Net (2021): by a Gaussian around their middle, with a deviation of an eighth of the window.
  WindowsOfAxis(std::int64_t length, std::int64_t window, double overlap);
};

/// What a network that keeps the size of its image says of windows (n, channels, window): (n, values, window).
using PredictWindows = std::function<Tensor(const Tensor& windows)>;

/// The output (N, values, image axes) for an input (N, channels, image axes) on the CPU, computed window by window and blended where these
/// overlap, for images of any number of axes that are too large to be computed at once; beyond the image's ends a window has zeros. Always
/// the same bits, as the windows are added in their order. f64 if the windows are, otherwise f32. Throws ErrorKind::argument for options
/// that do not fit the input, and for a network that does not keep the size.
Tensor predict_by_windows(const PredictWindows& predict, const Tensor& input, const SlidingWindowOptions& options);
/// Likewise of a checkpoint's model.
Tensor predict_by_windows(Predictor& predictor, const Tensor& input, const SlidingWindowOptions& options);

}  // namespace frit
