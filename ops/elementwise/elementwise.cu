// Programs of elementwise operations. Large ones have a kernel of their own, where it can be compiled; for all others an interpreter runs
// the functors of the operators' own kernels.

#include "frit/ops/cuda/async_copy.cuh"
#include "frit/ops/elementwise/compiled_program.cuh"
#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/elementwise/pointwise.cuh"
#include "frit/ops/elementwise/program.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"
#include "frit/ops/operator/operator.h"

namespace frit::ops {
namespace {

constexpr int threads = 128;
constexpr int vectors = 2;                ///< that a thread carries through the program at a time
constexpr std::uint8_t nowhere = 0xff;    ///< no slot, no output
constexpr std::size_t vector_bytes = 16;  ///< of a slot's room for one vector

/// As many elements as one slot's vector holds.
template <class T>
using Lane = cuda::WideVector<T>;

/// A tensor that is read or written.
struct Operand {
  void* data;
  elementwise::OperandPlan<1> plan;
  std::int64_t step;  ///< from one element to the next along the inner axis
  bool in_runs;       ///< no vector of elements passes the end of the inner axis
  DType dtype;
  std::uint8_t slot;  ///< of an input, or where an output's elements wait for being scattered

  __device__ elementwise::Access access() const { return plan.access[0]; }
  __device__ std::int64_t offset_of(std::int64_t element) const {
    if (access() != elementwise::Access::indexed) return element * step;
    std::int64_t offset[1][1];
    plan.find(element, offset);
    return offset[0][0];
  }
};

/// What an instruction reads: a slot that holds elements of a dtype, or, as `nowhere`, the result before.
struct Place {
  std::uint8_t slot;
  DType dtype;
};

struct Instruction {
  FunctorData functor;
  Place operands[most_instruction_operands];
  std::uint8_t operand_count;
  std::uint8_t slot, output;  ///< that the result is written to
};

/// A program as the kernel takes it.
struct DeviceProgram {
  int inputs, instructions;
  Operand input[most_program_inputs], output[most_program_outputs];
  Instruction instruction[most_instructions];
};
static_assert(sizeof(DeviceProgram) < 4000, "kernel arguments take 4 KB");

/// Calls `body` for the type of elements in memory that are computed with as T.
template <class T, class Body>
__device__ void with_storage(DType dtype, const Body& body) {
  if (dtype == DType::u8) return body.template operator()<std::uint8_t>();
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == DType::f16) return body.template operator()<Half>();
    if (dtype == DType::bf16) return body.template operator()<BFloat16>();
  }
  body.template operator()<T>();
}

/// Elements first ... of an input, as they are, one by one.
template <class T, class Stored>
__device__ void gather(const Operand& input, std::int64_t first, std::int64_t count, Stored* place) {
  constexpr int width = cuda::vector_width<T>;
  const auto* const data = static_cast<const Stored*>(input.data);
  if (input.in_runs) {
    const std::int64_t begin = input.offset_of(first);
#pragma unroll
    for (int i = 0; i < width; ++i) place[i] = first + i < count ? data[begin + i * input.step] : Stored{};
  } else {
#pragma unroll 1
    for (int i = 0; i < width; ++i) place[i] = first + i < count ? data[input.offset_of(first + i)] : Stored{};
  }
}

/// Starts to bring elements first ... of an input to shared memory, as they are.
template <class T, class Stored>
__device__ void stage(const Operand& input, std::int64_t first, std::int64_t count, std::byte* place) {
  constexpr int width = cuda::vector_width<T>;
  constexpr int bytes = width * static_cast<int>(sizeof(Stored));
  const auto* const from = static_cast<const Stored*>(input.data) + first;
  const bool whole = input.access() == elementwise::Access::vector && first + width <= count;
  if constexpr (bytes == 16) {
    if (whole) return cuda::copy_16_bytes(place, from);
  } else if constexpr (bytes >= 4) {
    if (whole) return cuda::copy_bytes<bytes>(place, from);
  }
  gather<T>(input, first, count, reinterpret_cast<Stored*>(place));
}

template <class T>
__device__ Lane<T> fetch(DType dtype, const std::byte* place) {
  Lane<T> lane;
  with_storage<T>(dtype, [&]<class Stored>() {
    lane = converted<T, cuda::vector_width<T>>(*reinterpret_cast<const cuda::Vector<Stored, cuda::vector_width<T>>*>(place));
  });
  return lane;
}

/// Writes elements first ... of an output; `place` is its slot's.
template <class T>
__device__ void write(const Operand& output, std::int64_t first, std::int64_t count, const Lane<T>& lane, std::byte* place) {
  constexpr int width = cuda::vector_width<T>;
  with_storage<T>(output.dtype, [&]<class Stored>() {
    auto* const data = static_cast<Stored*>(output.data);
    const auto stored = converted<Stored, width>(lane);
    if (output.access() <= elementwise::Access::dense) {
      return elementwise::store(data + first, stored, count - first, output.access() == elementwise::Access::vector);
    }
    *reinterpret_cast<cuda::Vector<Stored, width>*>(place) = stored;
#pragma unroll 1
    for (int i = 0; i < width && first + i < count; ++i) data[output.offset_of(first + i)] = reinterpret_cast<const Stored*>(place)[i];
  });
}

