#pragma once

#include "frit/ops/elementwise/elementwise.h"
#include "frit/ops/operator/kernel.h"
#include "frit/ops/operator/reduced_program.h"

namespace frit::ops {

struct ElementwiseSumsAttributes {
  ReducedProgram call = {};

  void fields(FieldVisitor& v);
};

/// Whether so many elements are enough for a kernel of their own, whose threads read 8 at a time.
inline bool is_summed_at_once(std::int64_t elements) {
  constexpr std::int64_t smallest = 1 << 16;
  return elements >= smallest && elements % 8 == 0;
}

/// How results of a program lie for their reduction: as images (N, C, ...), over the pixels of all samples or of each; as rows of channels,
/// (..., C), over all rows; or over all elements, as images too, or in whatever order where operands have all elements or one.
class SummedImages {
 public:
  /// None for a reduction over other axes, or of another kind. `shape` is that of the results.
  static std::optional<SummedImages> of(const Shape& shape, std::span<const TensorType> operands, const OperatorCall& reduction);

  /// Rows, and elements in whatever order, are images of one pixel.
  const Shape& image() const { return image_; }
  bool are_rows() const { return are_rows_; }
  bool of_each_sample() const { return of_each_sample_; }
  /// To one number.
  bool of_everything() const { return of_everything_; }
  bool in_any_order() const { return in_any_order_; }
  /// Whether they are large enough for a kernel of their own, and have vectors of channels.
  bool are_summed_at_once() const { return image_.rank() >= 4 && image_[1] % 8 == 0 && is_summed_at_once(element_count(image_)); }
  /// The shape as which an operand of the program is read, along the image; none if it does not lie so.
  std::optional<Shape> operand(const Shape& operand) const;

 private:
  Shape shape_, image_;
  bool are_rows_ = false, of_each_sample_ = false, of_everything_ = false, in_any_order_ = false;
};

/// The types of all outputs of the program.
std::vector<TensorType> program_outputs(const ReducedProgram& call, std::span<const TensorType> inputs);

/// A call without a kernel that computes all of it at once: the program, and then each reduction; what is not stored lies in scratch
/// memory.
std::size_t scratch_of_sums_in_parts(const InferContext& context, Device device);
void run_sums_in_parts(const KernelContext& context);

/// With all that is the same on every device; `rows`: of rows of channels.
Kernel elementwise_sums_kernel(KernelFunction run, std::function<std::size_t(const InferContext&)> scratch, bool rows);

/// The source of the CUDA kernel that computes a call at once, which is named as the operator; empty where there is none.
std::string source_of_sums(const KernelContext& context);

}  // namespace frit::ops
