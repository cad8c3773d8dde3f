// Programs of elementwise operators as kernels of their own. The text of one names the functors in turn, in terms of program.cuh; what it
// depends on are the program, the dtypes and how the operands lie, not their sizes, so that one kernel serves many layers.

#include "frit/ops/elementwise/compiled_program.cuh"

#include <algorithm>
#include <array>
#include <cstring>

#include "frit/core/strided_loop.h"
#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/elementwise/program.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

using program::Access;

static_assert(program::most_rank == Dims::max_rank);

const char* name_of_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return "double";
    case DType::f32: return "float";
    case DType::f16: return "Half";
    case DType::bf16: return "BFloat16";
    case DType::u8: return "std::uint8_t";
    default: fail(ErrorKind::bug, "no program computes with ", dtype);
  }
}

const char* name_of_access(Access access) {
  constexpr const char* names[] = {"vector", "dense", "repeated", "run", "row", "indexed"};
  return names[static_cast<std::size_t>(access)];
}

/// A tensor as the kernel takes it.
struct Place {
  Access access;
  program::Operand operand;

  /// `like` is the contiguous output by whose elements it is read, `width` of them at a time.
  Place(const Tensor& tensor, const Tensor& like, int width) : operand{tensor.raw(), 0, {}, {}} {
    const auto vector_bytes = static_cast<std::size_t>(width) * size_of(tensor.dtype());
    const bool aligned = reinterpret_cast<std::uintptr_t>(tensor.raw()) % vector_bytes == 0;
    Shape shape = like.shape();
    std::array<Strides, 1> strides = {tensor.strides()};
    collapse_axes(shape, strides);
    if (tensor.is_contiguous()) {
      access = aligned ? Access::vector : Access::dense;
      return;
    }
    operand.rank = shape.rank();
    bool steps_fit = aligned;  // wherever a vector begins, it is aligned
    for (int axis = 0; axis < shape.rank(); ++axis) {
      operand.sizes[axis] = cuda::Divisor(shape[axis]);
      operand.strides[axis] = strides[0][axis];
      steps_fit = steps_fit && (axis + 1 == shape.rank() || strides[0][axis] % width == 0);
    }
    const bool whole = shape.back() % width == 0;  // no vector passes the end of the inner axis
    const std::int64_t step = strides[0].back();
    access = shape.rank() == 1 && step == 0       ? Access::repeated
             : whole && step == 1 && steps_fit ? Access::run
             : whole && step == 0              ? Access::row
                                               : Access::indexed;
  }

  bool looks_at_axes() const { return access >= Access::run; }
};

/// Elements that a thread takes at a time: 16 bytes of the narrowest tensor that is as large as the result.
int width_for(std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool wide) {
  if (wide) return 2;
  const auto is_narrow = [](const Tensor& tensor) { return tensor.defined() && size_of(tensor.dtype()) < 4 && tensor.is_contiguous(); };
  return std::any_of(inputs.begin(), inputs.end(), is_narrow) || std::any_of(outputs.begin(), outputs.end(), is_narrow) ? 8 : 4;
}

class Source {
 public:
  Source(const ElementwiseProgram& program, std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool wide)
      : program_(program),
        wide_(wide),
        width_(width_for(inputs, outputs, wide)),
        like_(*std::find_if(outputs.begin(), outputs.end(), [](const Tensor& tensor) { return tensor.defined(); })) {
    for (const Tensor& input : inputs) inputs_.emplace_back(Place(input, like_, width_), input.dtype());
    for (const Tensor& output : outputs) {
      if (output.defined()) outputs_.emplace_back(Place(output, like_, width_), output.dtype());
    }
    write(outputs);
  }

  const std::string& text() const { return text_; }

  /// Outputs lie as the first one does, and offsets fit 32 bits.
  bool is_possible() const {
    const bool dense = std::all_of(outputs_.begin(), outputs_.end(), [](const auto& o) { return o.first.access <= Access::dense; });
    const bool looks = std::any_of(inputs_.begin(), inputs_.end(), [](const auto& i) { return i.first.looks_at_axes(); });
    return dense && (!looks || like_.elements() <= elementwise::most_indexed_elements);
  }

