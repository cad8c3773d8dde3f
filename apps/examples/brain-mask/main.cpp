// Which voxels of a head are brain: block A on magnetic resonance images. The network learns from patches of the left half of the head
// `ch2`, whose brain is `ch2bet`, and is measured on the right half, which it never saw: Dice = 2 |answer and truth| / (|answer| +
// |truth|).
//
//   brain_mask [STEPS [PICTURE [FOLDER]]]

#include <frit/frit.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>

#include "../picture.h"

using namespace frit;

namespace {

constexpr std::int64_t batch_size = 2;
constexpr std::int64_t patch = 48;
constexpr double learning_rate = 3e-3;

/// A side of a head, mirrored if it is the right one: the last axis runs from the ear to the middle.
struct Side {
  Tensor image;  ///< (4, D, H, W): intensity, and where a voxel lies, from -1 to 1: upwards, forwards, towards the middle
  Tensor brain;  ///< (1, D, H, W): 1 or 0
};

Side side_of(const Tensor& head, const Tensor& brain, bool right) {
  const std::int64_t depth = head.dim(0), height = head.dim(1), width = head.dim(2) / 2, size = depth * height * width;
  const Side side{Tensor::empty({4, depth, height, width}), Tensor::empty({1, depth, height, width})};
  const auto place = [](std::int64_t i, std::int64_t count) { return 2 * static_cast<float>(i) / static_cast<float>(count - 1) - 1; };
  for (std::int64_t to = 0; to < size; ++to) {
    const std::int64_t x = to % width, y = to / width % height, z = to / width / height;
    const std::int64_t from = (z * height + y) * head.dim(2) + (right ? head.dim(2) - 1 - x : x);
    float* const image = side.image.data<float>() + to;
    image[0] = head.data<float>()[from] / 128 - 1;
    image[size] = place(z, depth);
    image[2 * size] = place(y, height);
    image[3 * size] = place(x, width);
    side.brain.data<float>()[to] = brain.data<float>()[from] > 0 ? 1.0F : 0.0F;
  }
  return side;
}

double dice(const Tensor& answer, const Tensor& truth) {
  double both = 0, sum = 0;
  for (std::int64_t i = 0; i < truth.elements(); ++i) {
    const double a = answer.data<float>()[i] > 0.5F, t = truth.data<float>()[i];
    both += a * t;
    sum += a + t;
  }
  return 2 * both / sum;
}

/// Block A as a feature: conv -> * m -> instance norm -> clamp -> * m -> max over channels. One value a voxel.
Value block_a(const Scope& scope, Value x) {
  const Value padded = pad(x, {0, 0, 1, 1, 1}, {0, 0, 1, 1, 1});
  Shape shape = x.shape();
  shape[1] = 1;
  return reshape(models::conv_instance_norm_max(scope, padded, {.in_channels = x.shape()[1], .out_channels = 8}), shape);
}

Value conv(const Scope& scope, Value x, std::int64_t channels) {
  return relu(nn::conv3d(scope, x, {.out_channels = channels, .kernel_size = {3}, .padding = {1}}));
}

Value halve(Value x) { return avg_pool3d(x, {.kernel_size = {2}}); }

Value twice(const Scope& scope, Value x, std::int64_t channels) {
  return nn::conv_transpose3d(scope, x, {.out_channels = channels, .kernel_size = {2}, .stride = {2}});
}

Value join(std::initializer_list<Value> parts) { return concatenate(std::vector<Value>(parts), 1); }

/// Logits (N, 1, D, H, W). Two of block A look at one millimetre and two at two; what lies around comes in from four millimetres.
Value network(const Scope& scope, Value image) {
  const Value intensity = slice(image, 1, 0, 1), coarse = halve(image), coarse_intensity = slice(coarse, 1, 0, 1);
  const Value fine = conv(scope / "fine", join({intensity, block_a(scope / "a1", intensity), block_a(scope / "a2", intensity)}), 8);
  const Value middle = conv(
      scope / "middle", join({halve(fine), coarse, block_a(scope / "a3", coarse_intensity), block_a(scope / "a4", coarse_intensity)}), 16);
  Value deep = conv(scope / "deep1", halve(middle), 32);
  deep = conv(scope / "deep2", deep, 32);
  deep = conv(scope / "deep3", deep, 32);
  const Value merged = conv(scope / "merge1", join({twice(scope / "up1", deep, 16), middle}), 16);
  const Value last = conv(scope / "merge2", join({twice(scope / "up2", merged, 4), fine}), 8);
  return nn::conv3d(scope / "out", last, {.out_channels = 1, .kernel_size = {1}});
}

TrainStep train(const Side& side, int steps) {
  Graph graph;
  const Value image = graph.input("image", {batch_size, 4, patch, patch, patch});
  const Value brain = graph.input("brain", {batch_size, 1, patch, patch, patch});
  TrainStep step(binary_cross_entropy_with_logits(network(Scope(graph), image), brain), Adam{.learning_rate = learning_rate});
  const auto patches = std::make_shared<PatchDataset>(std::vector<TensorDataset::NamedTensor>{{"image", side.image}, {"brain", side.brain}},
                                                      PatchOptions{.size = {patch, patch, patch}, .random = batch_size * steps});
  DataLoader loader(patches, {.batch_size = batch_size, .device = Device::best()});
  double loss = 0;
  for (const Batch& batch : loader) {
    const auto done = static_cast<double>(step.steps());
    step.set_learning_rate(learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * done / steps)));
    loss += step({{"image", batch["image"]}, {"brain", batch["brain"]}});
    if (step.steps() % 50 != 0) continue;
    std::fprintf(stderr, "step %lld of %d: loss %.4f\n", static_cast<long long>(step.steps()), steps, loss / 50);
    loss = 0;
  }
  return step;
}

