// Convolutions patch by patch, see patch_taps.cuh: which calls, and in which patches.

#include <algorithm>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/launch.cuh"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/convolution_stages.h"
#include "frit/ops/convolution/tiles/patch_convolution.h"
#include "frit/ops/convolution/tiles/patch_taps.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"

namespace frit::ops {
namespace {

constexpr std::size_t alignment = 256;

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// A call as the convolution that it is: a data gradient is one of the mirrored weight, with a stride of 1.
struct Correlation : ImageCall {
  std::int64_t bundle = 1;  ///< groups that are multiplied together, as few as have vectors of channels

  explicit Correlation(const ConvolutionCall& call) : ImageCall(call) {
    bundle = fewest_groups(g.groups, [&](std::int64_t groups) {
      return groups * in_channels * element_bytes % PatchShape::chunk == 0 && groups * out_channels % 4 == 0;
    });
  }
  std::int64_t bundle_inputs() const { return in_channels * bundle; }
  std::int64_t bundle_outputs() const { return out_channels * bundle; }
  std::int64_t pixel_bytes() const { return bundle_inputs() * element_bytes; }
  std::int64_t out_pitch() const { return out_channels * g.groups; }
  std::int64_t bundle_parts(const PatchShape& s) const { return ceil_divide(bundle_outputs(), s.columns); }