/// Applies the functor, one of those from `low` to `high` - 1, that the data name.
template <int low, int high, class T>
__device__ void execute(const FunctorData& data, Lane<T> (&result)[vectors], const Lane<T> (&a)[vectors], const Lane<T> (&b)[vectors],
                        const Lane<T> (&c)[vectors]) {
  if constexpr (high - low == 1) {
    const std::type_identity<std::tuple_element_t<low, ElementwiseFunctions>> function;
#pragma unroll
    for (int v = 0; v < vectors; ++v) result[v] = program::apply(function, &data.state, a[v], b[v], c[v]);
  } else {
    constexpr int middle = (low + high) / 2;
    if (data.number < middle) {
      execute<low, middle>(data, result, a, b, c);
    } else {
      execute<middle, high>(data, result, a, b, c);
    }
  }
}

/// A thread carries `vectors` vectors of 16 bytes, a block's width apart, through the program. It brings them of every input to its own
/// places in shared memory, [slot][vector][thread], all at once and past the registers; results stay in registers for the next instruction,
/// and in slots for later ones. All threads take the same way through the program. Each input is read once and each output written once;
/// an output may lie on an input. Deterministic.
template <class T>
__global__ void __launch_bounds__(threads) program_kernel(const __grid_constant__ DeviceProgram program, std::int64_t count) {
  extern __shared__ uint4 slots[];
  constexpr int width = cuda::vector_width<T>;
  const auto place = [](int slot, int v) { return reinterpret_cast<std::byte*>(slots + (slot * vectors + v) * threads + threadIdx.x); };
  constexpr std::int64_t apart = threads * width;
  const std::int64_t begin = blockIdx.x * apart * vectors + threadIdx.x * width;
  for (std::int64_t first = begin; first < count; first += gridDim.x * apart * vectors) {
    for (int k = 0; k < program.inputs; ++k) {
      const Operand& input = program.input[k];
      with_storage<T>(input.dtype, [&]<class Stored>() {
#pragma unroll 1
        for (int v = 0; v < vectors; ++v) stage<T, Stored>(input, first + v * apart, count, place(input.slot, v));
      });
    }
    cuda::wait_for_copies();
    Lane<T> result[vectors];
    for (int n = 0; n < program.instructions; ++n) {
      const Instruction& instruction = program.instruction[n];
      Lane<T> operands[most_instruction_operands][vectors];
#pragma unroll
      for (int k = 0; k < most_instruction_operands; ++k) {
        if (k >= instruction.operand_count) break;
        const Place from = instruction.operands[k];
#pragma unroll
        for (int v = 0; v < vectors; ++v) operands[k][v] = from.slot == nowhere ? result[v] : fetch<T>(from.dtype, place(from.slot, v));
      }
      execute<0, std::tuple_size_v<ElementwiseFunctions>>(instruction.functor, result, operands[0], operands[1], operands[2]);
#pragma unroll
      for (int v = 0; v < vectors; ++v) {
        if (instruction.slot != nowhere) *reinterpret_cast<Lane<T>*>(place(instruction.slot, v)) = result[v];
        if (instruction.output != nowhere) {
          const Operand& output = program.output[instruction.output];
          write<T>(output, first + v * apart, count, result[v], place(output.slot, v));
        }
      }
    }
  }
}

template <class T>
class Launch {
 public:
  explicit Launch(const ProgramCall& call)
      : slots_(call.program, kept(call.program), /*outputs_stay=*/false),
        program_{call.program.inputs, static_cast<int>(call.program.instructions.size()), {}, {}, {}} {
    const ElementwiseProgram& program = call.program;
    for (std::size_t k = 0; k < call.inputs.size(); ++k) program_.input[k] = operand(call.inputs[k], call.like, slots_.slots[k]);
    for (std::size_t k = 0; k < call.outputs.size(); ++k) {
      if (!call.outputs[k].defined()) continue;
      program_.output[k] = operand(call.outputs[k], call.like, slots_.count);
      scatters_ = scatters_ || program_.output[k].plan.access[0] > elementwise::Access::dense;
    }
    const std::vector<int> outputs = program.output_numbers();
    for (int n = 0; n < program_.instructions; ++n) {
      const ElementwiseProgram::Instruction& source = program.instructions[static_cast<std::size_t>(n)];
      Instruction& instruction = program_.instruction[n];
      const auto value = static_cast<std::size_t>(program.inputs + n);
      const bool written = outputs[value] >= 0 && call.outputs[static_cast<std::size_t>(outputs[value])].defined();
      instruction.functor = source.op->cuda.functor(source.attributes, std::is_same_v<T, double>);
      instruction.operand_count = static_cast<std::uint8_t>(source.operands.size());
      instruction.slot = slot(value);
      instruction.output = written ? static_cast<std::uint8_t>(outputs[value]) : nowhere;
      for (std::size_t k = 0; k < source.operands.size(); ++k) {
        const auto read = static_cast<std::size_t>(source.operands[k]);
        const bool input = source.operands[k] < program.inputs;
        instruction.operands[k] = {read + 1 == value && !input ? nowhere : slot(read), input ? call.inputs[read].dtype() : dtype_of<T>()};
      }
    }
  }

