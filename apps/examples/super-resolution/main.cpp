// Twice the resolution in every direction: block C on magnetic resonance images. The network learns on the head `ch2` what the mean of
// 2x2x2 voxels has lost, and is measured on the brain of another head, of another species and another scanner, `inia19-t1-brain`, next to
// trilinear interpolation: PSNR = 10 log10(largest value squared / mean squared error), over all voxels.
//
//   super_resolution [STEPS [PICTURE [FOLDER]]]

#include <frit/frit.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>

#include "../picture.h"

using namespace frit;

namespace {

constexpr std::int64_t batch_size = 4;
constexpr std::int64_t patch = 32;
constexpr std::int64_t features = 16;
constexpr double learning_rate = 2e-3;

/// (1, D, H, W) of even sizes, scaled so that 99 of 100 voxels that are not 0 are below 1.
Tensor read_volume(const std::string& path) {
  Tensor volume = read_nifti(path).voxels;
  for (int axis = 0; axis < 3; ++axis) volume = volume.slice(axis, 0, volume.dim(axis) / 2 * 2);
  volume = volume.clone().reshape({1, volume.dim(0), volume.dim(1), volume.dim(2)});
  std::vector<float> values;
  std::copy_if(volume.span<float>().begin(), volume.span<float>().end(), std::back_inserter(values), [](float v) { return v > 0; });
  const auto high = values.begin() + static_cast<std::ptrdiff_t>(values.size() * 99 / 100);
  std::nth_element(values.begin(), high, values.end());
  for (float& value : volume.span<float>()) value /= *high;
  return volume;
}

double psnr(const Tensor& answer, const Tensor& truth) {
  double squares = 0, largest = 0;
  for (std::int64_t i = 0; i < truth.elements(); ++i) {
    squares += std::pow(answer.data<float>()[i] - truth.data<float>()[i], 2);
    largest = std::max<double>(largest, truth.data<float>()[i]);
  }
  return 10 * std::log10(largest * largest * static_cast<double>(truth.elements()) / squares);
}

/// The mean of each 2x2x2 voxels.
Value halve(Value x) { return avg_pool3d(x, {.kernel_size = {2}}); }

/// Twice the size on one axis: three quarters of the voxel that a new one lies in, and one of the nearest other.
Value interpolate(Value x, int axis) {
  Shape shape = x.shape();
  const std::int64_t size = shape[axis];
  const Value edges[] = {slice(x, axis, 0, 1), x, slice(x, axis, size - 1, size)};
  const Value around = concatenate(edges, axis);
  Shape apart = shape;
  apart.insert(axis + 1, 1);
  const Value pair[] = {reshape(x * 0.75 + slice(around, axis, 0, size) * 0.25, apart),
                        reshape(x * 0.75 + slice(around, axis, 2, size + 2) * 0.25, apart)};
  shape[axis] = 2 * size;
  return reshape(concatenate(pair, axis + 1), shape);
}

Value trilinear(Value x) { return interpolate(interpolate(interpolate(x, 2), 3), 4); }

/// Each voxel of (N, 1, D, H, W) eight times.
Value repeat(Value x) {
  const Shape s = x.shape();
  const Value apart = reshape(x, {s[0], s[2], 1, s[3], 1, s[4], 1});
  return reshape(expand(apart, {s[0], s[2], 2, s[3], 2, s[4], 2}), {s[0], 1, 2 * s[2], 2 * s[3], 2 * s[4]});
}

Value conv(const Scope& scope, Value x, std::int64_t channels) {
  return nn::conv3d(scope, x, {.out_channels = channels, .kernel_size = {3}, .padding = {1}});
}

/// Block C as a feature: transposed conv -> logsumexp over channels -> x * sigmoid(x + 3) / 6 -> - bias -> clamp. It gives 2 size - 1
/// places of an axis, so that one more goes in and one less is taken.
Value block_c(const Scope& scope, Value x) {
  const Shape s = x.shape();
  Value y = models::conv_transpose_logsumexp(scope, pad(x, {0, 0, 0, 0, 0}, {0, 0, 1, 1, 1}), {.in_channels = s[1], .out_channels = 8});
  for (int axis = 2; axis < 5; ++axis) y = slice(y, axis, 0, 2 * s[axis]);
  return y;
}

/// Each 2x2x2 voxels moved to the mean that is known of them.
Value with_means(Value fine, Value low) { return fine + repeat(low - halve(fine)); }

/// (N, 1, D, H, W) to twice the size: trilinear interpolation, and what four of block C make of the features of what lies around.
Value network(const Scope& scope, Value low) {
  Value x = low;
  for (const char* const name : {"conv1", "conv2", "conv3"}) x = leaky_relu(conv(scope / name, x, features), 0.1);
  const Value smooth = trilinear(low);
  std::vector<Value> fine = {smooth, nn::conv_transpose3d(scope / "up", x, {.out_channels = 8, .kernel_size = {2}, .stride = {2}})};
  for (const char* const name : {"block1", "block2", "block3", "block4"}) fine.push_back(block_c(scope / name, x));
  const Value y = leaky_relu(conv(scope / "merge", concatenate(fine, 1), features), 0.1);
  return with_means(smooth + conv(scope / "detail", y, 1) * 0.1, low);
}

TrainStep train(const Tensor& volume, int steps) {
  Graph graph;
  const Value truth = graph.input("truth", {batch_size, 1, patch, patch, patch});
  TrainStep step(mean_squared_error(network(Scope(graph), halve(truth)), truth) * 1000.0, Adam{.learning_rate = learning_rate});
  const auto patches = std::make_shared<PatchDataset>(std::vector<TensorDataset::NamedTensor>{{"truth", volume}},
                                                      PatchOptions{.size = {patch, patch, patch}, .random = batch_size * steps});
  const auto turned = std::make_shared<TransformDataset>(patches, TransformOptions{.flip = {0, 1, 2}});
  DataLoader loader(turned, {.batch_size = batch_size, .device = Device::best()});
  double loss = 0;
  for (const Batch& batch : loader) {
    const auto done = static_cast<double>(step.steps());
    step.set_learning_rate(learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * done / steps)));
    loss += step({{"truth", batch["truth"]}});
    if (step.steps() % 50 != 0) continue;
    std::fprintf(stderr, "step %lld of %d: loss %.4f\n", static_cast<long long>(step.steps()), steps, loss / 50);
    loss = 0;
  }
  return step;
}

