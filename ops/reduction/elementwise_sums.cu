// Programs of elementwise operators and sums of their results, as one kernel that NVRTC compiles.

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"
#include "frit/ops/cuda/column_sums.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/elementwise/staged_kernel.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"
#include "frit/ops/operator/operator.h"
#include "frit/ops/operator/run.h"
#include "frit/ops/operator/unplaced_call.h"
#include "frit/ops/reduction/elementwise_sums.cuh"
#include "frit/ops/reduction/elementwise_sums.h"

namespace frit::ops {
namespace {

static_assert(most_column_sums >= most_program_outputs);

SumResults::Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return SumResults::Format::f64;
    case DType::f16: return SumResults::Format::f16;
    case DType::bf16: return SumResults::Format::bf16;
    default: return SumResults::Format::f32;
  }
}

/// A call, and the kernel that computes all of it. Looks at types, at how tensors lie and whether they are aligned, and at no data.
class SumsAtOnce {
 public:
  explicit SumsAtOnce(const KernelContext& context)
      : context_(context),
        call_(context.as<ElementwiseSumsAttributes>().call),
        types_(program_outputs(call_, types_of(context.inputs))),
        images_(SummedImages::of(types_[0].shape, types_of(context.inputs), call_.reduction)),
        stored_(types_.size()) {
    for (std::int64_t i = 0; i < call_.stored; ++i) {
      const Tensor& output = context.outputs[static_cast<std::size_t>(i)];
      if (output.defined()) stored_[static_cast<std::size_t>(i)] = as_image(output);
    }
    for (const Tensor& input : context.inputs) operands_.push_back(as_image(input));
  }

  bool is_possible() const {
    if (!images_ || !images_->are_summed_at_once() || (images_->in_any_order() && !lie_alike())) return false;
    const auto is_wide = [](const auto& of) { return of.dtype == DType::f64; };
    const auto lies = [](const Tensor& tensor) { return !tensor.defined() || lies_in_channels(tensor); };
    const std::vector<TensorType> inputs = types_of(context_.inputs);
    const bool any_wide = std::any_of(inputs.begin(), inputs.end(), is_wide), all_wide = std::all_of(types_.begin(), types_.end(), is_wide);
    if (any_wide != all_wide || std::any_of(types_.begin(), types_.end(), is_wide) != all_wide) return false;
    return std::all_of(stored_.begin(), stored_.end(), lies) && is_stage_possible(operands_, image());
  }

  std::size_t scratch_bytes() const { return static_cast<std::size_t>(columns().most_sums() * call_.reduced.rank()) * sizeof(double); }

  std::string source() const {
    const CompiledStage program = stage();
    const std::string terms = concat("ProgramSums<Program, ", width(), ", ", rows_at_once(), ">");
    const bool wide = types_[0].dtype == DType::f64;
    return concat("#include \"frit/ops/reduction/elementwise_sums.cuh\"\n", stage_text_head, program.text,
                  "extern \"C\" __global__ void __launch_bounds__(", ColumnSplit::threads, wide ? "" : concat(", ", resident_blocks),
                  ") elementwise_sums(const __grid_constant__ Program program, const __grid_constant__ SumResults results,"
                  " void* partial, const __grid_constant__ cuda::Divisor sample_rows, const __grid_constant__ ColumnSplit split) {\n"
                  "  using Terms = ",
                  terms, ";\n  ", images_->of_everything() ? "write_block_total" : "write_column_sums",
                  "(static_cast<Terms::Total*>(partial), Terms{program, results, sample_rows}, split);\n}\n");
  }

  const void* compile(Device device) const {
    const nvrtc::CompiledKernel kernel = nvrtc::compile("elementwise_sums", source(), device.index);
    if (kernel.function == nullptr) fail(ErrorKind::bug, "elementwise_sums was not compiled: ", kernel.obstacle);
    return kernel.function;
  }

  void run() const {
    const ColumnSplit split = split_sums(columns(), width(), element_size());
    const ColumnSplit summed = images_->of_everything() ? split.of_blocks() : split;
    const SumResults results = results_of_call();
    double* partial = partial_sums(summed, context_.scratch);
    FRIT_CHECK(partial == nullptr || context_.scratch.size() >= scratch_bytes());
    cuda::Divisor sample_rows(rows());
    std::vector<std::uint64_t> program = stage().argument;
    void* arguments[] = {program.data(), const_cast<SumResults*>(&results), &partial, &sample_rows, const_cast<ColumnSplit*>(&split)};
    const cuda::LaunchShape shape = split.shape();
    FRIT_CUDA_CALL(cudaLaunchKernel(compile(context_.inputs[0].device()), shape.grid, shape.block, arguments, 0, context_.stream));
    if (partial != nullptr) finish_sums(partial, results, summed, context_.stream, results.count);
  }

 private:
  static constexpr int resident_blocks = 3;  // as the split expects