  std::int64_t steps() const { return ceil_divide(pixel_bytes(), PatchShape::step_bytes); }
  std::int64_t parts(const PatchShape& s) const { return g.groups / bundle * bundle_parts(s); }
  /// The samples of a batch are computed as the depths of a volume, so that a tile may have two of them: of groups, whose images are often
  /// small; it was not measured of others.
  bool stacks_samples() const {
    const bool flat = g.kernel[0] == 1 && g.input[0] == 1 && g.stride[0] == 1 && g.padding[0] == 0;
    return g.groups > 1 && flat && g.batch * product(input) * pitch <= INT32_MAX;
  }
  std::int64_t in_size(std::size_t axis) const { return axis == 0 && stacks_samples() ? g.batch : input[axis]; }
  std::int64_t out_size(std::size_t axis) const { return axis == 0 && stacks_samples() ? g.batch : output[axis]; }
  std::int64_t tiles(const PatchShape& s, std::size_t axis) const {
    return ceil_divide(out_size(axis), s.positions(static_cast<int>(axis)));
  }
  std::int64_t tile_count(const PatchShape& s) const {
    return (stacks_samples() ? 1 : g.batch) * tiles(s, 0) * tiles(s, 1) * tiles(s, 2) * parts(s);
  }
  /// A step is of several pixels along the width, where these are short.
  int step_pixel_bytes() const {
    return g.kernel[2] > 1 && (pixel_bytes() == 16 || pixel_bytes() == 32) ? static_cast<int>(pixel_bytes()) : PatchShape::step_bytes;
  }
  bool is_narrow() const { return step_pixel_bytes() < PatchShape::step_bytes; }
  double bytes() const { return static_cast<double>(image.bytes() + result.bytes()); }
  PackedWeight packed(const PatchShape& s) const { return {s.columns, static_cast<int>(steps()), s.shared_taps(), s.other_taps()}; }
};

/// As many stages as shared memory has room for; false if there are too few of them.
bool choose_stages(PatchShape& s) {
  constexpr int most_shared_bytes = 227 << 10;  // of Hopper
  constexpr int wanted_weight_bytes = 96 << 10, least_weight_stages = 3, most_weight_stages = 12, most_input_stages = 6;
  s.weight_stages = std::clamp(wanted_weight_bytes / s.weight_bytes(), least_weight_stages, most_weight_stages);
  for (s.input_stages = most_input_stages; s.shared_bytes() > most_shared_bytes && s.input_stages > 2;) --s.input_stages;
  while (s.shared_bytes() > most_shared_bytes && s.weight_stages > least_weight_stages) --s.weight_stages;
  return s.shared_bytes() <= most_shared_bytes;
}

/// Estimated, for an H200: a product takes a little longer than the instruction, and so does each stage of weights; what comes from the L2
/// cache meanwhile may take longer than all products, and is the less the better where it does not. Fitted to 7 layers within 8 %.
double microseconds(const Correlation& call, const PatchShape& s, int multiprocessors) {
  constexpr double clocks_per_microsecond = 1900, start = 4, packed_per_microsecond = 400e3;
  constexpr double of_tile = 1500, of_stage = 120, of_product = 7;  // clocks
  constexpr double cache_part = 0.02, cache_bytes_per_clock = 16.5, written_per_clock = 60;
  const double steps = static_cast<double>(call.steps());
  const double stages = PatchShape::warpgroups * steps * s.other_taps(), products = stages * 2 * s.shared_taps() * s.reuse();
  const double computed = stages * of_stage + products * (s.columns / 2. + of_product);
  const double cached = steps * (s.input_bytes() + s.other_taps() * s.weight_bytes()) / cache_bytes_per_clock;
  const double positions = 64. * s.reuse() * PatchShape::warpgroups;
  const auto waves = static_cast<double>(ceil_divide(call.tile_count(s), multiprocessors));
  // Writing goes on while another tile is multiplied, if there is one.
  const double end = positions * s.columns * call.element_bytes / written_per_clock;
  const double packed = static_cast<double>(call.packed(s).bytes(static_cast<int>(call.parts(s))));
  const double time = start + packed / packed_per_microsecond +
                      (waves * (of_tile + std::max(computed, cached) + cache_part * cached) + end) / clocks_per_microsecond;
  return call.is_narrow() ? std::max(1.25 * time, call.bytes() / 3.2e6) : time;
}

/// The shape with which a call should take the least time.
std::optional<PatchShape> shape_of(const Correlation& call, int multiprocessors) {
  constexpr int most_sums = 256, most_reuse = 8;  // columns of a thread's products; products, whose fragments registers have room for
  std::optional<PatchShape> best;
  double least = 0;
  const auto consider = [&](PatchShape s) {
    if (!choose_stages(s)) return;
    if (call.tile_count(s) > INT32_MAX / 2) return;
    const double time = microseconds(call, s, multiprocessors);
    if (!best || time < least) best = s, least = time;
  };
  const auto axes = [](const ImageAxes& of) {
    return std::array{static_cast<int>(of[0]), static_cast<int>(of[1]), static_cast<int>(of[2])};
  };
  constexpr ImageAxes one = {1, 1, 1};
  const auto kernel = axes(call.g.kernel), stride = axes(call.forward ? call.g.stride : one),
             spread = axes(call.forward ? one : call.g.stride);
  for (const int columns : {128, 64, 32, 16}) {
    if (columns < 32 && call.g.groups == 1) continue;
    for (int reuse = std::min(most_reuse, most_sums / columns); reuse >= 2; reuse /= 2) {
      for (int width = 64; width >= 8; width /= 2) {
        PatchShape s{columns, {kernel[0], kernel[1], kernel[2]}, {stride[0], stride[1], stride[2]}, {1, warpgroup::rows / width, width}};
        s.pixel_bytes = call.step_pixel_bytes();
        std::copy(spread.begin(), spread.end(), s.spread);
        s.patch[s.shared_axis()] *= reuse;
        for (int axis = 0; axis < 3; ++axis) {
          for (int other = 0; other < 3; ++other) s.groups[other] = other == axis ? PatchShape::warpgroups : 1;
          consider(s);
        }
      }
    }
  }
  return best;
}

bool has_sizes(const Correlation& call) {
  const ConvolutionGeometry& g = call.g;
  // The zeros between the pixels of a strided gradient are multiplied too, which takes longer than the library where there are many
  // channels.
  const std::int64_t most_stride = call.forward || g.groups > 1 ? 2 : 1;
  bool fits = g.batch > 0 && product(call.input) > 0 && product(call.output) > 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    fits = fits && g.dilation[axis] == 1 && g.stride[axis] <= most_stride && g.kernel[axis] <= 7 && g.padding[axis] < 16;
  }
  fits = fits && (g.groups == 1 || std::min(g.in_channels, g.out_channels) > 1);
  const bool channels = call.pixel_bytes() % PatchShape::chunk == 0 && call.bundle_outputs() % 4 == 0;
  const bool indexed = product(call.input) * call.pitch <= INT32_MAX && product(call.output) * call.out_pitch() <= INT32_MAX &&
                       call.weight.elements() <= INT32_MAX / 8;
  return fits && channels && indexed;
}

std::optional<Correlation> correlation_of(const ConvolutionCall& call) {
  if (call.kind == cudnn::ConvolutionKind::weight_gradient || !on_tensor_cores(call.operands.weight.dtype())) return std::nullopt;
  if (call.operands.input.dtype() != call.operands.weight.dtype()) return std::nullopt;
  const Correlation correlation(call);
  return has_sizes(correlation) && lies_for_tensor_cores(correlation) ? std::optional(correlation) : std::nullopt;
}

/// Microseconds of the pass over the result that a program is where cuDNN does not compute it as fast: other than rectifiers and a
/// residual.
double pass_after_library(const ConvolutionCall& call) {
  constexpr double bytes_per_microsecond = 4.2e6;
  if (call.program == nullptr || (!call.epilogue.steps.empty() && call.epilogue.is_exact())) return 0;
  const Tensor& result = call.operands.result(call.kind);
  const auto is_image = [&](const Tensor& operand) { return operand.shape() == result.shape(); };
  const auto images = std::count_if(call.operands.others.begin(), call.operands.others.end(), is_image);
  return static_cast<double>(result.bytes() * (2 + images)) / bytes_per_microsecond;
}

/// Likewise of small groups. cuDNN has kernels for those of 4, 8, ... channels, which pass over the images at a fraction of memory's speed,
/// at data gradients with a stride the slowest. Others it computes slower than all channels at once with zeros between groups, which takes
/// two to four times as long as this (48 channels, 9 groups, 32 x 14 x 14). Fitted to 30 layers on an H200; the estimate leaves out a part
/// that depends on the dtype.
bool pays_for_groups(const ConvolutionCall& given, const Correlation& call, const PatchShape& s, int multiprocessors) {
  if (!has_library_kernel_for_groups(call.g)) return true;
  struct Rate {
    double start, bytes;  // microseconds; a microsecond
  };
  const bool half = is_half(call.weight.dtype());
  Rate library = half ? Rate{10, 1.4e6} : Rate{12, 1.45e6};
  if (product(call.g.stride) > 1)
    library = call.forward ? (half ? Rate{8, 2.1e6} : Rate{12, 2.6e6}) : half ? Rate{12, 0.9e6} : Rate{20, 0.45e6};
  const double time = (half ? 1.3 : 1.5) * microseconds(call, s, multiprocessors);
  return time < library.start + call.bytes() / library.bytes + pass_after_library(given);
}

/// Whether this takes less time than cuDNN 9, by the rates at which that computed layers of ResNet-50, a 3-D U-Net and larger ones on an
/// H200. Products of matrices, which convolutions with one tap are, it computes faster, and convolutions of halves in two dimensions but
/// for those of few channels, which it fills up.
bool pays(const ConvolutionCall& given, const Correlation& call, const PatchShape& s, int multiprocessors) {
  constexpr double library_start = 5;  // microseconds; rates are of 1e6 operations a microsecond
  const bool deep = call.g.kernel[0] > 1, half = is_half(call.weight.dtype()), many = call.out_channels > 64;
  if (are_small_groups(call.g)) return pays_for_groups(given, call, s, multiprocessors);
  if (s.taps() == 1 || (half && !deep && !call.is_narrow())) return false;
  if (call.is_narrow() && (!call.forward || call.bytes() < 4e6)) return false;  // none was measured
  const double operations = 2. * static_cast<double>(call.g.batch * product(call.output) * call.in_channels * call.out_pitch()) * s.taps();
  const bool large = operations > 1e11;  // whose gradients cuDNN computes about as fast as convolutions
  double rate = deep ? (many ? 300 : 225) : (many ? 400 : 215);
  if (!call.forward) rate = deep ? (many ? 260 : 225) : (many ? (large ? 390 : 240) : 190);
  if (half) rate = call.forward ? 470 : 670;
  // Tiles of 64 channels that fewer leave empty: of 5^3 taps at 16 and 32 channels it computed 105 and 200 on an H100.
  const auto channels = static_cast<double>(std::max(call.in_channels, call.out_channels));
  if (half && channels < 64) rate = 7 * channels;
  double library = library_start + operations / (rate * 1e6);
  if (call.is_narrow()) library = std::max(library * PatchShape::step_bytes / s.pixel_bytes, call.bytes() / 1.2e6);
  return microseconds(call, s, multiprocessors) < library + pass_after_library(given);
}

std::string text_of(const int (&a)[3]) { return concat('{', a[0], ", ", a[1], ", ", a[2], '}'); }
std::string text_of(const PatchShape& s) {
  return concat("PatchShape{", s.columns, ", ", text_of(s.kernel), ", ", text_of(s.stride), ", ", text_of(s.patch), ", ", text_of(s.groups),
                ", ", s.input_stages, ", ", s.weight_stages, ", ", s.pixel_bytes, ", ", text_of(s.spread), '}');
}

PatchCall numbers_of(const Correlation& call, const PatchShape& s, const void* packed) {
  PatchCall numbers{};
  numbers.weight = packed;
  numbers.in_channels = static_cast<int>(call.bundle_inputs());
  numbers.out_channels = static_cast<int>(call.bundle_outputs());
  numbers.pitch = static_cast<int>(call.pitch);
  numbers.out_pitch = static_cast<int>(call.out_pitch());
  numbers.steps = static_cast<int>(call.steps());
  for (std::size_t axis = 0; axis < 3; ++axis) {
    numbers.input[axis] = static_cast<int>(call.in_size(axis));
    numbers.output[axis] = static_cast<int>(call.out_size(axis));
    numbers.padding[axis] = static_cast<int>(call.padding(axis));
  }
  numbers.tiles = {cuda::Divisor(call.tiles(s, 0)), cuda::Divisor(call.tiles(s, 1)), cuda::Divisor(call.tiles(s, 2))};
  numbers.parts = cuda::Divisor(call.parts(s));
  numbers.bundle_parts = cuda::Divisor(call.bundle_parts(s));
  numbers.stacks_samples = call.stacks_samples();
  numbers.tile_count = static_cast<int>(call.tile_count(s));
  return numbers;
}

/// Where a weight's elements are.
struct WeightSource {
  int results, channels;  ///< of a group
  int bundle_results, bundle_channels, bundle_parts, columns;
  WeightSteps steps;
  int shared_step;                 ///< between taps along the shared axis; the others follow each other
  int across, width, step_pixels;  ///< of PatchShape; the kernel's width
  int taps;
  bool mirrored;

