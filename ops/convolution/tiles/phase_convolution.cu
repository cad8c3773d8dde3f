// Transposed convolutions phase by phase, see phase_taps.cuh: which calls, and in which tiles.

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/launch.cuh"
#include "frit/ops/convolution/convolution_rules.h"
#include "frit/ops/convolution/convolution_stages.h"
#include "frit/ops/convolution/tiles/phase_convolution.h"
#include "frit/ops/convolution/tiles/phase_taps.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"

namespace frit::ops {
namespace {

int ceil_divide(std::int64_t a, std::int64_t b) { return static_cast<int>((a + b - 1) / b); }

/// A data gradient as the transposed convolution that it is.
struct Transposed : ImageCall {
  using ImageCall::ImageCall;

  int positions(const PhaseAxis& axis, std::size_t n) const { return static_cast<int>((output[n] - 1 + axis.shift) / axis.stride + 1); }
  int tiles(const PhaseAxis& axis, std::size_t n) const { return ceil_divide(positions(axis, n), axis.tile); }

  /// With the shift that stages least.
  PhaseAxis axis(std::size_t n, int tile) const {
    PhaseAxis best{static_cast<int>(g.kernel[n]), static_cast<int>(g.stride[n]), static_cast<int>(g.padding[n]), 0, tile};
    const auto staged = [&](const PhaseAxis& axis) { return tiles(axis, n) * axis.staged(); };
    for (PhaseAxis other = best; ++other.shift < other.stride;) {
      if (staged(other) < staged(best)) best = other;
    }
    return best;
  }
  PhaseShape shape(int columns) const {
    const bool flat = g.kernel[0] == 1 && g.stride[0] == 1;
    const int tile = flat ? 8 : 4;
    return {ceil_divide(pixel_bytes(), PhaseShape::step_bytes), columns, axis(0, flat ? 1 : tile), axis(1, tile), axis(2, tile)};
  }
  /// An output position meets one tap.
  bool has_single_taps() const { return g.kernel == g.stride; }
  std::int64_t tile_count(const PhaseShape& s) const { return g.batch * tiles(s.z, 0) * tiles(s.y, 1) * tiles(s.x, 2); }
};

constexpr int sums_of_four_groups = 64;  ///< of a thread

/// How such a kernel shares a device.
struct Schedule {
  PhaseShape shape;
  int groups, channel_parts;
  std::int64_t tiles;

