// Programs of elementwise operators as kernels of their own. The text of one names the functors in turn, in terms of program.cuh; what it
// depends on are the program, the dtypes and how the operands lie, not their sizes, so that one kernel serves many layers.

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/tile.cuh"
#include "frit/core/strided_loop.h"
#include "frit/ops/cuda/elementwise.cuh"
#include "frit/ops/elementwise/compiled_program.cuh"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/elementwise/program_matrices.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

using program::Access;

static_assert(program::most_rank == Dims::max_rank);

const char* name_of_access(Access access) {
  constexpr const char* names[] = {"vector", "dense", "repeated", "run", "row", "indexed", "turned", "column"};
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
    access = shape.rank() == 1 && step == 0    ? Access::repeated
             : whole && step == 1 && steps_fit ? Access::run
             : whole && step == 0              ? Access::row
                                               : Access::indexed;
  }

  bool looks_at_axes() const { return access >= Access::run; }
};

/// Elements that a thread takes at a time: 16 bytes of the narrowest tensor that is as large as the result.
int width_for(const ProgramCall& call) {
  if (call.wide) return 2;
  const auto is_narrow = [](const Tensor& tensor) { return tensor.defined() && size_of(tensor.dtype()) < 4 && tensor.is_contiguous(); };
  return std::ranges::any_of(call.inputs, is_narrow) || std::ranges::any_of(call.outputs, is_narrow) ? 8 : 4;
}

class Source {
 public:
  explicit Source(const ProgramCall& call)
      : program_(call.program), wide_(call.wide), width_(width_for(call)), inputs_(call.inputs.size()), tensors_(call.inputs) {
    for (std::size_t k = 0; k < call.outputs.size(); ++k) {
      if (!call.outputs[k].defined()) continue;
      tensors_.push_back(call.outputs[k]);
      results_.push_back(program_.outputs[k]);
    }
    const std::optional<program::Matrices> matrices = program::Matrices::of(tensors_, inputs_);
    tiling_ = program::Tiling::of(matrices, tensors_, width_);
    stripping_ = program::Stripping::of(matrices, tensors_, width_);
    if (tiling_) width_ = tiling_->width;
    if (stripping_) width_ = stripping_->width;
    for (const Tensor& tensor : tensors_) places_.emplace_back(tensor, like(), width_);
    tiling_ ? write_in_tiles() : stripping_ ? write_in_strips() : write_in_order();
  }

  const std::string& text() const { return text_; }

  /// Outputs lie as the first one does, and offsets fit 32 bits.
  bool is_possible() const {
    if (tiling_ || stripping_) return true;
    const bool dense =
        std::all_of(places_.begin() + inputs(), places_.end(), [](const Place& output) { return output.access <= Access::dense; });
    const bool looks = std::any_of(places_.begin(), places_.begin() + inputs(), [](const Place& input) { return input.looks_at_axes(); });
    return dense && (!looks || like().elements() <= elementwise::most_indexed_elements);
  }