  WeightSource(const Correlation& call, const PatchShape& s)
      : results(static_cast<int>(call.out_channels)),
        channels(static_cast<int>(call.in_channels)),
        bundle_results(static_cast<int>(call.bundle_outputs())),
        bundle_channels(static_cast<int>(call.bundle_inputs())),
        bundle_parts(static_cast<int>(call.bundle_parts(s))),
        columns(s.columns),
        steps(call.weight),
        shared_step(s.shared_axis() == 0 ? s.kernel[1] * s.kernel[2] : s.kernel[2]),
        across(s.across()),
        width(s.kernel[2]),
        step_pixels(s.step_pixels()),
        taps(s.taps()),
        mirrored(!call.forward) {}

  /// -1 where there is none.
  __device__ std::int64_t operator()(PackedWeight::Place place) const {
    int x = place.other_tap % across * step_pixels;
    if (step_pixels > 1) x += place.channel / bundle_channels, place.channel %= bundle_channels;
    const int result = place.part % bundle_parts * columns + place.column, bundle = place.part / bundle_parts;
    if (result >= bundle_results || place.channel >= bundle_channels || x >= width) return -1;
    if (result / results != place.channel / channels) return -1;
    const int tap = place.shared_tap * shared_step + place.other_tap / across * width + x;
    if (mirrored) {
      return (bundle * bundle_channels + place.channel) * steps.row + result % results * steps.channel + (taps - 1 - tap) * steps.tap;
    }
    return (bundle * bundle_results + result) * steps.row + place.channel % channels * steps.channel + tap * steps.tap;
  }
};

template <class T>
__global__ void __launch_bounds__(256) pack(T* to, const T* from, PackedWeight packed, WeightSource source, std::uint32_t items) {
  const std::uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
  if (item >= items) return;
  const std::int64_t place = source(packed.at(item, PatchShape::chunk / static_cast<int>(sizeof(T))));
  to[item] = place >= 0 ? warpgroup::rounded(from[place]) : T{};
}

void pack_weight(void* to, const Correlation& call, const PatchShape& s, CUstream_st* stream) {
  constexpr int threads = 256;
  const PackedWeight packed = call.packed(s);
  const std::int64_t items = packed.bytes(static_cast<int>(call.parts(s))) / call.element_bytes;
  dispatch_f32_and_halves(call.weight.dtype(), [&]<class T>() {
    cuda::launch(pack<T>, {dim3(static_cast<unsigned>(ceil_divide(items, threads))), dim3(threads)}, stream, static_cast<T*>(to),
                 call.weight.data<T>(), packed, WeightSource(call, s), static_cast<std::uint32_t>(items));
  });
}

CentreKernel kernel_of(const Correlation& call, const PatchShape& s, int multiprocessors, const void* packed) {
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(call.tile_count(s), multiprocessors));
  const cuda::LaunchShape launch{dim3(blocks), dim3((PatchShape::warpgroups + 1) * warpgroup::threads),
                                 static_cast<std::size_t>(s.shared_bytes())};
  CentreKernel kernel("frit/ops/convolution/tiles/patch_taps.cuh",
                      concat("PatchTaps<", name_in_programs(call.weight.dtype()), ", ", text_of(s), '>'), numbers_of(call, s, packed),
                      launch,
                      /*asks_for_each_sample=*/false);
  kernel.resident_blocks = 1;
  return kernel;
}