  std::size_t shared_bytes() const { return static_cast<std::size_t>(shape.weight_bytes() + groups * shape.tile_bytes()); }
  unsigned blocks(int multiprocessors) const {
    const std::int64_t shares = std::min<std::int64_t>(std::max(multiprocessors / channel_parts, 1), ceil_divide(tiles, groups));
    return static_cast<unsigned>(shares * channel_parts);
  }
};

/// As many output channels at a time as leave a thread `most_sums` with their phases, and shared memory room for two tiles.
std::optional<Schedule> schedule_within(const Transposed& call, int most_sums) {
  constexpr int most_groups = 4;
  constexpr std::size_t most_shared_bytes = 227 << 10;  // of Hopper
  for (const int columns : {64, 32, 16}) {
    const PhaseShape shape = call.shape(columns);
    const int sums = shape.phases() * columns / 2;
    if (sums > most_sums || (columns > 16 && columns / 2 >= call.out_channels)) continue;
    Schedule s{shape, sums > sums_of_four_groups ? 2 : most_groups, ceil_divide(call.out_channels, columns), call.tile_count(shape)};
    while (s.groups > 2 && s.shared_bytes() > most_shared_bytes) --s.groups;
    if (s.shared_bytes() <= most_shared_bytes && s.tiles <= INT32_MAX) return s;
  }
  return std::nullopt;
}

/// A program after a call is computed faster by four groups of warps than by two, whose registers hold more sums, but each part of the
/// channels reads the input again. So it is where there is little else to do than to write the result.
std::optional<Schedule> schedule_of(const Transposed& call, bool followed) {
  constexpr int most_parts = 8;
  const std::optional<Schedule> of_four = followed || call.has_single_taps() ? schedule_within(call, sums_of_four_groups) : std::nullopt;
  return of_four && of_four->channel_parts <= most_parts ? of_four : schedule_within(call, 2 * sums_of_four_groups);
}

bool has_sizes(const Transposed& call) {
  const ConvolutionGeometry& g = call.g;
  bool fits = g.groups == 1 && g.batch > 0 && product(g.input) > 0 && product(g.output) > 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    fits = fits && g.dilation[axis] == 1 && g.stride[axis] <= 2 && g.kernel[axis] <= 5 && g.kernel[axis] >= g.stride[axis] &&
           g.padding[axis] < 16;
  }
  const bool channels = call.pixel_bytes() % PhaseShape::chunk == 0 && call.out_channels % 4 == 0;
  const bool indexed = product(call.input) * call.pitch <= INT32_MAX && product(call.output) * call.out_channels <= INT32_MAX;
  return fits && channels && indexed && g.stride != ImageAxes{1, 1, 1};
}

/// Against cuDNN 9.19's data gradients on an H200: 1.5 times as fast to 64 channels of an image or 32 of a volume, 0.6 times to twice as
/// many. With single taps, where the result's bytes count, of 64 -> 32 channels of volumes five times, of 128 -> 64 twice and of 256 -> 128
/// as fast; of 192 -> 96 of images 0.8 times.
bool pays(const Transposed& call, int multiprocessors, bool followed) {
  constexpr double least_used = 0.5;
  constexpr std::int64_t tiles_of_group = 4;
  const Schedule s = *schedule_of(call, followed);
  const std::int64_t positions = s.tiles * warpgroup::rows * s.shape.phases();
  const double used = static_cast<double>(call.g.batch * product(call.output)) / static_cast<double>(positions);
  if (used < least_used) return false;
  const std::int64_t parts = s.tiles * s.channel_parts;
  if (call.has_single_taps()) return call.out_channels <= most_single_tap_channels(s.shape.phases()) && parts >= multiprocessors;
  constexpr int most_phase_channels = 256;
  return call.out_channels * s.shape.phases() <= most_phase_channels && parts >= tiles_of_group * s.groups * multiprocessors;
}

std::string text_of(const PhaseAxis& a) { return concat('{', a.kernel, ", ", a.stride, ", ", a.padding, ", ", a.shift, ", ", a.tile, '}'); }
std::string text_of(const PhaseShape& s) {
  return concat("PhaseShape{", s.steps, ", ", s.columns, ", ", text_of(s.z), ", ", text_of(s.y), ", ", text_of(s.x), '}');
}

PhaseCall numbers_of(const Transposed& call, const Schedule& s) {
  PhaseCall numbers{};
  const WeightSteps steps(call.weight);
  numbers.weight = call.weight.raw();
  numbers.channel_step = static_cast<int>(steps.row);
  numbers.result_step = static_cast<int>(steps.channel);
  numbers.tap_step = static_cast<int>(steps.tap);
  numbers.in_channels = static_cast<int>(call.in_channels);
  numbers.pitch = static_cast<int>(call.pitch);
  numbers.out_channels = static_cast<int>(call.out_channels);
  const PhaseAxis axes[] = {s.shape.z, s.shape.y, s.shape.x};
  for (std::size_t axis = 0; axis < 3; ++axis) {
    numbers.input[axis] = static_cast<int>(call.input[axis]);
    numbers.output[axis] = static_cast<int>(call.output[axis]);
  }
  numbers.tiles = {cuda::Divisor(call.tiles(axes[0], 0)), cuda::Divisor(call.tiles(axes[1], 1)), cuda::Divisor(call.tiles(axes[2], 2))};
  numbers.channel_parts = s.channel_parts;
  numbers.tile_count = static_cast<int>(s.tiles);
  return numbers;
}

}  // namespace

std::optional<CentreKernel> phase_centre(const ConvolutionCall& call, int multiprocessors) {
  if (call.kind != cudnn::ConvolutionKind::data_gradient || !on_tensor_cores(call.operands.weight.dtype())) return std::nullopt;
  const Transposed transposed(call);
  if (!has_sizes(transposed) || !lies_for_tensor_cores(transposed)) return std::nullopt;
  const std::optional<Schedule> schedule = schedule_of(transposed, call.program != nullptr);
  if (!schedule) return std::nullopt;
  const cuda::LaunchShape launch{dim3(schedule->blocks(multiprocessors)),
                                 dim3(static_cast<unsigned>(schedule->groups * warpgroup::threads)), schedule->shared_bytes()};
  return CentreKernel("frit/ops/convolution/tiles/phase_taps.cuh",
                      concat("PhaseTaps<", name_in_programs(transposed.weight.dtype()), ", ", text_of(schedule->shape), '>'),
                      numbers_of(transposed, *schedule), launch, /*asks_for_each_sample=*/false);
}

std::optional<OwnKernel> phase_kernel(const ConvolutionCall& call) {
  const std::optional<CentreKernel> centre = phase_centre(call, cuda::properties(call.operands.weight.device().index).multiprocessors);
  if (!centre) return {};
  const auto run = [&call, centre = *centre](std::span<std::byte>, CUstream_st* stream) {
    run_centre(centre, ConvolutionStages(call).stages(), call.operands.output, call.operands.input, stream);
  };
  const auto prepare = [&call, centre = *centre] {
    prepare_centre(centre, ConvolutionStages(call).stages(), call.operands.output, call.operands.input);
  };
  return OwnKernel{"phase by phase", 0, run, /*finishes=*/true, prepare, /*takes_parts=*/true};
}

std::optional<OwnKernel> phase_convolution(const ConvolutionCall& call) {
  const Device device = call.operands.weight.device();
  if (!compiles_warpgroup_products(device) || !ConvolutionStages::finishes(call)) return {};
  std::optional<OwnKernel> kernel = phase_kernel(call);
  const bool faster =
      kernel && pays(Transposed(call), cuda::properties(device.index).multiprocessors, /*followed=*/call.program != nullptr);
  return faster ? kernel : std::nullopt;
}

}  // namespace frit::ops