  void launch(const void* kernel, cudaStream_t stream) const {
    const auto start = [&](std::int64_t blocks, int threads, const void* operands, const void* sizes) {
      void* arguments[] = {const_cast<void*>(operands), const_cast<void*>(sizes)};
      FRIT_CUDA_CALL(
          cudaLaunchKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(static_cast<unsigned>(threads)), arguments, 0, stream));
    };
    if (tiling_) return start(tiling_->blocks(), cuda::tile_threads, tiling_->matrices.operands.data(), &tiling_->matrices.grid);
    if (stripping_) {
      const program::Strips strips = stripping_->strips(cuda::properties(like().device().index).multiprocessors);
      return start(strips.blocks(width_), program::threads, stripping_->matrices.operands.data(), &strips);
    }
    std::vector<program::Operand> operands;
    for (const Place& place : places_) operands.push_back(place.operand);
    const std::int64_t count = like().elements(), vectors = (count + width_ - 1) / width_;
    start((vectors + program::threads - 1) / program::threads, program::threads, operands.data(), &count);
  }

 private:
  std::ptrdiff_t inputs() const { return static_cast<std::ptrdiff_t>(inputs_); }
  const Tensor& like() const { return tensors_[inputs_]; }

  template <class... Parts>
  void line(const Parts&... parts) {
    text_ += concat(parts..., '\n');
  }

  /// Up to the kernel's body. `parameter` says of the sizes what the kernel takes.
  void write_head(const std::string& threads, const char* parameter, const std::string& constants = "") {
    line("#include \"frit/ops/elementwise/program.cuh\"");
    line("using namespace frit;");
    line("using namespace frit::ops::program;");
    line("using T = ", wide_ ? "double" : "float", ";");
    line("constexpr int width = ", width_, ";");
    text_ += constants;
    line("extern \"C\" __global__ void __launch_bounds__(", threads, ") program(const __grid_constant__ Operands<", tensors_.size(),
         "> operands, ", parameter, ") {");
  }

  void write_in_order() {
    write_head(concat(program::threads), "std::int64_t count");
    line("  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * ", program::threads, " + threadIdx.x) * width;");
    line("  if (first >= count) return;");
    for (std::size_t k = 0; k < inputs_; ++k) {
      line("  const auto v", k, " = load<", stored(k), ", ", access_name(places_[k].access), ", T, width>(operands.of[", k,
           "], first, count);");
    }
    write_instructions();
    for (std::size_t k = inputs_; k < tensors_.size(); ++k) {
      line("  store<", stored(k), ", ", access_name(places_[k].access), ">(operands.of[", k, "], first, count, v", results_[k - inputs_],
           ");");
    }
    line("}");
  }

  /// Inputs that lie across are turned in shared memory first.
  void write_in_tiles() {
    write_head("cuda::tile_threads", "const __grid_constant__ cuda::TileGrid grid",
               concat("constexpr int rows = ", tiling_->rows, ", columns = cuda::tile_elements / rows;\n"));
    line("  const cuda::TilePlace<rows, columns> at(grid);");
    for (std::size_t k = 0; k < inputs_; ++k) {
      if (!is_turned(k)) continue;
      line("  __shared__ cuda::TurnedTile<", stored(k), ", rows, columns> t", k, ";");
      line("  t", k, ".load<", tiling_->turned_width(k, tensors_[k]), ">(static_cast<const ", stored(k), "*>(operands.of[", k,
           "].data), operands.of[", k, "].tile_strides(), at);");
    }
    line("  __syncthreads();");
    line("  constexpr int vectors = columns / width, step = cuda::tile_threads / vectors;");
    line("  const int column = static_cast<int>(threadIdx.x) % vectors * width, first_row = static_cast<int>(threadIdx.x) / vectors;");
    line("  if (column >= at.columns) return;");
    for (std::size_t k = 0; k < tensors_.size(); ++k) {
      if (!is_turned(k)) line("  RowIterator<", stored(k), "> r", k, "(operands.of[", k, "], at, first_row, column, step);");
    }
    line("#pragma unroll 4");
    line("  for (int row = first_row; row < at.rows; row += step) {");
    for (std::size_t k = 0; k < inputs_; ++k) {
      if (is_turned(k)) {
        line("  const auto v", k, " = converted<T, width>(t", k, ".row_elements<width>(row, column));");
      } else {
        line("  const auto v", k, " = load_of_row<", access_name(tiling_->matrices.access[k]), ", T, width>(r", k, ");");
      }
    }
    write_instructions();
    for (std::size_t k = inputs_; k < tensors_.size(); ++k) line("  store_row(r", k, ", v", results_[k - inputs_], ");");
    for (std::size_t k = 0; k < tensors_.size(); ++k) {
      if (!is_turned(k)) line("  r", k, ".advance();");
    }
    line("  }");
    line("}");
  }

  /// Inputs that are the same in all rows are read before the first row.
  void write_in_strips() {
    const auto is_column = [&](std::size_t k) { return stripping_->matrices.access[k] == Access::column; };
    const auto load = [&](std::size_t k) {
      line("  const auto v", k, " = load_of_rows<", access_name(stripping_->matrices.access[k]), ", T, width>(r", k, ", rows, at.step);");
    };
    write_head(concat(program::threads), "const __grid_constant__ Strips strips");
    line("  const StripPlace at(strips, width);");
    line("  int rows = at.rows;");
    line("  if (rows <= 0) return;");
    for (std::size_t k = 0; k < tensors_.size(); ++k) {
      line("  RowIterator<", stored(k), "> r", k, "(operands.of[", k, "], at, 0, 0, at.step);");
      if (is_column(k)) load(k);
    }
    line("#pragma unroll 1");
    line("  for (; rows > 0; rows -= rows_at_once(width) * at.step) {");
    for (std::size_t k = 0; k < inputs_; ++k) {
      if (!is_column(k)) load(k);
    }
    write_instructions();
    for (std::size_t k = inputs_; k < tensors_.size(); ++k) {
      line("  store_rows<width>(r", k, ", rows, at.step, v", results_[k - inputs_], ");");
    }
    for (std::size_t k = 0; k < tensors_.size(); ++k) {
      if (!is_column(k)) line("  r", k, ".advance(rows_at_once(width));");
    }
    line("  }");
    line("}");
  }

  bool is_turned(std::size_t k) const { return tiling_->matrices.access[k] == Access::turned; }

  void write_instructions() {
    std::vector<bool> numbers;
    for (std::size_t k = 0; k < inputs_; ++k) numbers.push_back(places_[k].access == Access::repeated);
    for (std::size_t n = 0; n < program_.instructions.size(); ++n) text_ += instruction_text(program_, n, wide_, numbers);
  }

  const char* stored(std::size_t k) const { return name_in_programs(tensors_[k].dtype()); }
  static std::string access_name(Access access) { return concat("Access::", name_of_access(access)); }

  const ElementwiseProgram& program_;
  bool wide_;
  int width_;
  std::size_t inputs_;  // of the tensors; the rest are outputs that are defined
  std::vector<Tensor> tensors_;
  std::vector<int> results_;   // by output: its number in the program
  std::vector<Place> places_;  // by tensor
  std::optional<program::Tiling> tiling_;
  std::optional<program::Stripping> stripping_;
  std::string text_;
};

}  // namespace