  const Shape& image() const { return images_->image(); }
  /// The tensor as it lies along the image.
  Tensor as_image(const Tensor& tensor) const {
    const std::optional<Shape> shape = images_ ? images_->operand(tensor.shape()) : std::nullopt;
    if (!shape || *shape == tensor.shape()) return tensor;
    if (!images_->in_any_order()) return tensor.reshape(*shape);
    return Tensor::over(tensor.raw(), *shape, tensor.dtype(), tensor.device(), nullptr, Layout::contiguous);
  }
  /// Whether all that have more than one element are dense in one layout.
  bool lie_alike() const {
    const auto alike = [&](Layout layout) {
      const auto lies = [&](const Tensor& tensor) { return !tensor.defined() || tensor.elements() == 1 || tensor.is_contiguous(layout); };
      const auto stored = context_.outputs.first(static_cast<std::size_t>(call_.stored));
      return std::all_of(context_.inputs.begin(), context_.inputs.end(), lies) && std::all_of(stored.begin(), stored.end(), lies);
    };
    return alike(Layout::contiguous) || (types_[0].shape.rank() >= 4 && alike(Layout::channels_last));
  }

  CompiledStage stage() const {
    return compiled_sums(call_.program, operands_, stored_, call_.reduced, image(),
                         {.name = "Program", .keeps_to_sample = images_->of_each_sample()});
  }
  /// Of a sample.
  std::int64_t rows() const { return element_count(image()) / image()[0] / image()[1]; }
  Columns columns() const {
    const std::int64_t samples = image()[0];
    return images_->of_each_sample() ? Columns{samples, rows(), image()[1]} : Columns{1, samples * rows(), image()[1]};
  }
  /// Of the smallest element of an image that is read or written.
  std::size_t element_size() const {
    std::size_t size = sizeof(double);
    for (const std::vector<Tensor>* tensors : {&operands_, &stored_}) {
      for (const Tensor& tensor : *tensors) {
        const bool counts = tensor.defined() && tensor.shape() == image() && is_floating(tensor.dtype());
        if (counts) size = std::min(size, size_of(tensor.dtype()));
      }
    }
    return size;
  }
  int width() const { return static_cast<int>(16 / element_size()); }
  /// As many as have some 128 bytes under way.
  int rows_at_once() const {
    std::size_t bytes = 0;
    for (const Tensor& operand : operands_) {
      if (operand.shape() == image()) bytes += static_cast<std::size_t>(width()) * size_of(operand.dtype());
    }
    return bytes <= 32 ? 4 : bytes <= 64 ? 2 : 1;
  }

  SumResults results_of_call() const {
    SumResults results{{}, {}, call_.reduced.rank(), 1};
    if (call_.reduction.op->name == "mean") {
      results.divisor = static_cast<double>(images_->of_everything() ? element_count(image()) : columns().rows);
    }
    for (int i = 0; i < results.count; ++i) {
      const Tensor& sum = context_.outputs[static_cast<std::size_t>(call_.stored + i)];
      if (!sum.defined()) continue;
      results.data[i] = sum.raw();
      results.format[i] = format_of(sum.dtype());
    }
    return results;
  }

  const KernelContext& context_;
  const ReducedProgram& call_;
  std::vector<TensorType> types_;  // of the program's outputs
  std::optional<SummedImages> images_;
  std::vector<Tensor> operands_, stored_;  // as images; stored_: by the program's outputs, undefined where one is not written
};

/// For a device that NVRTC compiles for.
std::optional<SumsAtOnce> at_once(const KernelContext& context) {
  if (!nvrtc::is_available(context.inputs[0].device().index)) return std::nullopt;
  SumsAtOnce call(context);
  return call.is_possible() ? std::optional(std::move(call)) : std::nullopt;
}

std::size_t scratch(const InferContext& context) {
  const Device device = cuda::current_device();
  const UnplacedCall unplaced(context, device);
  const KernelContext call = unplaced.context();
  const auto sums = at_once(call);
  return sums ? sums->scratch_bytes() : scratch_of_sums_in_parts(context, device);
}

void run_sums(const KernelContext& context) {
  const auto sums = at_once(context);
  sums ? sums->run() : run_sums_in_parts(context);
}

void prepare(const KernelContext& context) {
  const auto sums = at_once(context);
  if (!sums) return;
  (void)cuda::compute_stream(context.inputs[0].device().index);  // makes the device the thread's
  (void)sums->compile(context.inputs[0].device());
}

std::string describe(const KernelContext& context) { return at_once(context) ? "in one pass" : "in its parts"; }

}  // namespace

std::string source_of_sums(const KernelContext& context) {
  const SumsAtOnce call(context);
  return call.is_possible() ? call.source() : "";
}

}  // namespace frit::ops

FRIT_CUDA_KERNELS(elementwise_sums) {
  for (const bool rows : {false, true}) {
    Kernel kernel = elementwise_sums_kernel(run_sums, scratch, rows);
    kernel.prepare = prepare;
    kernel.describe = describe;
    registry.add_cuda(rows ? "elementwise_row_sums" : "elementwise_sums", std::move(kernel));
  }
}
