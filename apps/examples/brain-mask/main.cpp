// Which voxels of a head are brain: block A on magnetic resonance images. The network learns from patches of the left half of the head `ch2`,
// whose brain is `ch2bet`, and is measured on the right half, which it never saw: Dice = 2 |answer and truth| / (|answer| + |truth|).

#include <frit/frit.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>
#include <string_view>

using namespace frit;

namespace {

const char* const templates = "/usr/share/mricron/templates/";  // Debian's package mricron-data

/// A volume as the network sees it, and what is true of it.
struct Head {
  Tensor image;  ///< (4, D, H, W): intensities, and where a voxel lies: up, forward, away from the middle
  Tensor brain;  ///< (1, D, H, W): 1 is brain
};

/// One half of the head, mirrored if it is the right one, so that its last axis runs from the outside to the middle in both.
Head half(const Tensor& voxels, const Tensor& brain, bool right) {
  const std::int64_t depth = voxels.dim(0), height = voxels.dim(1), width = voxels.dim(2) / 2;
  const Head head{Tensor::empty({4, depth, height, width}), Tensor::empty({1, depth, height, width})};
  const std::span<const float> from = voxels.span<float>(), mask = brain.span<float>();
  const std::span<float> image = head.image.span<float>(), truth = head.brain.span<float>();
  const auto size = static_cast<std::size_t>(depth * height * width);
  std::size_t to = 0;
  for (std::int64_t z = 0; z < depth; ++z) {
    for (std::int64_t y = 0; y < height; ++y) {
      for (std::int64_t x = 0; x < width; ++x, ++to) {
        const auto at = static_cast<std::size_t>((z * height + y) * voxels.dim(2) + (right ? voxels.dim(2) - 1 - x : x));
        image[to] = from[at] / 128 - 0.5F;
        image[size + to] = 2 * static_cast<float>(z) / static_cast<float>(depth) - 1;
        image[2 * size + to] = 2 * static_cast<float>(y) / static_cast<float>(height) - 1;
        image[3 * size + to] = 2 * static_cast<float>(x) / static_cast<float>(width) - 1;
        truth[to] = mask[at] > 0 ? 1.0F : 0.0F;
      }
    }
  }
  return head;
}

Value same_conv(const Scope& scope, Value x, std::int64_t channels, std::int64_t kernel = 3) {
  return nn::conv3d(scope, x, {.out_channels = channels, .kernel_size = {kernel}, .padding = {kernel / 2}});
}

/// Block A as a feature: conv -> * m -> instance norm -> clamp -> * m -> max over channels, one value a voxel.
Value block_a(const Scope& scope, Value x) {
  const Value padded = pad(x, {0, 0, 1, 1, 1}, {0, 0, 1, 1, 1});
  const Value y = models::conv_instance_norm_max(scope, padded, {.in_channels = 1, .out_channels = 8});
  Shape shape = {};
  return reshape(y, {-1, 1, x.shape()[2], x.shape()[3], x.shape()[4]});
}

/// Logits. Fine features come from two of block A, at one and at two millimetres; what lies around and where the patch lies comes in at four.
Value network(const Scope& scope, Value image) {
  const Value intensity = slice(image, 1, 0, 1);
  const Value coarse = avg_pool3d(image, {.kernel_size = {2}});
  const Value coarse_intensity = slice(coarse, 1, 0, 1);

  const Value fine_maps[] = {intensity, block_a(scope / "a1", intensity), block_a(scope / "a2", intensity)};
  const Value fine = relu(same_conv(scope / "fine", concatenate(fine_maps, 1), 8));
  const Value middle_maps[] = {avg_pool3d(fine, {.kernel_size = {2}}), coarse, block_a(scope / "a3", coarse_intensity), block_a(scope / "a4", coarse_intensity)};
  const Value middle = relu(same_conv(scope / "middle", concatenate(middle_maps, 1), 16));
  Value deep = avg_pool3d(middle, {.kernel_size = {2}});
  deep = relu(same_conv(scope / "deep1", deep, 32));
  deep = relu(same_conv(scope / "deep2", deep, 32));
  deep = relu(same_conv(scope / "deep3", deep, 32));

  const Value up_middle[] = {nn::conv_transpose3d(scope / "up1", deep, {.out_channels = 16, .kernel_size = {2}, .stride = {2}}), middle};
  const Value x = relu(same_conv(scope / "merge1", concatenate(up_middle, 1), 16));
  const Value up_fine[] = {nn::conv_transpose3d(scope / "up2", x, {.out_channels = 4, .kernel_size = {2}, .stride = {2}}), fine};
  const Value y = relu(same_conv(scope / "merge2", concatenate(up_fine, 1), 8));
  return same_conv(scope / "out", y, 1, 1);
}

}  // namespace