/// Slices of the input, of trilinear interpolation, of the answer and of the truth, and below a part of them enlarged.
void paint(const std::vector<Tensor>& images, const std::string& path) {
  const std::int64_t depth = images[3].dim(2), width = images[3].dim(4), zoom = 2, gap = 8, part = width / 3 / 2 * 2;
  const std::int64_t part_zoom = width * zoom / part;
  Picture picture(depth * zoom + gap + part * part_zoom, 4 * (width * zoom + gap) - gap);
  for (std::size_t panel = 0; panel < 4; ++panel) {
    const Tensor& image = images[panel];
    const std::int64_t scale = image.dim(2) < depth ? 2 : 1;  // of the input a voxel covers two
    const auto grey = [&](std::int64_t row, std::int64_t column) -> Picture::Colour {
      const std::int64_t z = (depth - 1 - row) / scale, y = depth * 3 / 4 / scale, x = column / scale;
      const float value = image.data<float>()[(z * image.dim(3) + y) * image.dim(4) + x];
      return {value, value, value};
    };
    const std::int64_t left = static_cast<std::int64_t>(panel) * (width * zoom + gap);
    picture.paint(0, left, depth, width, zoom, grey);
    picture.paint(depth * zoom + gap, left, part, part, part_zoom,
                  [&](std::int64_t row, std::int64_t column) { return grey(depth / 4 + row, width / 2 + column); });
  }
  picture.write(path);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int steps = argc > 1 ? std::atoi(argv[1]) : 800;
    const std::string path = argc > 2 ? argv[2] : "super-resolution.png";
    const std::string folder = argc > 3 ? argv[3] : "/usr/share/mricron/templates";  // of Debian's package mricron-data
    const Tensor head = read_volume(folder + "/ch2.nii.gz");
    const Tensor brain = read_volume(folder + "/inia19-t1-brain.nii.gz");
    const TrainStep step = train(head, steps);

    Graph graph;
    const Tensor truth = brain.reshape({1, 1, brain.dim(1), brain.dim(2), brain.dim(3)});
    const Value low = halve(graph.input("truth", truth.shape()));
    graph.output("low", low);
    graph.output("trilinear", trilinear(low));
    graph.output("with means", with_means(trilinear(low), low));
    graph.output("answer", network(Scope(graph), low));
    Program program(graph::for_inference(graph), step.shared_state());
    const graph::Executable& result = program.run({{"truth", truth.to(Device::best())}});
    const auto output = [&](const char* name) { return result.output(name).to(Device::cpu()); };
    std::printf("PSNR on the other brain: %.2f dB; of trilinear interpolation: %.2f dB, moved to the known means: %.2f dB\n",
                psnr(output("answer"), truth), psnr(output("trilinear"), truth), psnr(output("with means"), truth));
    paint({output("low"), output("trilinear"), output("answer"), truth}, path);
    std::printf("input, trilinear interpolation, answer and truth are in %s\n", path.c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
