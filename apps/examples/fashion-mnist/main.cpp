// Ten kinds of clothes: block B and a linear layer on Fashion-MNIST. Accuracy = test images that are given the right class.
//
//   fashion_mnist [EPOCHS [PICTURE [FOLDER]]]

#include <frit/frit.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "../picture.h"

using namespace frit;

namespace {

constexpr std::int64_t batch_size = 128, classes = 10, side = 28;

/// Block B: conv -> group norm -> * scale -> max pool -> clamp; what is left of the image goes through a linear layer. Logits (N, 10).
Value network(const Scope& scope, Value image) {
  const models::ConvGroupNormPool config{.in_channels = 1, .out_channels = 64, .num_groups = 16, .pool_kernel_size = 2};
  return nn::linear(scope / "linear", flatten(models::conv_group_norm_pool(scope / "block", image, config)), {.out_features = classes});
}

TrainStep train(const std::shared_ptr<const Dataset>& data, int epochs) {
  Graph graph;
  const Value image = graph.input("input", {batch_size, 1, side, side}), label = graph.input("target", {batch_size}, DType::i64);
  TrainStep step(cross_entropy(network(Scope(graph), image), label), Adam{.learning_rate = 2e-3});
  DataLoader loader(data, {.batch_size = batch_size, .shuffle = true, .device = Device::best()});
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    double loss = 0;
    for (const Batch& batch : loader) loss += step({{"input", batch["input"]}, {"target", batch["target"]}});
    std::fprintf(stderr, "epoch %d of %d: loss %.4f\n", epoch, epochs, loss / static_cast<double>(loader.batches()));
  }
  return step;
}

/// What the network takes each image for.
std::vector<std::int64_t> answers_of(const TrainStep& step, const std::shared_ptr<const Dataset>& data) {
  Graph graph;
  graph.output("class", argmax(network(Scope(graph), graph.input("input", {batch_size, 1, side, side})), 1));
  Program program(graph::for_inference(graph), step.shared_state());
  std::vector<std::int64_t> answers;
  for (const Batch& batch : DataLoader(data, {.batch_size = batch_size, .device = Device::best()})) {
    const auto found = program.run({{"input", batch["input"]}}).output("class").to(Device::cpu()).to_vector<std::int64_t>();
    answers.insert(answers.end(), found.begin(), found.end());
  }
  return answers;
}

/// A row for each class: the first test images that were taken for it, with a frame, red where that is wrong.
void paint(const Tensor& images, const std::vector<std::int64_t>& answers, const std::vector<std::int64_t>& truth,
           const std::string& path) {
  constexpr std::int64_t columns = 20, zoom = 2, cell = (side + 4) * zoom;
  Picture picture(classes * cell, columns * cell);
  std::vector<std::int64_t> painted(classes);
  for (std::size_t n = 0; n < answers.size(); ++n) {
    const std::int64_t row = answers[n], column = painted[static_cast<std::size_t>(row)]++;
    if (column >= columns) continue;
    const Picture::Colour frame = answers[n] == truth[n] ? Picture::Colour{0.75F, 0.85F, 0.75F} : Picture::Colour{0.9F, 0.2F, 0.2F};
    picture.paint(row * cell + zoom, column * cell + zoom, side + 2, side + 2, zoom, [&](std::int64_t, std::int64_t) { return frame; });
    picture.paint(row * cell + 2 * zoom, column * cell + 2 * zoom, side, side, zoom,
                  [&](std::int64_t y, std::int64_t x) -> Picture::Colour {
                    const float ink = 1 - images.data<float>()[(static_cast<std::int64_t>(n) * side + y) * side + x];
                    return {ink, ink, ink};
                  });
  }
  picture.write(path);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
    const std::string path = argc > 2 ? argv[2] : "fashion-mnist.png";
    const std::string folder = argc > 3 ? argv[3] : "/usr/share/datasets/fashion-mnist";  // of Debian's package dataset-fashion-mnist
    const std::shared_ptr<Dataset> data = read_mnist_dataset(folder, Split::train), unseen = read_mnist_dataset(folder, Split::test);
    const TrainStep step = train(data, epochs);

    const std::vector<std::int64_t> answers = answers_of(step, unseen);
    for (const Batch& all : DataLoader(unseen, {.batch_size = unseen->size()})) {
      const std::vector<std::int64_t> truth = all["target"].to_vector<std::int64_t>();
      std::int64_t right = 0;
      for (std::size_t n = 0; n < truth.size(); ++n) right += answers[n] == truth[n];
      std::printf("test accuracy: %.2f %%\n", 100 * static_cast<double>(right) / static_cast<double>(truth.size()));
      paint(all["input"], answers, truth, path);
    }
    std::printf("what was taken for what is in %s\n", path.c_str());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
