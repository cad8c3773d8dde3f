// Channels of a pixel to a block of the image, with a program of elementwise operators after it, and back, with one before it: kernels that
// NVRTC compiles.

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"
#include "frit/ops/convolution/lowerings/depth_to_space.cuh"
#include "frit/ops/elementwise/compiled_program.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"

namespace frit::ops {
namespace {

constexpr int threads = 256;
constexpr std::int64_t most_vectors = std::int64_t{1} << 30;

bool lies_channels_last(const Tensor& tensor) {
  return tensor.is_contiguous(Layout::channels_last) && !tensor.is_contiguous() && cuda::aligned_for_vectors(tensor.raw());
}

/// A call whose image comes from a program, or goes to one.
class StagedRearrangement {
 public:
  StagedRearrangement(const KernelContext& call, const Stages& stages, bool to_space)
      : call_(call), stages_(stages), to_space_(to_space), image_(to_space ? output().shape() : stages.input_type.shape) {
    const DType given = to_space ? call.inputs[0].dtype() : stages.input_type.dtype;
    width_ = 16 / static_cast<int>(std::min(size_of(output().dtype()), size_of(given)));
    while (image_[1] % width_ != 0) width_ /= 2;
  }

  bool is_possible() const {
    const bool on_one_side = stages_.before.instructions.empty() == to_space_ && stages_.after.instructions.empty() != to_space_;
    const std::span<const Tensor> operands = to_space_ ? stages_.after_inputs : stages_.before_inputs;
    return on_one_side && output().elements() >= smallest_compiled && output().elements() / width_ <= most_vectors &&
           lies_channels_last(output()) && (!to_space_ || lies_channels_last(call_.inputs[0])) && is_stage_possible(operands, image_) &&
           nvrtc::is_available(output().device().index);
  }

  void compile() const { (void)kernel(); }

  void run() const {
    const CompiledStage source = this->source(), sink = this->sink();
    const Tensor given = Tensor::over(nullptr, image_, output().dtype(), output().device(), nullptr, Layout::channels_last);
    BlockMap map = block_map(call_.as<BlockAttributes>(), output(), to_space_ ? call_.inputs[0] : given, to_space_, width_);
    auto vectors = static_cast<std::uint32_t>(output().elements() / width_);
    void* arguments[] = {const_cast<std::uint64_t*>(source.argument.data()), const_cast<std::uint64_t*>(sink.argument.data()), &map,
                         &vectors};
    FRIT_CUDA_CALL(cudaLaunchKernel(kernel(), dim3((vectors + threads - 1) / threads), dim3(threads), arguments, 0, call_.stream));
  }

 private:
  const Tensor& output() const { return call_.outputs[0]; }

  CompiledStage source() const {
    return to_space_ ? stored_source(call_.inputs[0], "From") : compiled_source(stages_.before, stages_.before_inputs, image_, {"From"});
  }
  CompiledStage sink() const {
    if (!to_space_) return stored_sink(output(), output().dtype(), "To");
    return compiled_sink(stages_.after, stages_.after_inputs, output(), image_, {.name = "To", .result = output().dtype()});
  }

  const void* kernel() const {
    const std::string text = concat(stage_text_head, "#include \"frit/ops/convolution/lowerings/block_map.cuh\"\n", source().text,
                                    sink().text, "extern \"C\" __global__ void __launch_bounds__(", threads,
                                    ")\n    rearrange(const __grid_constant__ From from, const __grid_constant__ To to,"
                                    " const __grid_constant__ BlockMap map, std::uint32_t vectors) {\n"
                                    "  const std::uint32_t vector = blockIdx.x * ",
                                    threads, " + threadIdx.x;\n  if (vector < vectors) rearrange_vector<", to_space_ ? "true" : "false",
                                    ", ", width_, ">(to, from, map, vector);\n}\n");
    const nvrtc::CompiledKernel compiled = nvrtc::compile("rearrange", text, cuda::current_device().index);
    if (compiled.function == nullptr) fail(ErrorKind::bug, call_.op.name, " with its stage was not compiled: ", compiled.obstacle);
    return compiled.function;
  }

  const KernelContext& call_;
  const Stages& stages_;
  bool to_space_;
  const Shape& image_;
  int width_;
};

}  // namespace

StagedKernel staged_rearrangement(bool to_space) {
  return {
      .takes = [=](const KernelContext& call, const Stages& stages) { return StagedRearrangement(call, stages, to_space).is_possible(); },
      .run = [=](const KernelContext& call, const Stages& stages) { StagedRearrangement(call, stages, to_space).run(); },
      .prepare =
          [=](const KernelContext& call, const Stages& stages) {
            (void)cuda::compute_stream(call.outputs[0].device().index);  // makes the device the thread's
            StagedRearrangement(call, stages, to_space).compile();
          }};
}

}  // namespace frit::ops
