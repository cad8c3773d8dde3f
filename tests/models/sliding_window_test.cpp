#include "frit/models/sliding_window.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/io/file_testing.h"
#include "frit/core/random.h"
#include "frit/models/predictor.h"
#include "frit/ops/convolution/convolution.h"
#include "models/saved_model.h"

namespace frit {
namespace {

Tensor noise(const Shape& shape, DType dtype = DType::f32) {
  const Tensor tensor = Tensor::empty(shape, dtype);
  fill_normal(tensor, 1, 2, 5, 0);
  return tensor;
}

/// A convolution of 3 a side that keeps the image's size, and notes how many windows it is given at a time.
struct WindowedNetwork {
  Tensor weight;
  std::vector<std::int64_t> batches = {};

  Tensor operator()(const Tensor& windows) {
    batches.push_back(windows.dim(0));
    const int rank = windows.rank() - 2;
    const Dims padding = Dims::filled(rank, 1);
    Graph graph;
    const Value x = graph.input("x", windows.shape(), windows.dtype()), w = graph.input("w", weight.shape(), weight.dtype());
    graph.output("y", rank == 2 ? conv2d(x, w, {}, {.padding = padding}) : conv3d(x, w, {}, {.padding = padding}));
    Program program(std::move(graph), std::make_shared<State>());
    return program.run({{"x", windows}, {"w", weight}}).output("y").clone();
  }
};

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double largest = x.size() == y.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < x.size() && i < y.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

TEST(WindowsOfAxis, LieAsInNnUNet) {
  const auto starts = [](std::int64_t length, std::int64_t window, double overlap) {
    return WindowsOfAxis(length, window, overlap).starts;
  };
  using Starts = std::vector<std::int64_t>;
  EXPECT_EQ(starts(10, 4, 0.5), (Starts{0, 2, 4, 6}));
  EXPECT_EQ(starts(11, 4, 0.5), (Starts{0, 2, 4, 5, 7}));  // 7 / 4 apart, rounded
  EXPECT_EQ(starts(12, 4, 0), (Starts{0, 4, 8}));
  EXPECT_EQ(starts(13, 4, 0), (Starts{0, 3, 6, 9}));
  EXPECT_EQ(starts(4, 4, 0.5), (Starts{0}));
  EXPECT_EQ(starts(5, 4, 0.5), (Starts{0, 1}));
  EXPECT_EQ(starts(1, 4, 0.5), (Starts{-1}));
  EXPECT_EQ(starts(2, 4, 0.5), (Starts{-1}));
  EXPECT_EQ(starts(5, 2, 0.95), (Starts{0, 1, 2, 3})) << "no step is less than one";
  EXPECT_EQ(starts(110, 40, 0.5), (Starts{0, 18, 35, 53, 70}));
}

TEST(WindowsOfAxis, SharesOfAPlaceAreOneTogether) {
  for (const auto& [length, window, overlap] : std::vector<std::tuple<std::int64_t, std::int64_t, double>>{
           {10, 4, 0.5}, {11, 4, 0.5}, {100, 7, 0.25}, {100, 33, 0.9}, {3, 8, 0.5}, {1, 1, 0}, {200, 96, 0.5}}) {
    SCOPED_TRACE(concat(length, ' ', window, ' ', overlap));
    const WindowsOfAxis axis(length, window, overlap);
    std::vector<double> total(static_cast<std::size_t>(length));
    for (std::size_t k = 0; k < axis.starts.size(); ++k) {
      ASSERT_EQ(std::ssize(axis.shares[k]), window);
      for (std::int64_t i = 0; i < window; ++i) {
        const std::int64_t place = axis.starts[k] + i;
        const double share = axis.shares[k][static_cast<std::size_t>(i)];
        EXPECT_EQ(place >= 0 && place < length ? share > 0 : share == 0, true);
        if (share > 0) total[static_cast<std::size_t>(place)] += share;
      }
    }
    for (const double sum : total) EXPECT_NEAR(sum, 1, 1e-15);
  }
}

TEST(WindowsOfAxis, CountByAGaussianOfAnEighthOfTheWindow) {
  const WindowsOfAxis axis(12, 8, 0.5);  // at 0 and 4: place 5 is 1.5 from the middle of the first and 2.5 from that of the second
  EXPECT_EQ(axis.starts, (std::vector<std::int64_t>{0, 4}));
  const double first = std::exp(-1.5 * 1.5 / 2), second = std::exp(-2.5 * 2.5 / 2);
  EXPECT_NEAR(axis.shares[0][5], first / (first + second), 1e-15);
  EXPECT_NEAR(axis.shares[1][1], second / (first + second), 1e-15);
  EXPECT_EQ(axis.shares[0][0], 1);
}

/// Per place of an axis, whether no window that covers it has its edge there, except where the image ends too.
std::vector<bool> away_from_edges(std::int64_t length, std::int64_t window, double overlap) {
  std::vector<bool> away(static_cast<std::size_t>(length), true);
  for (const std::int64_t start : WindowsOfAxis(length, window, overlap).starts) {
    if (start > 0) away[static_cast<std::size_t>(start)] = false;
    if (start + window < length) away[static_cast<std::size_t>(start + window - 1)] = false;
  }
  return away;
}

// A convolution of 3 a side is right in each window but at its outermost places, where it sees zeros instead of the image.
TEST(SlidingWindow, OfAConvolutionIsTheWholeImagesAwayFromTheWindowsEdges) {
  struct Windows {
    Shape image, window;
    double overlap;
  };
  const Windows cases[] = {{{2, 2, 30, 26}, {12, 8}, 0.5},
                           {{1, 2, 31, 40}, {10, 16}, 0.25},
                           {{1, 2, 14, 15, 18}, {6, 8, 6}, 0.5},
                           {{1, 2, 5, 30}, {9, 12}, 0.5},
                           {{2, 2, 9, 9, 9}, {16, 4, 9}, 0}};
  for (const Windows& c : cases) {
    SCOPED_TRACE(concat(c.image, " in windows of ", c.window));
    const int rank = c.window.rank();
    Shape weight = {3, 2};
    for (int axis = 0; axis < rank; ++axis) weight.push_back(3);
    for (const auto& [dtype, tolerance] : {std::pair(DType::f32, 1e-6), std::pair(DType::f64, 1e-14)}) {
      const Tensor image = noise(c.image, dtype);
      WindowedNetwork network{noise(weight, dtype)};
      const Tensor expected = network(image);
      const Tensor found = predict_by_windows(std::ref(network), image, {.window = c.window, .overlap = c.overlap, .batch_size = 3});
      ASSERT_EQ(found.shape(), expected.shape());
      EXPECT_EQ(found.dtype(), dtype);
      std::vector<std::vector<bool>> away;
      for (int axis = 0; axis < rank; ++axis) away.push_back(away_from_edges(c.image[axis + 2], c.window[axis], c.overlap));
      const std::vector<double> x = found.to_vector<double>(), y = expected.to_vector<double>();
      const double largest = std::abs(*std::max_element(y.begin(), y.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
      std::size_t compared = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        bool inside = true;
        std::size_t rest = i;
        for (int axis = rank; axis-- > 0; rest /= static_cast<std::size_t>(c.image[axis + 2])) {
          inside = inside && away[static_cast<std::size_t>(axis)][rest % static_cast<std::size_t>(c.image[axis + 2])];
        }
        if (!inside) continue;
        ++compared;
        ASSERT_NEAR(x[i], y[i], tolerance * largest) << "element " << i;
      }
      EXPECT_GT(4 * compared, x.size());
    }
  }
}

TEST(SlidingWindow, OfWhatSeesOnePlaceIsTheWholeImagesEverywhere) {
  const auto triple = [](const Tensor& windows) {
    const Tensor y = windows.clone();
    for (float& value : y.span<float>()) value = 3 * value - 1;
    return y;
  };
  const Tensor image = noise({2, 3, 20, 17}), expected = triple(image);
  for (const Shape& window : {Shape{8, 8}, Shape{16, 5}, Shape{20, 17}, Shape{64, 7}, Shape{1, 1}, Shape{33, 40}}) {
    for (const double overlap : {0.0, 0.5, 0.8}) {
      const Tensor found = predict_by_windows(triple, image, {.window = window, .overlap = overlap, .batch_size = 4});
      EXPECT_LE(largest_difference(found, expected), 1e-5) << window << ' ' << overlap;
    }
  }
  const Tensor turned = image.transpose(2, 3);  // of other strides, and a line of one axis
  EXPECT_LE(largest_difference(predict_by_windows(triple, turned, {.window = {6, 6}}), triple(turned.contiguous())), 1e-5);
  const Tensor line = image.reshape({2, 3, 340});
  EXPECT_LE(largest_difference(predict_by_windows(triple, line, {.window = {50}}), triple(line)), 1e-5);
}

TEST(SlidingWindow, AnImageOfOneWindowIsComputedAsItIs) {
  WindowedNetwork network{noise({3, 2, 3, 3})};
  const Tensor image = noise({1, 2, 9, 7});
  EXPECT_EQ(largest_difference(predict_by_windows(std::ref(network), image, {.window = {9, 7}}), network(image)), 0);
}

TEST(SlidingWindow, ComputesSoManyWindowsAtATimeAndAlwaysTheSameBits) {
  WindowedNetwork network{noise({3, 2, 3, 3})};
  const Tensor image = noise({2, 2, 20, 20});  // 9 windows each
  const auto run = [&](std::int64_t batch_size) {
    network.batches.clear();
    return predict_by_windows(std::ref(network), image, {.window = {10, 10}, .batch_size = batch_size}).to_vector<float>();
  };
  const std::vector<float> one = run(1);
  EXPECT_EQ(network.batches, std::vector<std::int64_t>(18, 1));
  EXPECT_EQ(run(1), one);
  EXPECT_EQ(run(4), one);
  EXPECT_EQ(network.batches, (std::vector<std::int64_t>{4, 4, 4, 4, 2}));
  EXPECT_EQ(run(100), one);
}

TEST(SlidingWindow, OfNoImagesIsEmpty) {
  const auto network = [](const Tensor& windows) { return Tensor::zeros({windows.dim(0), 5, 4, 4}); };
  EXPECT_EQ(predict_by_windows(network, Tensor::zeros({0, 2, 9, 9}), {.window = {4, 4}}).shape(), (Shape{0, 5, 9, 9}));
}

TEST(SlidingWindow, RefusesWhatDoesNotFit) {
  const Tensor image = Tensor::zeros({1, 2, 9, 9});
  const auto refused = [&](const std::string& message, const SlidingWindowOptions& options, const Tensor& input) {
    expect_error(ErrorKind::argument, message, [&] { predict_by_windows([](const Tensor& x) { return x; }, input, options); });
  };
  refused("sliding windows: a window of 4x4x4 for an image of 2 axes (input 1x2x9x9)", {.window = {4, 4, 4}}, image);
  refused("sliding windows: a window of 4x0, expected sizes from 1 to 1048576", {.window = {4, 0}}, image);
  refused("sliding windows: a window of 4x1048577, expected sizes from 1 to 1048576", {.window = {4, 1048577}}, image);
  refused("sliding windows: an overlap of 1, expected a part from 0 to below 1", {.window = {4, 4}, .overlap = 1}, image);
  refused("sliding windows: an overlap of nan, expected a part from 0 to below 1", {.window = {4, 4}, .overlap = NAN}, image);
  refused("sliding windows: 0 windows at a time, expected 1 or more", {.window = {4, 4}, .batch_size = 0}, image);
  refused("sliding windows: the image has no elements (input 1x2x0x9)", {.window = {4, 4}}, Tensor::zeros({1, 2, 0, 9}));
  refused("sliding windows: expected an input (N, C, image axes) on cpu", {.window = {4}}, Tensor::zeros({4, 4}));
  const auto halves = [](const Tensor& x) { return Tensor::zeros({x.dim(0), 5, 2, 2}); };
  expect_error(ErrorKind::argument, "sliding windows: the network makes 1x5x2x2 of 1x2x4x4, expected (N, values, 4x4)", [&] {
    predict_by_windows(halves, image, {.window = {4, 4}});
  });
}

class SlidingWindowOfAModel : public SavedModel {
 protected:
  SlidingWindowOfAModel() : SavedModel(make_model("unet3d", R"({"channels": [2, 3], "num_classes": 2})")) {}
};

TEST_F(SlidingWindowOfAModel, RunsThroughAPredictor) {
  Predictor predict(path_, {.device = Device::cpu()});
  const Tensor volume = input({1, 1, 8, 12, 8}, 1);
  const Tensor whole = predict_by_windows(predict, volume, {.window = {8, 12, 8}});
  EXPECT_EQ(whole.to_vector<float>(), expected(volume));
  EXPECT_EQ(predict_by_windows(predict, volume, {.window = {4, 8, 6}, .batch_size = 2}).shape(), (Shape{1, 2, 8, 12, 8}));
  expect_error(ErrorKind::argument, "input of model \"unet3d\"", [&] { predict_by_windows(predict, volume, {.window = {3, 8, 8}}); });
}

}  // namespace
}  // namespace frit