int main(int argc, char** argv) {
  int steps = argc > 1 ? std::atoi(argv[1]) : 300;
  double peak = argc > 2 ? std::atof(argv[2]) : 3e-3;
  std::int64_t P = argc > 3 ? std::atoi(argv[3]) : 48;
  try {
    const Tensor voxels = read_nifti(std::string(templates) + "ch2.nii.gz").voxels;
    const Tensor brain = read_nifti(std::string(templates) + "ch2bet.nii.gz").voxels;
    const Head left = half(voxels, brain, false), right = half(voxels, brain, true);
    {
      const auto a = left.brain.span<float>(), b = right.brain.span<float>();
      double both = 0, sum = 0;
      for (std::size_t i = 0; i < a.size(); ++i) both += a[i] * b[i], sum += a[i] + b[i];
      std::printf("mirror Dice %.4f  (%g voxels of %zu)\n", 2 * both / sum, sum, 2 * a.size());
    }
    const std::int64_t batch = 2;
    Graph graph;
    const Value image = graph.input("image", {batch, 4, P, P, P});
    const Value target = graph.input("brain", {batch, 1, P, P, P});
    const Value logits = network(Scope(graph), image);
    graph.output("probability", sigmoid(logits));
    TrainStep step(binary_cross_entropy_with_logits(logits, target), Adam{.learning_rate = peak}, Device::best(), {.seed = 0});
    DataLoader loader(std::make_shared<PatchDataset>(std::vector<TensorDataset::NamedTensor>{{"image", left.image}, {"brain", left.brain}},
                                                     PatchOptions{.size = {P, P, P}, .random = batch * steps}),
                      {.batch_size = batch, .seed = 0});
    int s = 0; double mean = 0;
    for (const Batch& b : loader) {
      step.set_learning_rate(peak * 0.5 * (1 + std::cos(std::numbers::pi * s / steps)));
      mean += step({{"image", b["image"]}, {"brain", b["brain"]}});
      if (++s % 25 == 0) { std::printf("step %d loss %.4f\n", s, mean / 25); std::fflush(stdout); mean = 0; }
    }
    Program program(graph::for_inference(step.graph()), step.shared_state());
    const std::int64_t S = P / 2;
    PatchDataset patches({{"image", right.image}}, {.size = {P, P, P}, .stride = {S, S, S}});
    const Tensor sum = Tensor::zeros(right.brain.shape()), count = Tensor::zeros(right.brain.shape());
    const Tensor in = Tensor::empty({batch, 4, P, P, P});
    for (std::int64_t i = 0; i < patches.size(); i += batch) {
      std::vector<std::int64_t> idx;
      for (std::int64_t k = 0; k < batch; ++k) idx.push_back(std::min(i + k, patches.size() - 1));
      const Tensor batches[] = {in};
      patches.read(idx, batches, {});
      const Tensor out = program.run({{"image", in}, {"brain", Tensor::zeros({batch, 1, P, P, P})}}).output("probability");
      for (std::int64_t k = 0; k < batch; ++k) {
        const Dims at = patches.position(idx[k]);
        const Shape& e = sum.shape();
        const float* from = out.data<float>() + k * P * P * P;
        for (std::int64_t z = 0; z < P; ++z) for (std::int64_t y = 0; y < P; ++y) for (std::int64_t x = 0; x < P; ++x) {
          auto z1 = at[0] + z, y1 = at[1] + y, x1 = at[2] + x;
          // weight by distance from border
          auto wgt = [&](std::int64_t v) { return (float)std::min(v + 1, P - v); };
          float w = wgt(z) * wgt(y) * wgt(x);
          auto o = (z1 * e[2] + y1) * e[3] + x1;
          sum.data<float>()[o] += w * *from++;
          count.data<float>()[o] += w;
        }
      }
    }
    const auto a = sum.span<float>(), c = count.span<float>(), b = right.brain.span<float>();
    double both = 0, total = 0;
    for (std::size_t i = 0; i < a.size(); ++i) { float p = a[i] > 0.5F * c[i]; both += p * b[i]; total += p + b[i]; }
    std::printf("Dice %.4f\n", 2 * both / total);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