const char* name_in_programs(DType dtype) {
  switch (dtype) {
    case DType::f64: return "double";
    case DType::f32: return "float";
    case DType::f16: return "Half";
    case DType::bf16: return "BFloat16";
    case DType::u8: return "std::uint8_t";
    default: fail(ErrorKind::bug, "no program computes with ", dtype);
  }
}

std::string instruction_text(const ElementwiseProgram& program, std::size_t n, bool wide, const std::vector<bool>& numbers) {
  const ElementwiseProgram::Instruction& instruction = program.instructions[n];
  const std::string result = concat("  const auto v", program.inputs + static_cast<int>(n), " = ");
  if (instruction.op->binary == BinaryFunction::divide) {
    const auto divisor = static_cast<std::size_t>(instruction.operands[1]);
    if (divisor < numbers.size() && numbers[divisor]) {
      return concat(result, "divide_by_number(v", instruction.operands[0], ", v", divisor, ");\n");
    }
  }
  const FunctorData functor = instruction.op->cuda.functor(instruction.attributes, wide);
  std::array<std::uint64_t, 2> words{};
  static_assert(sizeof words == sizeof functor.state);
  std::memcpy(words.data(), functor.state.data(), sizeof words);
  std::string operands;
  for (std::size_t k = 0; k < most_instruction_operands; ++k) {
    operands += concat(", v", instruction.operands[std::min(k, instruction.operands.size() - 1)]);
  }
  return concat("  constexpr State s", n, " = {{", words[0], "u, ", words[1], "u}};\n", result, "apply<", int{functor.number}, ">(s", n,
                operands, ");\n");
}

ProgramCall::ProgramCall(const ElementwiseProgram& called, std::span<const Tensor> given, std::span<const Tensor> results)
    : program(called) {
  Dims axes;
  Shape shape;
  for (const Tensor& result : results) {
    if (result.defined() && !like.defined()) {
      axes = memory_order(result);
      shape = result.shape();
      like = result.permute(axes);
    }
    wide = wide || (result.defined() && result.dtype() == DType::f64);
    outputs.push_back(result.defined() ? result.permute(axes) : result);
  }
  if (!like.defined()) return;
  for (const Tensor& input : given) {
    wide = wide || input.dtype() == DType::f64;
    inputs.push_back(input.expand(shape).permute(axes));
  }
}

std::string program_source(const ProgramCall& call) { return Source(call).text(); }

bool compiles_program(const ProgramCall& call) { return Source(call).is_possible(); }

bool run_compiled_program(const ProgramCall& call, cudaStream_t stream) {
  const Source source(call);
  if (!source.is_possible()) return false;
  const nvrtc::CompiledKernel kernel = nvrtc::compile("program", source.text(), cuda::current_device().index);
  if (kernel.function == nullptr) return false;
  source.launch(kernel.function, stream);
  return true;
}

bool compile_program(const ProgramCall& call) {
  const Source source(call);
  const int device = call.like.device().index;
  (void)cuda::compute_stream(device);  // makes the device the thread's
  return source.is_possible() && nvrtc::compile("program", source.text(), device).function != nullptr;
}

namespace {

/// One elementwise operator as a program.
ElementwiseProgram program_of(const KernelContext& call) {
  ElementwiseProgram program;
  program.inputs = static_cast<int>(call.inputs.size());
  program.outputs = {program.inputs};
  program.instructions.push_back({&call.op, call.attributes, {}});
  for (int k = 0; k < program.inputs; ++k) program.instructions[0].operands.push_back(k);
  return program;
}

/// See run_compiled.
bool is_to_be_compiled(const KernelContext& call) {
  const Tensor& output = call.outputs[0];
  const auto lies_otherwise = [&](const Tensor& input) {
    return input.elements() != 1 && (!(input.shape() == output.shape()) || input.is_contiguous() != output.is_contiguous());
  };
  const auto is_known = [](const Tensor& tensor) { return is_floating(tensor.dtype()) || tensor.dtype() == DType::u8; };
  const bool is_whole = output.is_contiguous(output.layout());
  if (output.elements() < smallest_compiled || (is_whole && std::ranges::none_of(call.inputs, lies_otherwise))) return false;
  return is_known(output) && std::ranges::all_of(call.inputs, is_known);
}

}  // namespace

bool run_compiled(const KernelContext& call) {
  return is_to_be_compiled(call) && run_compiled_program({program_of(call), call.inputs, call.outputs.first(1)}, call.stream);
}

bool takes_parts_compiled(const KernelContext& call) {
  return nvrtc::is_available(call.outputs[0].device().index) && is_to_be_compiled(call) &&
         compiles_program({program_of(call), call.inputs, call.outputs.first(1)});
}

}  // namespace frit::ops
