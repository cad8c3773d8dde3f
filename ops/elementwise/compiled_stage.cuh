#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "frit/core/tensor.h"
#include "frit/ops/operator/elementwise_program.h"

namespace frit::ops {

/// A program as a stage of a kernel that NVRTC compiles (see ops/cuda/stages.cuh): the text of a struct, which depends on how operands lie
/// and not on sizes, and its bytes, as the kernel takes it.
struct CompiledStage {
  std::string text;
  std::vector<std::uint64_t> argument;
  int kept_vectors = 0;  ///< operands of which a thread keeps a vector of channels
};

struct StageOptions {
  std::string name;              ///< of the struct
  bool keeps_to_sample = false;  ///< a thread's vectors are all of one sample
  const Tensor* beside =
      nullptr;  ///< another image that the kernel reads at the same places: an operand that is this one is not read twice
  std::optional<DType> result = {};  ///< of a Sink, what it writes
};

/// The Source that a program is, for images of this shape in channels-last layout: its inputs are the operands.
CompiledStage compiled_source(const ElementwiseProgram& program, std::span<const Tensor> operands, const Shape& image,
                              const StageOptions& options);
/// The Sink: input 0 of the program is what the kernel gives, the others are the operands, and the result goes to `output`, which may be
/// undefined.
CompiledStage compiled_sink(const ElementwiseProgram& program, std::span<const Tensor> operands, const Tensor& output, const Shape& image,
                            const StageOptions& options);
/// Of a kernel that goes over images by itself and reads nothing else: the program's outputs, each written unless it is undefined, and the
/// `summed` ones among them. The struct has the Computed, Channels and Words of a Source, and
///   sums; evaluate<width>(place, words, channels, totals)   adds up in totals[sums][width] what is summed
CompiledStage compiled_sums(const ElementwiseProgram& program, std::span<const Tensor> operands, std::span<const Tensor> outputs,
                            const Dims& summed, const Shape& image, const StageOptions& options);
/// The Source or Sink that a tensor is.
CompiledStage stored_source(const Tensor& input, const std::string& name);
CompiledStage stored_sink(const Tensor& output, DType dtype, const std::string& name);

/// Whether operands lie as stages read them: as the image does, channels-last, aligned and dense, or with a number for each pixel, channel,
/// sample or both.
bool is_stage_possible(std::span<const Tensor> operands, const Shape& image);

/// "Half"; of the types that programs compute with.
const char* name_in_programs(DType dtype);
/// Instruction n, on v0, v1, ... and T. `numbers` says of the program's inputs which are the same for all elements.
std::string instruction_text(const ElementwiseProgram& program, std::size_t n, bool wide, const std::vector<bool>& numbers);
/// What the text of a kernel with stages begins with.
inline constexpr const char* stage_text_head =
    "#include \"frit/ops/elementwise/program_stage.cuh\"\n"
    "using namespace frit;\n"
    "using namespace frit::ops;\n"
    "using namespace frit::ops::program;\n";

}  // namespace frit::ops
