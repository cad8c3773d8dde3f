#pragma once

#include "frit/core/cuda/runtime.h"
#include "frit/ops/elementwise/compiled_stage.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"
#include "frit/ops/norm/column_gradients.cuh"
#include "frit/ops/norm/column_plan.cuh"
#include "frit/ops/operator/operator.h"

namespace frit::ops {

/// The passes of column_gradients.cuh for a gradient, and for what becomes of the input gradient, that are programs: kernels that NVRTC
/// compiles.
class CompiledGradients {
 public:
  enum Pass { sums, input_gradient, whole };

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
    const int most = (size_of(dtype_) < 4 && keeps_much ? 8 : 16) / static_cast<int>(size_of(dtype_));
    return g.columns % most == 0 ? most : 1;
  }

  std::string source(Pass pass, int width) const {
    const bool is_wide = dtype_ == DType::f64;
    const int rows_of_sums = width * size_of(dtype_) < 16 ? 4 : 2;
    std::string text =
        concat(stage_text_head, "#include \"frit/ops/norm/column_gradients.cuh\"\n", before_.text, pass == sums ? "" : after_.text,
               "using Element = ", name_in_programs(dtype_), ";\nusing C = ", is_wide ? "double" : "float",
               ";\nconstexpr int vector = ", width, ";\nextern \"C\" __global__ void __launch_bounds__(ColumnSplit::threads");
    switch (pass) {
      case sums:
        return text + concat(is_wide ? "" : ", 3",
                             ")\n    pass(SumPair* partial, const __grid_constant__ Before gradient,"
                             " const __grid_constant__ NormOfColumns<Element> norm, const __grid_constant__ ColumnSplit split) {\n"
                             "  write_column_sums(partial, ColumnGradients<Element, C, vector, false, ",
                             rows_of_sums, ", Before>{gradient, norm}, split);\n}\n");
      case input_gradient:
        return text + concat(is_wide ? "" : ", 2",
                             ")\n    pass(const __grid_constant__ After input_gradient, const __grid_constant__ Before gradient,"
                             " const __grid_constant__ NormOfColumns<Element> norm, const SumPair* means, const __grid_constant__ "
                             "ColumnSplit split) {\n"
                             "  write_column_gradients<C, vector>(input_gradient, gradient, norm, means, split);\n}\n");
      case whole:
        return text + concat(is_wide ? "" : ", 2",
                             ")\n    pass(const __grid_constant__ After input_gradient, SumPair* partial,"
                             " const __grid_constant__ Before gradient, const __grid_constant__ NormOfColumns<Element> norm,"
                             " double inverse_count, const __grid_constant__ ColumnSplit split) {\n"
                             "  write_whole_column_gradients<C, vector>(input_gradient, partial,"
                             " WholeColumnGradients<Element, C, vector, Before>{gradient, norm}, inverse_count, split);\n}\n");
    }
    return {};
  }

  void compile(Pass pass, int width) const { (void)kernel(pass, width); }

  template <class T>
  void sum(SumPair* partial, const NormOfColumns<T>& norm, const ColumnSplit& split, cudaStream_t stream) const {
    if (split.columns == 0 || split.matrices == 0) return;
    launch(sums, split, stream, partial, before_, norm, split);
  }
  template <class T>
  void write_input_gradient(const NormOfColumns<T>& norm, const SumPair* means, const ColumnSplit& split, cudaStream_t stream) const {
    launch(input_gradient, split, stream, after_, before_, norm, means, split);
  }
  template <class T>
  void do_whole(SumPair* partial, const NormOfColumns<T>& norm, double inverse_count, const ColumnSplit& split, cudaStream_t stream) const {
    launch(whole, split, stream, after_, partial, before_, norm, inverse_count, split);
  }

 private:
  const void* kernel(Pass pass, int width) const {
    const nvrtc::CompiledKernel compiled = nvrtc::compile("pass", source(pass, width), cuda::current_device().index);
    if (compiled.function == nullptr) fail(ErrorKind::bug, "a norm's gradient with its stages was not compiled: ", compiled.obstacle);
    return compiled.function;
  }

  static void* address(const CompiledStage& stage) { return const_cast<std::uint64_t*>(stage.argument.data()); }
  template <class Argument>
  static void* address(const Argument& argument) {
    return const_cast<Argument*>(&argument);
  }

  template <class... Arguments>
  void launch(Pass pass, const ColumnSplit& split, cudaStream_t stream, const Arguments&... arguments) const {
    void* addresses[] = {address(arguments)...};
    const cuda::LaunchShape shape = split.shape();
    FRIT_CUDA_CALL(cudaLaunchKernel(kernel(pass, split.width), shape.grid, shape.block, addresses, 0, stream));
  }

  DType dtype_;
  CompiledStage before_, after_;
};

}  // namespace frit::ops
