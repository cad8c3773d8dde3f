// New clothes: a U-Net learns on Fashion-MNIST to turn noise into images of a class that is asked for. Rectified flow (Liu et al., "Flow
// straight and fast", ICLR 2023): on the straight way from noise to an image, (1 - t) noise + t image, the network is shown where it is, t and
// the class, and tells the velocity, image - noise. The figure is the share of the test images' velocity that it tells, 1 - error / variance.
//
//   diffusion [STEPS [PICTURE [FOLDER]]]

#include <frit/frit.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "../picture.h"

using namespace frit;

namespace {

constexpr std::int64_t batch_size = 128, classes = 10, side = 28, waves = 11;
const models::UNet2d unet = {.channels = {16, 32}, .in_channels = 4, .base = classes + 2 * waves, .image_size = {side / 2, side / 2}};

/// A small network sees further with a pixel for each 2 x 2: (N, 4, 14, 14) of (N, 1, 28, 28).
Value velocity(const Scope& scope, Value image, Value place) {
  return pixel_shuffle(models::unet2d(scope, pixel_unshuffle(image, 2), place, unet), 2);
}

/// What the network is told of where it is, (N, 32): the class as one of ten, and waves of t.
Tensor places(const std::vector<std::int64_t>& labels, const std::vector<float>& times) {
  Tensor result = Tensor::zeros({static_cast<std::int64_t>(labels.size()), unet.base});
  for (std::size_t n = 0; n < labels.size(); ++n) {
    float* const row = result.data<float>() + static_cast<std::int64_t>(n) * unet.base;
    row[labels[n]] = 1;
    for (std::int64_t wave = 0; wave < waves; ++wave) {
      const float angle = times[n] * std::pow(2.0F, static_cast<float>(wave) / 2);
      row[classes + 2 * wave] = std::sin(angle);
      row[classes + 2 * wave + 1] = std::cos(angle);
    }
  }
  return result;
}

/// A batch with its noise and its places on the way, drawn from (seed, number).
Bindings bindings(const Batch& batch, std::uint64_t seed, std::uint64_t number) {
  const Tensor noise = Tensor::empty(batch["input"].shape()), time = Tensor::empty({batch.size(), 1, 1, 1});
  fill_normal(noise, 0, 1, seed, 2 * number);
  fill_uniform(time, 0, 1, seed, 2 * number + 1);
  const Tensor place = places(batch["target"].to_vector<std::int64_t>(), time.to_vector<float>());
  return {{"image", batch["input"]}, {"noise", noise}, {"time", time}, {"place", place}};
}

/// The mean square of what is wrong with the velocity.
Value error(Graph& graph) {
  const Value image = graph.input("image", {batch_size, 1, side, side}) * 2.0 - 1.0, noise = graph.input("noise", {batch_size, 1, side, side});
  const Value t = graph.input("time", {batch_size, 1, 1, 1}), place = graph.input("place", {batch_size, unet.base});
  const Value target = image - noise;
  graph.output("variance", mean(square(target - mean(target))));
  return mean_squared_error(velocity(Scope(graph), (1.0 - t) * noise + t * image, place), target);
}

TrainStep train(const std::shared_ptr<const Dataset>& data, int steps) {
  Graph graph;
  TrainStep step(error(graph), AdamW{.learning_rate = 2e-3}, Device::best(), {.clip_norm = 1});
  DataLoader loader(data, {.batch_size = batch_size, .shuffle = true, .drop_last = true});
  constexpr int reported = 100;
  double loss = 0;
  for (int done = 0; done < steps;) {
    for (const Batch& batch : loader) {
      loss += step(bindings(batch, /*seed=*/0, static_cast<std::uint64_t>(done)));
      if (++done % reported == 0) std::fprintf(stderr, "step %d of %d: loss %.4f\n", done, steps, std::exchange(loss, 0) / reported);
      if (done == steps) break;
    }
  }
  return step;
}

/// The share of the velocity's variance that the network tells, of the first images.
double share_told(const TrainStep& step, const std::shared_ptr<const Dataset>& data) {
  constexpr std::uint64_t most_batches = 16;
  Graph graph;
  graph.output("error", error(graph));
  Program program(graph::for_inference(graph), step.shared_state());
  double wrong = 0, all = 0;
  std::uint64_t number = 0;
  for (const Batch& batch : DataLoader(data, {.batch_size = batch_size, .drop_last = true})) {
    const graph::Executable& run = program.run(bindings(batch, /*seed=*/1, number++));
    wrong += run.output("error").item();
    all += run.output("variance").item();
    if (number == most_batches) break;
  }
  return 1 - wrong / all;
}

/// `columns` images of each class, (10 columns, 1, 28, 28), from noise in so many steps along the velocity.
Tensor samples(const TrainStep& step, std::int64_t columns, int steps) {
  const std::int64_t count = classes * columns;
  Graph graph;
  const Value image = graph.input("image", {count, 1, side, side}), place = graph.input("place", {count, unet.base});
  graph.output("next", image + velocity(Scope(graph), image, place) / static_cast<double>(steps));
  Program program(graph::for_inference(graph), step.shared_state());
  std::vector<std::int64_t> labels;
  for (std::int64_t n = 0; n < count; ++n) labels.push_back(n / columns);
  Tensor images = Tensor::empty({count, 1, side, side});
  fill_normal(images, 0, 1, /*seed=*/2, /*stream=*/0);
  for (int i = 0; i < steps; ++i) {
    const std::vector<float> times(labels.size(), static_cast<float>(i) / static_cast<float>(steps));
    images = program.run({{"image", images}, {"place", places(labels, times)}}).output("next").to(Device::cpu()).clone();
  }
  return images;
}

void paint(const Tensor& images, std::int64_t columns, const std::string& path) {
  constexpr std::int64_t zoom = 2, distance = (side + 2) * zoom;
  Picture picture(classes * distance, columns * distance);
  for (std::int64_t n = 0; n < images.dim(0); ++n) {
    picture.paint(n / columns * distance + zoom, n % columns * distance + zoom, side, side, zoom,
                  [&](std::int64_t y, std::int64_t x) -> Picture::Colour {
                    const float ink = std::clamp((1 - images.data<float>()[(n * side + y) * side + x]) / 2, 0.0F, 1.0F);
                    return {ink, ink, ink};
                  });
  }
  picture.write(path);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int steps = argc > 1 ? std::atoi(argv[1]) : 1000;
    const std::string path = argc > 2 ? argv[2] : "diffusion.png";
    const std::string folder = argc > 3 ? argv[3] : "/usr/share/datasets/fashion-mnist";  // of Debian's package dataset-fashion-mnist
    const std::shared_ptr<Dataset> data = read_mnist_dataset(folder, Split::train), unseen = read_mnist_dataset(folder, Split::test);
    const TrainStep step = train(data, steps);
    std::printf("velocity told: %.2f %%\n", 100 * share_told(step, unseen));
    constexpr std::int64_t columns = 12;
    paint(samples(step, columns, /*steps=*/40), columns, path);
    std::printf("new images of each class are in %s\n", path.c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
