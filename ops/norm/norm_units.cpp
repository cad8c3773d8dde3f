#include "frit/ops/norm/norm_units.h"

#include "frit/ops/norm/norm_rows.h"

namespace frit::ops {

/// The batch of a channels-last batch norm is one long image; so is one of single pixels.
NormUnits::NormUnits(const NormGeometry& geometry, Layout layout)
    : channels_last(layout == Layout::channels_last || geometry.weight_axis == WeightAxis::element || geometry.run_length == 1),
      slice_channels(geometry.slice_channels()),
      all_channels(geometry.channels) {
  constexpr std::int64_t tile_elements = 8192;
  const bool batch = geometry.weight_axis == WeightAxis::slice;
  channels = channels_last ? all_channels : slice_channels;
  pixels = geometry.weight_axis == WeightAxis::element ? 1 : geometry.run_length;
  samples = batch ? geometry.runs : 1;
  if (batch && channels_last) pixels *= std::exchange(samples, 1);
  count = batch ? all_channels / std::max<std::int64_t>(1, channels) : geometry.slices / std::max<std::int64_t>(1, slices());
  tile_channels = channels;
  if (!channels_last)
    tile_channels = std::clamp<std::int64_t>(tile_elements / std::max<std::int64_t>(1, pixels), 1, std::max<std::int64_t>(1, channels));
  tile_channels = std::max<std::int64_t>(1, tile_channels);
  tile_pixels = EvenBlocks(pixels, std::max<std::int64_t>(column_lanes, tile_elements / tile_channels), column_lanes);
}

NormTile NormUnits::tile_at(std::int64_t unit, std::int64_t tile) const {
  const std::int64_t block = tile % tile_pixels.count, channel = tile / tile_pixels.count % channel_blocks() * tile_channels;
  const std::int64_t sample = tile / tile_pixels.count / channel_blocks();
  return {.unit = unit,
          .sample = sample,
          .channel = channel,
          .channels = std::min(tile_channels, channels - channel),
          .pixel = tile_pixels.begin(block),
          .pixels = tile_pixels.length_of(block),
          .section = sample * tile_pixels.count + block};
}

namespace {

/// Whether a norm of `input`, or its gradient, with output 0, can be computed with programs: those that leave the type as it is.
bool takes_stages(const Stages& stages, const Tensor& input, const Tensor& output, const NormGeometry& geometry) {
  const DType dtype = input.dtype();
  const bool given = stages.before.instructions.empty() || (stages.input == 0 && stages.input_type.dtype == dtype);
  return !is_half(dtype) && given && (!output.defined() || output.dtype() == dtype) && !is_of_rows(geometry);
}

/// As StagedKernel::leads.
bool keeps_type(const InferContext&, const ElementwiseProgram& after, std::span<const TensorType> operands) {
  if (is_half(operands[0].dtype)) return false;  // as above
  std::vector<TensorType> types;
  return after.check(operands, types).empty() && types[static_cast<std::size_t>(after.outputs.at(0))] == operands[0];
}

}  // namespace

Kernel kernel_of_image(GeometryRule geometry, const NormFunction& run, NormScratch scratch, std::size_t image, bool images) {
  const auto geometry_of_call = [=](const KernelContext& call) { return geometry(call.inputs[image].shape(), call.attributes); };
  Kernel kernel{.run = [=](const KernelContext& call) { run(call, nullptr, geometry_of_call(call)); },
                .scratch =
                    [=](const InferContext& call) {
                      return scratch(geometry(call.shape(image), call.attributes), call.inputs[image].dtype, call.input_layout(image));
                    }};
  if (!images) return kernel;
  for (std::size_t i = 0; i <= image; ++i) kernel.any_layout_inputs.push_back(static_cast<int>(i));
  kernel.any_layout_outputs = {0};
  kernel.one_layout = true;
  kernel.staged.takes = [=](const KernelContext& call, const Stages& stages) {
    return takes_stages(stages, call.inputs[image], call.outputs[0], geometry_of_call(call));
  };
  kernel.staged.run = [=](const KernelContext& call, const Stages& stages) { run(call, &stages, geometry_of_call(call)); };
  kernel.staged.scratch = [=](const KernelContext& call, const Stages& stages) {
    const Tensor& input = call.inputs[image];
    const NormGeometry slices = geometry_of_call(call);
    // A norm's input may be what the program before it gives.
    const NormPrograms programs(&stages, image == 0 ? Tensor() : input, call.outputs[0]);
    return scratch(slices, input.dtype(), input.layout()) + programs.scratch(NormUnits(slices, input.layout()));
  };
  kernel.staged.leads = keeps_type;
  return kernel;
}

}  // namespace frit::ops
