#include <frit/frit.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>
#include <string>

using namespace frit;

namespace {

const char* const templates = "/usr/share/mricron/templates/";

Tensor read_brain(const std::string& name) {
  const Tensor all = read_nifti(templates + name + ".nii.gz").voxels;
  Shape even = all.shape();
  for (std::int64_t& s : even) s = s / 2 * 2;
  const Tensor v = all.slice(0, 0, even[0]).slice(1, 0, even[1]).slice(2, 0, even[2]).clone();
  std::vector<float> values;
  for (float x : v.span<float>())
    if (x > 0) values.push_back(x);
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(values.size() * 99 / 100);
  std::nth_element(values.begin(), nth, values.end());
  const float scale = 1 / *nth;
  for (float& x : v.span<float>()) x *= scale;
  return v.reshape({1, 1, even[0], even[1], even[2]});
}

/// Twice the size on one axis: three quarters of the nearest voxel and a quarter of the next.
Value upsample(Value x, int axis) {
  Shape shape = x.shape();
  const std::int64_t n = shape[axis];
  const Value edged[] = {slice(x, axis, 0, 1), x, slice(x, axis, n - 1, n)};
  const Value e = concatenate(edged, axis);
  const Value near = x * 0.75;
  shape.insert(axis + 1, 1);
  const Value pair[] = {reshape(near + slice(e, axis, 0, n) * 0.25, shape), reshape(near + slice(e, axis, 2, n + 2) * 0.25, shape)};
  shape.erase(axis + 1);
  shape[axis] = 2 * n;
  return reshape(concatenate(pair, axis + 1), shape);
}

Value trilinear(Value x) { return upsample(upsample(upsample(x, 2), 3), 4); }

Value repeat(Value x) {
  const Shape s = x.shape();
  const Value r = reshape(x, {s[0], s[2], 1, s[3], 1, s[4], 1});
  return reshape(expand(r, {s[0], s[2], 2, s[3], 2, s[4], 2}), {s[0], 1, 2 * s[2], 2 * s[3], 2 * s[4]});
}

Value half(Value x) { return avg_pool3d(x, {.kernel_size = {2}}); }

Value conv(const Scope& scope, Value x, std::int64_t channels) {
  return nn::conv3d(scope, x, {.out_channels = channels, .kernel_size = {3}, .padding = {1}});
}

int F = 16, K = 6, C = 8, H = 8, U = 0, D = 2;

Value block_c(const Scope& scope, Value x) {
  const Shape s = x.shape();
  const Value y = models::conv_transpose_logsumexp(scope, pad(x, {0, 0, 0, 0, 0}, {0, 0, 1, 1, 1}), {.in_channels = F, .out_channels = C});
  return slice(slice(slice(y, 2, 0, 2 * s[2]), 3, 0, 2 * s[3]), 4, 0, 2 * s[4]);
}

Value network(const Scope& scope, Value low) {
  const Value smooth = trilinear(low);
  Value x = leaky_relu(conv(scope / "conv1", low, F), 0.1);
  x = leaky_relu(conv(scope / "conv2", x, F), 0.1);
  if (D > 2) x = leaky_relu(conv(scope / "conv3", x, F), 0.1);
  std::vector<Value> maps = {smooth};
  for (int k = 0; k < K; ++k) maps.push_back(block_c(scope / ("c" + std::to_string(k)), x));
  if (U > 0) maps.push_back(nn::conv_transpose3d(scope / "up", x, {.out_channels = U, .kernel_size = {2}, .stride = {2}}));
  Value y = leaky_relu(conv(scope / "merge", concatenate(maps, 1), H), 0.1);
  y = conv(scope / "detail", y, 1) * 0.1 + smooth;
  return repeat(low) + y - repeat(half(y));
}

double psnr(const Tensor& a, const Tensor& b) {
  double sum = 0, peak = 0;
  const auto x = a.span<float>(), y = b.span<float>();
  for (std::size_t i = 0; i < x.size(); ++i) sum += std::pow(x[i] - y[i], 2), peak = std::max<double>(peak, y[i]);
  return 10 * std::log10(peak * peak / (sum / x.size()));
}

}  // namespace

int main(int argc, char** argv) {
  int steps = argc > 1 ? std::atoi(argv[1]) : 300;
  double peak = argc > 2 ? std::atof(argv[2]) : 3e-3;
  std::int64_t P = argc > 3 ? std::atoi(argv[3]) : 32, batch = argc > 4 ? std::atoi(argv[4]) : 4;
  if (argc > 5) F = std::atoi(argv[5]);
  if (argc > 6) K = std::atoi(argv[6]);
  if (argc > 7) U = std::atoi(argv[7]);
  if (argc > 8) D = std::atoi(argv[8]);
  if (argc > 9) H = std::atoi(argv[9]);
  try {
    const Tensor train = read_brain("ch2"), test = read_brain("inia19-t1-brain");
    Graph graph;
    const Value truth = graph.input("truth", {batch, 1, P, P, P});
    TrainStep step(mean_squared_error(network(Scope(graph), half(truth)), truth) * 1000.0, Adam{.learning_rate = peak}, Device::best(),
                   {.seed = 0});
    const Tensor bet = read_brain("ch2bet");
    const bool mix = std::getenv("MIX"), flip = std::getenv("FLIP");
    const auto patches = [&](const Tensor& t) {
      return std::make_shared<PatchDataset>(
          std::vector<TensorDataset::NamedTensor>{{"truth", t.reshape({1, t.dim(2), t.dim(3), t.dim(4)})}},
          PatchOptions{.size = {P, P, P}, .random = mix ? batch * steps / 2 : batch * steps});
    };
    std::shared_ptr<const Dataset> data = patches(train);
    if (mix) data = concatenate({data, patches(bet)});
    if (flip) data = std::make_shared<TransformDataset>(data, TransformOptions{.flip = {0, 1, 2}});
    DataLoader loader(data, {.batch_size = batch, .shuffle = true, .seed = 0});
    int s = 0;
    double mean = 0;
    for (const Batch& b : loader) {
      step.set_learning_rate(peak * 0.5 * (1 + std::cos(std::numbers::pi * s / steps)));
      mean += step({{"truth", b["truth"]}});
      if (++s % 25 == 0) {
        std::printf("step %d loss %.4f\n", s, mean / 25);
        std::fflush(stdout);
        mean = 0;
      }
    }
    for (const Tensor& v : {train, test}) {
      Graph g;
      const Value t = g.input("truth", v.shape());
      g.output("trilinear", trilinear(half(t)));
      g.output("answer", network(Scope(g), half(t)));
      Program program(graph::for_inference(g), step.shared_state());
      const auto& r = program.run({{"truth", v}});
      std::printf("trilinear %.2f answer %.2f\n", psnr(r.output("trilinear"), v), psnr(r.output("answer"), v));
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
