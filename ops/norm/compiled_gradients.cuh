#pragma once

#include "frit/core/cuda/runtime.h"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"
#include "frit/ops/norm/column_gradients.cuh"
#include "frit/ops/norm/column_plan.cuh"
#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// The passes of column_gradients.cuh, as kernels that take the first of these arguments: sums or means, gradient, norm, split, input
/// gradient, inverse_count, parameters.
enum class ColumnPass { sums, sums_by_row, input_gradient, whole };

/// Those for a gradient, and for what becomes of the input gradient, that are programs: NVRTC compiles them.
class CompiledGradients {
 public:
  /// `output` may be undefined. `one_sample`: a matrix is one.
  CompiledGradients(const Stages& stages, const Tensor& gradient, const Tensor& input, const Tensor& output, bool one_sample)
      : dtype_(input.dtype()),
        before_(stages.before.instructions.empty()
                    ? stored_source(gradient, "Before")
                    : compiled_source(stages.before, stages.before_inputs, input.shape(), {"Before", one_sample, &input})),
        after_(stages.after.instructions.empty()
                   ? stored_sink(output, dtype_, "After")
                   : compiled_sink(stages.after, stages.after_inputs, output, input.shape(),
                                   {"After", one_sample, nullptr, output.defined() ? output.dtype() : dtype_})) {}

  /// Of the vectors of columns, which are short where a thread keeps much of their channels.
  int width(const ColumnGeometry& g) const {
    const bool keeps_much = before_.kept_vectors + after_.kept_vectors > 0 || after_.argument.size() > 2;
    int width = (size_of(dtype_) < 4 && keeps_much ? 8 : 16) / static_cast<int>(size_of(dtype_));
    while (g.columns % width != 0) width /= 2;
    return width;
  }

  const void* kernel(ColumnPass pass, int width) const {
    const nvrtc::CompiledKernel compiled = nvrtc::compile("pass", source(pass, width), cuda::current_device().index);
    if (compiled.function == nullptr) fail(ErrorKind::bug, "a norm's gradient with its stages was not compiled: ", compiled.obstacle);
    return compiled.function;
  }

  const void* gradient() const { return before_.argument.data(); }
  const void* input_gradient() const { return after_.argument.data(); }

 private:
  std::string source(ColumnPass pass, int width) const {
    const bool is_wide = dtype_ == DType::f64, sums = pass == ColumnPass::sums || pass == ColumnPass::sums_by_row;
    const int rows_of_sums = width * size_of(dtype_) < 16 ? 4 : 2;
    const std::string text =
        concat(stage_text_head, "#include \"frit/ops/norm/column_gradients.cuh\"\n", before_.text, sums ? "" : after_.text,
               "using Element = ", name_in_programs(dtype_), ";\nusing C = ", is_wide ? "double" : "float",
               ";\nconstexpr int vector = ", width, ";\nextern \"C\" __global__ void __launch_bounds__(ColumnSplit::threads",
               is_wide ? ""
               : sums  ? ", 3"
                       : ", 2",
               ")\n    pass(SumPair* sums, const __grid_constant__ Before gradient, const __grid_constant__ NormOfColumns<Element> norm,"
               " const __grid_constant__ ColumnSplit split");
    if (sums) {
      return concat(text, ") {\n  write_column_sums(sums, ColumnGradients<Element, C, vector, ",
                    pass == ColumnPass::sums_by_row ? "true, " : "false, ", rows_of_sums, ", Before>{gradient, norm}, split);\n}\n");
    }
    if (pass == ColumnPass::input_gradient) {
      return concat(text,
                    ", const __grid_constant__ After input_gradient) {\n"
                    "  write_column_gradients<C, vector>(input_gradient, gradient, norm, sums, split);\n}\n");
    }
    return concat(text,
                  ", const __grid_constant__ After input_gradient, double inverse_count, FinishParameters<Element> parameters) {\n"
                  "  write_whole_column_gradients<C, vector>(input_gradient, sums, parameters,"
                  " WholeColumnGradients<Element, C, vector, Before>{gradient, norm}, inverse_count, split);\n}\n");
  }

  DType dtype_;
  CompiledStage before_, after_;
};

}  // namespace frit::ops