  bool any_indexed() const { return any_indexed_; }

  void run(cudaStream_t stream, std::int64_t count) const {
    constexpr std::int64_t items = cuda::vector_width<T> * vectors;
    cuda::LaunchShape shape = cuda::loop_shape((count + items - 1) / items, threads);
    shape.shared_bytes = static_cast<std::size_t>(slots_.count + (scatters_ ? 1 : 0)) * vectors * threads * vector_bytes;
    cuda::launch(program_kernel<T>, shape, stream, program_, count);
  }

 private:
  /// A result that only the next instruction reads stays in registers.
  static std::vector<bool> kept(const ElementwiseProgram& program) {
    std::vector<bool> result;
    const std::vector<int> last_reads = program.last_reads();
    for (int value = 0; value < program.values(); ++value) {
      result.push_back(value < program.inputs || last_reads[static_cast<std::size_t>(value)] > value - program.inputs + 1);
    }
    return result;
  }

  std::uint8_t slot(std::size_t value) const { return slots_.slots[value] < 0 ? nowhere : static_cast<std::uint8_t>(slots_.slots[value]); }

  Operand operand(const Tensor& tensor, const Tensor& like, int slot) {
    const elementwise::OperandPlan<1> plan(like, {tensor}, cuda::vector_width<T>);
    any_indexed_ = any_indexed_ || plan.any_indexed;
    Shape shape = like.shape();
    std::array<Strides, 1> strides = {tensor.strides()};
    collapse_axes(shape, strides);
    const bool in_runs = shape.rank() == 1 || shape.back() % cuda::vector_width<T> == 0;
    return {tensor.raw(), plan, strides[0].back(), in_runs, tensor.dtype(), static_cast<std::uint8_t>(slot)};
  }

  SlotPlan slots_;
  DeviceProgram program_;
  bool any_indexed_ = false, scatters_ = false;
};

ProgramCall slice(ProgramCall call, int axis, std::int64_t begin, std::int64_t end) {
  const auto cut = [&](Tensor& tensor) { tensor = tensor.defined() ? tensor.slice(axis, begin, end) : tensor; };
  std::ranges::for_each(call.inputs, cut);
  std::ranges::for_each(call.outputs, cut);
  cut(call.like);
  return call;
}

template <class T>
void interpret(const ProgramCall& call, cudaStream_t stream) {
  const std::int64_t count = call.like.elements();
  if (count == 0) return;
  const Launch<T> launch(call);
  if (!launch.any_indexed() || count <= elementwise::most_indexed_elements) return launch.run(stream, count);
  int axis = 0;
  while (call.like.shape()[axis] == 1) ++axis;
  const std::int64_t size = call.like.shape()[axis], half = size / 2;
  interpret<T>(slice(call, axis, 0, half), stream);
  interpret<T>(slice(call, axis, half, size), stream);
}

ProgramCall call_of(const KernelContext& context) { return {context.as<ElementwiseAttributes>().program, context.inputs, context.outputs}; }

bool is_large(const ProgramCall& call) { return call.like.defined() && call.like.elements() >= smallest_compiled; }

void prepare_cuda_program(const KernelContext& context) {
  const ProgramCall call = call_of(context);
  if (is_large(call)) compile_program(call);
}

std::string describe_cuda_program(const KernelContext& context) {
  const ProgramCall call = call_of(context);
  if (!is_large(call)) return "interpreted, small";
  if (compile_program(call)) return "compiled";
  return nvrtc::is_available(call.like.device().index) ? "interpreted, as its tensors lie" : "interpreted, without NVRTC";
}

/// A kernel of its own, which goes through rows of channels.
bool takes_parts(const KernelContext& context) {
  const ProgramCall call = call_of(context);
  return is_large(call) && nvrtc::is_available(call.like.device().index) && compiles_program(call);
}

void run_cuda_program(const KernelContext& context) {
  const ProgramCall call = call_of(context);
  if (!call.like.defined() || (is_large(call) && run_compiled_program(call, context.stream))) return;
  call.wide ? interpret<double>(call, context.stream) : interpret<float>(call, context.stream);
}

}  // namespace
}  // namespace frit::ops

FRIT_CUDA_KERNELS(elementwise) {
  Kernel kernel = map_kernel(run_cuda_program, most_program_inputs, /*halves=*/true);
  kernel.prepare = prepare_cuda_program;
  kernel.describe = describe_cuda_program;
  kernel.takes_parts = takes_parts;
  for (int output = 1; output < most_program_outputs; ++output) kernel.any_layout_outputs.push_back(output);
  registry.add_cuda("elementwise", std::move(kernel));
}