  void launch(const void* kernel, cudaStream_t stream) const {
    std::vector<program::Operand> operands;
    for (const auto& [place, dtype] : inputs_) operands.push_back(place.operand);
    for (const auto& [place, dtype] : outputs_) operands.push_back(place.operand);
    std::int64_t count = like_.elements();
    void* arguments[] = {operands.data(), &count};
    const std::int64_t vectors = (count + width_ - 1) / width_;
    const auto blocks = static_cast<unsigned>((vectors + program::threads - 1) / program::threads);
    FRIT_CUDA_CALL(cudaLaunchKernel(kernel, dim3(blocks), dim3(program::threads), arguments, 0, stream));
  }

 private:
  using Operands = std::vector<std::pair<Place, DType>>;

  template <class... Parts>
  void line(const Parts&... parts) {
    text_ += concat(parts..., '\n');
  }

  void write(std::span<const Tensor> outputs) {
    const char* const computed = wide_ ? "double" : "float";
    line("#include \"frit/ops/elementwise/program.cuh\"");
    line("using namespace frit;");
    line("using namespace frit::ops::program;");
    line("using T = ", computed, ";");
    line("constexpr int width = ", width_, ";");
    line("extern \"C\" __global__ void __launch_bounds__(", program::threads, ") program(const __grid_constant__ Operands<",
         inputs_.size() + outputs_.size(), "> operands, std::int64_t count) {");
    line("  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * ", program::threads, " + threadIdx.x) * width;");
    line("  if (first >= count) return;");
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      line("  const auto v", k, " = load<", of(inputs_[k]), ", T, width>(operands.of[", k, "], first, count);");
    }
    for (std::size_t n = 0; n < program_.instructions.size(); ++n) write_instruction(n);
    std::size_t written = 0;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (!outputs[k].defined()) continue;
      line("  store<", of(outputs_[written]), ">(operands.of[", inputs_.size() + written, "], first, count, v", program_.outputs[k], ");");
      ++written;
    }
    line("}");
  }

  void write_instruction(std::size_t n) {
    const ElementwiseProgram::Instruction& instruction = program_.instructions[n];
    const FunctorData functor = instruction.op->cuda.functor(instruction.attributes, wide_);
    std::array<std::uint64_t, 2> words{};
    static_assert(sizeof words == sizeof functor.state);
    std::memcpy(words.data(), functor.state.data(), sizeof words);
    std::string operands;
    for (std::size_t k = 0; k < most_instruction_operands; ++k) {
      operands += concat(", v", instruction.operands[std::min(k, instruction.operands.size() - 1)]);
    }
    line("  constexpr State s", n, " = {{", words[0], "u, ", words[1], "u}};");
    line("  const auto v", program_.inputs + static_cast<int>(n), " = apply<", int{functor.number}, ">(s", n, operands, ");");
  }

  static std::string of(const std::pair<Place, DType>& operand) {
    return concat(name_of_type(operand.second), ", Access::", name_of_access(operand.first.access));
  }

  const ElementwiseProgram& program_;
  bool wide_;
  int width_;
  const Tensor& like_;
  Operands inputs_, outputs_;
  std::string text_;
};

}  // namespace

std::string program_source(const ElementwiseProgram& program, std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool wide) {
  return Source(program, inputs, outputs, wide).text();
}

bool run_compiled_program(const ElementwiseProgram& program, std::span<const Tensor> inputs, std::span<const Tensor> outputs, bool wide,
                          cudaStream_t stream) {
  const Source source(program, inputs, outputs, wide);
  if (!source.is_possible()) return false;
  const nvrtc::CompiledKernel kernel = nvrtc::compile("program", source.text(), cuda::current_device().index);
  if (kernel.function == nullptr) return false;
  source.launch(kernel.function, stream);
  return true;
}

}  // namespace frit::ops
