// Which voxels of a head are brain: a U-Net on magnetic resonance images. It learns on the left half of the head `ch2`, whose brain is
// `ch2bet`, and is measured on the right half, which it never saw, in windows that slide over it and overlap: Dice = 2 |answer and truth| /
// (|answer| + |truth|).
//
//   brain_mask [STEPS [PICTURE [FOLDER]]]

#include <frit/frit.h>

#include <cstdio>
#include <cstdlib>

#include "../picture.h"

using namespace frit;

namespace {

const Shape window = {80, 96, 40};
// Of each 2 x 2 x 2 voxels the intensities, and where they lie; to them, whether they are brain.
const models::UNet3d unet = {.channels = {16, 32, 64, 64}, .in_channels = 8 + 3, .num_classes = 8};

/// (D, H, W) as (8, D / 2, H / 2, W / 2): a place for each 2 x 2 x 2 voxels, which a small network sees further with. Of an odd size the
/// last is left out.
Tensor folded(const Tensor& volume) {
  const std::int64_t d = volume.dim(0) / 2, h = volume.dim(1) / 2, w = volume.dim(2) / 2;
  const Tensor even = volume.slice(0, 0, 2 * d).slice(1, 0, 2 * h).slice(2, 0, 2 * w).contiguous();
  return even.reshape({d, 2, h, 2, w, 2}).permute({1, 3, 5, 0, 2, 4}).contiguous().reshape({8, d, h, w});
}
Tensor unfolded(const Tensor& places) {
  const std::int64_t d = places.dim(1), h = places.dim(2), w = places.dim(3);
  return places.reshape({2, 2, 2, d, h, w}).permute({3, 0, 4, 1, 5, 2}).contiguous().reshape({2 * d, 2 * h, 2 * w});
}

/// One side of a head, the right one mirrored: the last axis runs from the ear to the middle.
Tensor side_of(const Tensor& head, bool right) {
  const std::int64_t width = head.dim(2);
  const Tensor side = Tensor::empty({head.dim(0), head.dim(1), width / 2});
  for (std::int64_t to = 0; to < side.elements(); ++to) {
    const std::int64_t x = to % (width / 2), row = to / (width / 2);
    side.data<float>()[to] = head.data<float>()[row * width + (right ? width - 1 - x : x)];
  }
  return side;
}

/// What the network is given: (11, D, H, W) of intensities (8, D, H, W), and after them from -1 to 1 upwards, forwards, towards the middle.
Tensor with_places(const Tensor& intensities) {
  const Shape shape = {intensities.dim(1), intensities.dim(2), intensities.dim(3)};
  const Tensor image = Tensor::empty({unet.in_channels, shape[0], shape[1], shape[2]});
  copy(image.slice(0, 0, 8), intensities);
  for (int axis = 0; axis < 3; ++axis) {
    for (std::int64_t i = 0; i < shape[axis]; ++i) {
      image.slice(0, 8 + axis, 9 + axis)
          .slice(axis + 1, i, i + 1)
          .fill(2 * static_cast<double>(i) / static_cast<double>(shape[axis] - 1) - 1);
    }
  }
  return image;
}

double dice(const Tensor& answer, const Tensor& truth) {
  double both = 0, sum = 0;
  for (std::int64_t i = 0; i < truth.elements(); ++i) {
    const bool a = answer.data<float>()[i] > 0, t = truth.data<float>()[i] > 0;
    both += a && t;
    sum += a + t;
  }
  return 2 * both / sum;
}

/// Logits (1, 8, window).
Value network(Graph& graph) {
  return models::unet3d(Scope(graph), graph.input("image", {1, unet.in_channels, window[0], window[1], window[2]}), unet);
}

TrainStep train(const Tensor& image, const Tensor& brain, int steps) {
  Graph graph;
  const Value logits = network(graph), truth = graph.input("brain", logits.shape());
  const Value loss = binary_cross_entropy_with_logits(logits, truth) + dice_loss(logits, truth, {.activation = DiceActivation::sigmoid});
  const Schedule one_cycle{.kind = Schedule::Kind::one_cycle, .total = steps};
  TrainStep step(loss, AdamW{.learning_rate = 1e-2}, Device::best(), {.schedule = one_cycle});
  const auto patches = std::make_shared<PatchDataset>(std::vector<TensorDataset::NamedTensor>{{"image", image}, {"brain", brain}},
                                                      PatchOptions{.size = window, .random = steps});
  DataLoader loader(patches, {.batch_size = 1, .device = Device::best()});
  constexpr int reported = 25;
  double sum = 0;
  for (const Batch& batch : loader) {
    sum += step({{"image", batch["image"]}, {"brain", batch["brain"]}});
    if (step.steps() % reported != 0) continue;
    std::fprintf(stderr, "step %lld of %d: loss %.4f\n", static_cast<long long>(step.steps()), steps, sum / reported);
    sum = 0;
  }
  return step;
}

/// The logit (8, D, H, W) that a voxel is brain.
Tensor answer_of(const TrainStep& step, const Tensor& image) {
  Graph graph;
  graph.output("logits", network(graph));
  Program program(graph::for_inference(graph), step.shared_state());
  const auto predict = [&](const Tensor& windows) {
    return program.run({{"image", windows.to(Device::best())}}).output("logits").to(Device::cpu()).clone();
  };
  const Shape one = {1, image.dim(0), image.dim(1), image.dim(2), image.dim(3)};
  const Tensor answer = predict_by_windows(predict, image.reshape(one), {.window = window});
  return answer.reshape({answer.dim(1), answer.dim(2), answer.dim(3), answer.dim(4)});
}

/// From left to right the image, the truth, and the answer, with what it missed in red and what it made up in blue; from the side, at 20
/// millimetres from the middle, and from above.
void paint(const Tensor& image, const Tensor& brain, const Tensor& answer, const std::string& path) {
  const std::int64_t depth = answer.dim(0), height = answer.dim(1), width = answer.dim(2), zoom = 2, gap = 8;
  Picture picture((depth + width) * zoom + gap, 3 * height * zoom + 2 * gap);
  const auto colour = [&](int panel, std::int64_t z, std::int64_t y, std::int64_t x) -> Picture::Colour {
    const std::int64_t at = (z * height + y) * width + x;
    const float grey = std::min(image.data<float>()[at] * 0.6F, 1.0F);
    const bool truth = brain.data<float>()[at] > 0, found = answer.data<float>()[at] > 0;
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
    const int steps = argc > 1 ? std::atoi(argv[1]) : 200;
    const std::string path = argc > 2 ? argv[2] : "brain-mask.png";
    const std::string folder = argc > 3 ? argv[3] : "/usr/share/mricron/templates";  // of Debian's package mricron-data
    const Tensor head = read_nifti(folder + "/ch2.nii.gz").voxels, brain = read_nifti(folder + "/ch2bet.nii.gz").voxels;
    for (float& intensity : head.span<float>()) intensity /= 128;
    for (float& is_brain : brain.span<float>()) is_brain = is_brain > 0 ? 1.0F : 0.0F;
    const Tensor left = folded(side_of(brain, false)), right = folded(side_of(brain, true)), image = folded(side_of(head, true));
    const TrainStep step = train(with_places(folded(side_of(head, false))), left, steps);
    const Tensor answer = answer_of(step, with_places(image));
    std::printf("Dice on the half that was not learnt: %.4f (the mirror image of the other half's brain: %.4f)\n", dice(answer, right),
                dice(left, right));
    paint(unfolded(image), unfolded(right), unfolded(answer), path);
    std::printf("image, truth and answer are in %s\n", path.c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