/// The probability (1, D, H, W) that a voxel is brain, from patches that overlap.
Tensor answer_of(const TrainStep& step, const Side& side) {
  Graph graph;
  graph.output("probability", sigmoid(network(Scope(graph), graph.input("image", {batch_size, 4, patch, patch, patch}))));
  Program program(graph::for_inference(graph), step.shared_state());
  constexpr std::int64_t stride = patch * 2 / 3;
  const auto patches = std::make_shared<PatchDataset>(std::vector<TensorDataset::NamedTensor>{{"image", side.image}},
                                                      PatchOptions{.size = {patch, patch, patch}, .stride = {stride, stride, stride}});
  DataLoader loader(patches, {.batch_size = batch_size, .device = Device::best()});
  PatchMean answer(1, {side.image.dim(1), side.image.dim(2), side.image.dim(3)});
  std::int64_t index = 0;
  for (const Batch& batch : loader) {
    const Tensor probability = program.run({{"image", batch["image"]}}).output("probability").to(Device::cpu());
    for (std::int64_t i = 0; i < batch.size(); ++i, ++index) {
      answer.add(probability.slice(0, i, i + 1).reshape({1, patch, patch, patch}), patches->position(index));
    }
  }
  return answer.mean();
}

/// From left to right the image, the truth, and the answer, with what it missed in red and what it made up in blue; from the side, at 20
/// millimetres from the middle, and from above.
void paint(const Side& side, const Tensor& answer, const std::string& path) {
  const std::int64_t depth = answer.dim(1), height = answer.dim(2), width = answer.dim(3), zoom = 2, gap = 8;
  Picture picture((depth + width) * zoom + gap, 3 * height * zoom + 2 * gap);
  const auto colour = [&](int panel, std::int64_t z, std::int64_t y, std::int64_t x) -> Picture::Colour {
    const std::int64_t at = (z * height + y) * width + x;
    const float grey = std::min((side.image.data<float>()[at] + 1) * 0.6F, 1.0F);
    const bool truth = side.brain.data<float>()[at] > 0, found = answer.data<float>()[at] > 0.5F;
    if (panel == 2 && found != truth) return truth ? Picture::Colour{0.9F, 0.2F, 0.2F} : Picture::Colour{0.2F, 0.4F, 1};
    if (panel == 0 || !truth) return {grey, grey, grey};
    return {grey * 0.75F + 0.25F, grey * 0.75F + 0.17F, grey * 0.6F};
  };
  for (int panel = 0; panel < 3; ++panel) {
    const std::int64_t left = panel * (height * zoom + gap);
    picture.paint(0, left, depth, height, zoom,
                  [&](std::int64_t row, std::int64_t column) { return colour(panel, depth - 1 - row, column, width - 20); });
    picture.paint(depth * zoom + gap, left, width, height, zoom,
                  [&](std::int64_t row, std::int64_t column) { return colour(panel, depth / 2, column, row); });
  }
  picture.write(path);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int steps = argc > 1 ? std::atoi(argv[1]) : 1000;
    const std::string path = argc > 2 ? argv[2] : "brain-mask.png";
    const std::string folder = argc > 3 ? argv[3] : "/usr/share/mricron/templates";  // of Debian's package mricron-data
    const Tensor head = read_nifti(folder + "/ch2.nii.gz").voxels, brain = read_nifti(folder + "/ch2bet.nii.gz").voxels;
    const Side left = side_of(head, brain, false), right = side_of(head, brain, true);
    const TrainStep step = train(left, steps);
    const Tensor answer = answer_of(step, right);
    std::printf("Dice on the half that was not learnt: %.4f (the mirror image of the other half's brain: %.4f)\n",
                dice(answer, right.brain), dice(left.brain, right.brain));
    paint(right, answer, path);
    std::printf("image, truth and answer are in %s\n", path.c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
