// A program that uses frit as a library: it trains the block of two layers below to tell bright left halves from bright right halves, on
// images that it makes up, and writes a checkpoint.

#include <frit/frit.h>

#include <cstdio>

using namespace frit;

namespace {

/// A model reads like its formula. Parameter names are PyTorch's: "conv.weight", "linear.bias", ...
Value small_network(const Scope& scope, Value image) {
  Value x = nn::conv2d(scope / "conv", image, {.out_channels = 8, .kernel_size = {3}});
  x = relu(nn::group_norm(scope / "norm", x, {.num_groups = 4}));
  x = max_pool2d(x, {.kernel_size = {2}});
  return nn::linear(scope / "linear", flatten(x), {.out_features = 2});
}

/// Noise, with one half of each image brighter: which one is the class.
std::shared_ptr<Dataset> made_up_images(std::int64_t count, std::uint64_t seed) {
  const Tensor images = Tensor::empty({count, 1, 12, 12}), classes = Tensor::empty({count}, DType::i64);
  fill_normal(images, 0, 1, seed, 0);
  for (std::int64_t n = 0; n < count; ++n) {
    const std::int64_t bright = classes.data<std::int64_t>()[n] = n % 2;
    for (std::int64_t pixel = 0; pixel < 144; ++pixel) {
      if (pixel % 12 / 6 == bright) images.data<float>()[n * 144 + pixel] += 0.5F;
    }
  }
  return std::make_shared<TensorDataset>(std::vector<TensorDataset::NamedTensor>{{"image", images}, {"class", classes}});
}

double accuracy(const Tensor& logits, const Tensor& classes) {
  double right = 0;
  for (std::int64_t n = 0; n < classes.elements(); ++n) {
    const float* const row = logits.data<float>() + 2 * n;
    right += (row[1] > row[0]) == (classes.data<std::int64_t>()[n] == 1);
  }
  return right / static_cast<double>(classes.elements());
}

}  // namespace

int main(int argc, char** argv) {
  try {
    constexpr std::int64_t batch_size = 32;
    Graph graph;
    const Value image = graph.input("image", {batch_size, 1, 12, 12});
    const Value label = graph.input("class", {batch_size}, DType::i64);
    const Value logits = small_network(Scope(graph), image);
    graph.output("logits", logits);

    // The gradient, the fusion of operators, the memory plan and the optimizer's updates all happen here.
    TrainStep step(cross_entropy(logits, label), AdamW{.learning_rate = 3e-3}, Device::best(), {.seed = 1});

    DataLoader loader(made_up_images(1024, /*seed=*/1), {.batch_size = batch_size, .shuffle = true});
    for (int epoch = 1; epoch <= 5; ++epoch) {
      double loss = 0;
      for (const Batch& batch : loader) loss += step({{"image", batch["image"]}, {"class", batch["class"]}});
      std::printf("epoch %d: loss %.4f\n", epoch, loss / static_cast<double>(loader.batches()));
    }

    // The same parameters, forward only.
    Program inference(graph::for_inference(step.graph()), step.shared_state());
    DataLoader unseen(made_up_images(256, /*seed=*/2), {.batch_size = 256});
    for (const Batch& batch : unseen) {
      const Tensor& scores = inference.run({{"image", batch["image"]}, {"class", batch["class"]}}).output("logits");
      std::printf("accuracy on unseen images: %.1f %%\n", 100 * accuracy(scores, batch["class"]));
    }

    const char* const path = argc > 1 ? argv[1] : "left-or-right.safetensors";
    save_checkpoint(path, step);
    std::printf("parameters are in %s\n", path);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