/// A call and the shape with which it should take the least time.
struct Patches {
  Correlation call;
  PatchShape shape;

  static std::optional<Patches> of(const std::optional<Correlation>& call, int multiprocessors) {
    const std::optional<PatchShape> shape = call ? shape_of(*call, multiprocessors) : std::nullopt;
    return shape ? std::optional(Patches{*call, *shape}) : std::nullopt;
  }
};

}  // namespace

std::optional<CentreKernel> patch_centre(const ConvolutionCall& call, int multiprocessors) {
  const auto patches = Patches::of(correlation_of(call), multiprocessors);
  return patches ? std::optional(kernel_of(patches->call, patches->shape, multiprocessors, nullptr)) : std::nullopt;
}

bool is_patch_kernel_faster(const ConvolutionCall& call, int multiprocessors) {
  const auto patches = Patches::of(correlation_of(call), multiprocessors);
  return patches && pays(call, patches->call, patches->shape, multiprocessors);
}

std::optional<OwnKernel> patch_kernel(const ConvolutionCall& call) {
  const int multiprocessors = cuda::properties(call.operands.weight.device().index).multiprocessors;
  const auto patches = Patches::of(correlation_of(call), multiprocessors);
  if (!patches) return {};
  const auto run = [&call, patches = *patches, multiprocessors](std::span<std::byte> scratch, CUstream_st* stream) {
    const auto begin = reinterpret_cast<std::uintptr_t>(scratch.data());
    void* const packed = scratch.data() + (alignment - begin % alignment) % alignment;
    pack_weight(packed, patches.call, patches.shape, stream);
    run_centre(kernel_of(patches.call, patches.shape, multiprocessors, packed), ConvolutionStages(call).stages(), patches.call.image,
               patches.call.result, stream);
  };
  const auto prepare = [&call, patches = *patches, multiprocessors] {
    prepare_centre(kernel_of(patches.call, patches.shape, multiprocessors, nullptr), ConvolutionStages(call).stages(), patches.call.image,
                   patches.call.result);
  };
  const std::int64_t packed_bytes = patches->call.packed(patches->shape).bytes(static_cast<int>(patches->call.parts(patches->shape)));
  return OwnKernel{"patch by patch",    alignment + static_cast<std::size_t>(packed_bytes), run, ConvolutionStages::finishes(call), prepare,
                   /*takes_parts=*/true};
}

std::optional<OwnKernel> patch_convolution(const ConvolutionCall& call) {
  const Device device = call.operands.weight.device();
  const bool faster = compiles_warpgroup_products(device) && is_patch_kernel_faster(call, cuda::properties(device.index).multiprocessors);
  return faster ? patch_kernel(call) : std::nullopt;
}

/// By what was measured on an H200 and an H100, of images with 4 and 8 channels in float32, and 8 and 16 in halves, to 16 channels and
/// more.
std::optional<OwnKernel> narrow_patch_convolution(const ConvolutionCall& call) {
  const std::optional<Correlation> correlation = correlation_of(call);
  if (!correlation || !correlation->is_narrow() || !correlation->forward || correlation->out_channels < 16) return {};
  const bool measured = correlation->g.kernel[0] == 1 || correlation->step_pixel_bytes() == PatchShape::chunk;
  return measured ? patch_convolution(call) : std::nullopt;
}

}  // namespace frit::ops
