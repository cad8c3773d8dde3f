// Matrix products through cuBLASLt. Its matrices are column-major: a row-major product c = a b is handed over as its transpose, the product
// of b transposed and a transposed, which lie in memory already.

#include "frit/ops/libraries/cuda/cublas.h"

#include <cublasLt.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/runtime.h"
#include "frit/core/cuda/vector.cuh"
#include "frit/core/numerics.h"
#include "frit/core/strided_loop.h"
#include "frit/ops/libraries/cuda/counted_library.h"
#include "frit/ops/libraries/library_plans.h"

/// Throws ErrorKind::device with the expression, file and line unless a cuBLAS call succeeds.
#define FRIT_CUBLAS_CALL(call)                                                                                                    \
  do {                                                                                                                            \
    if (const cublasStatus_t frit_status = (call); frit_status != CUBLAS_STATUS_SUCCESS) {                                        \
      ::frit::fail(::frit::ErrorKind::device, "cuBLAS: ", cublasLtGetStatusString(frit_status), ": ", #call, " (", __FILE__, ":", \
                   __LINE__, ")");                                                                                                \
    }                                                                                                                             \
  } while (false)

namespace frit::cublas {
namespace {

constexpr cuda::CountedLibrary shared_library{{FRIT_CUBLASLT_PATH, FRIT_CUBLASLT_NAME}};
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtCreate);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtGetStatusString);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtGetVersion);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtMatmul);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtMatmulAlgoGetHeuristic);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtMatmulDescCreate);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtMatmulDescDestroy);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtMatmulDescSetAttribute);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtMatmulPreferenceCreate);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtMatmulPreferenceDestroy);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtMatmulPreferenceSetAttribute);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtMatrixLayoutCreate);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtMatrixLayoutDestroy);
FRIT_LIBRARY_FUNCTION(shared_library, cublasLtMatrixLayoutSetAttribute);

template <class T, auto& destroy>
struct Destroy {
  void operator()(T* object) const { (void)destroy(object); }
};
template <class T, auto& destroy>
using Owned = std::unique_ptr<T, Destroy<T, destroy>>;
using Operation = Owned<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>;

/// A column-major matrix.
struct Matrix {
  std::int64_t rows, columns, stride;  ///< elements from one column to the next
  bool transposed;                     ///< is read so
};

/// The transpose of a row-major (rows, columns) factor, one of whose strides is 1.
Matrix transpose_of(std::int64_t rows, std::int64_t columns, std::int64_t row_stride, std::int64_t column_stride) {
  if (column_stride == 1) return {columns, rows, std::max(row_stride, columns), false};
  return {rows, columns, std::max(column_stride, rows), true};
}

struct Types {
  cudaDataType_t data, scale;  ///< scale: of the factors that a product is multiplied by
  cublasComputeType_t compute;
};

Types types_of(DType dtype, const Numerics& settings) {
  if (dtype == DType::f64) return {CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
  if (dtype == DType::f16) return {CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
  if (dtype == DType::bf16) return {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
  FRIT_CHECK(dtype == DType::f32);
  return {CUDA_R_32F, CUDA_R_32F, settings.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
}

MatrixLayout layout_of(const Matrix& matrix, cudaDataType_t type, std::int64_t batch, std::int64_t batch_stride) {
  cublasLtMatrixLayout_t made = nullptr;
  FRIT_CUBLAS_CALL(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(matrix.rows),
                                              static_cast<std::uint64_t>(matrix.columns), matrix.stride));
  MatrixLayout layout(made);
  const auto count = static_cast<std::int32_t>(batch);
  FRIT_CUBLAS_CALL(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
  FRIT_CUBLAS_CALL(
      cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &batch_stride, sizeof(batch_stride)));
  return layout;
}

Operation operation_of(const Types& types, bool transpose_first, bool transpose_second, const void* bias) {
  cublasLtMatmulDesc_t made = nullptr;
  FRIT_CUBLAS_CALL(cublasLtMatmulDescCreate(&made, types.compute, types.scale));
  Operation operation(made);
  const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto& value) {
    FRIT_CUBLAS_CALL(cublasLtMatmulDescSetAttribute(made, name, &value, sizeof(value)));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_first ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_second ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (bias != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  return operation;
}

/// All factors are aligned to 16 bytes; so is the result but for a view.
Preference preference_of(const Numerics& settings, std::size_t workspace, const void* result, std::size_t element_size) {
  cublasLtMatmulPreference_t made = nullptr;
  FRIT_CUBLAS_CALL(cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto& value) {
    FRIT_CUBLAS_CALL(cublasLtMatmulPreferenceSetAttribute(made, name, &value, sizeof(value)));
  };
  const std::uint32_t alignment = 16, result_alignment = cuda::aligned_for_vectors(result) ? 16 : static_cast<std::uint32_t>(element_size);
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result_alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result_alignment);
  if (settings.deterministic) set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  return preference;
}

/// Never destroyed; one a device, for all threads.
cublasLtHandle_t handle_of(int device) {
  static auto& mutex = *new std::mutex;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  const auto [place, fresh] = handles.try_emplace(device, nullptr);
  (void)cuda::compute_stream(device);  // makes the device current
  if (place->second == nullptr) {
    const ops::LibraryLoad load;
    FRIT_CUBLAS_CALL(cublasLtCreate(&place->second));
  }
  return place->second;
}

/// A graph aligns all its tensors; a view that a call at once brings is copied to memory of its own.
Tensor aligned(const Tensor& tensor) { return !tensor.defined() || cuda::aligned_for_vectors(tensor.raw()) ? tensor : tensor.clone(); }

/// One call of cuBLASLt after another, over the batch axes that it does not know.
class Product {
 public:
  Product(const ops::GemmShape& shape, const Tensor& a, const Tensor& b, const Tensor& c, std::span<std::byte> workspace,
          cudaStream_t stream)
      : shape_(shape),
        a_(a),
        b_(b),
        c_(c),
        types_(types_of(c.dtype(), settings_)),
        workspace_(workspace),
        handle_(handle_of(c.device().index)),
        stream_(stream) {
    batch_ = shape.batch;
    strides_ = {shape.a_batch_strides, shape.b_batch_strides, dense_strides(shape.batch)};
    for (std::int64_t& stride : strides_[2]) stride *= shape.rows * shape.columns;
    collapse_axes(batch_, strides_);
    inner_ = static_cast<int>(std::max_element(batch_.begin(), batch_.end()) - batch_.begin());
    first_ = transpose_of(shape.depth, shape.columns, shape.b_depth_stride, shape.b_column_stride);
    second_ = transpose_of(shape.rows, shape.depth, shape.a_row_stride, shape.a_depth_stride);
    first_layout_ = layout_of(first_, types_.data, batch_[inner_], strides_[1][inner_]);
    second_layout_ = layout_of(second_, types_.data, batch_[inner_], strides_[0][inner_]);
    result_layout_ = layout_of({shape.columns, shape.rows, shape.columns, false}, types_.data, batch_[inner_], strides_[2][inner_]);
  }

  void run(const Tensor& bias) {
    const bool in_epilogue = bias.defined() && choose(bias.raw());
    if (!in_epilogue && !choose(nullptr)) {
      fail(ErrorKind::device, version(), " has no algorithm for a product of ", shape_.rows, 'x', shape_.depth, " and ", shape_.depth, 'x',
           shape_.columns, " matrices of ", c_.dtype());
    }
    const bool onto_bias = bias.defined() && !in_epilogue;
    if (onto_bias) copy(c_, bias.expand(c_.shape()));
    start_all(0, {0, 0, 0}, onto_bias ? 1 : 0);
  }

 private:
  /// False if there is no algorithm.
  bool choose(const void* bias) {
    operation_ = operation_of(types_, first_.transposed, second_.transposed, bias);
    const Preference preference = preference_of(settings_, workspace_.size(), c_.raw(), size_of(c_.dtype()));
    cublasLtMatmulHeuristicResult_t chosen;
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, operation_.get(), first_layout_.get(), second_layout_.get(), result_layout_.get(),
                                       result_layout_.get(), preference.get(), 1, &chosen, &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return false;
    FRIT_CUBLAS_CALL(status);
    if (count == 0 || chosen.state != CUBLAS_STATUS_SUCCESS) return false;
    algorithm_ = chosen.algo;
    return true;
  }

  void start_all(int axis, std::array<std::int64_t, 3> offsets, int beta) const {
    if (axis == batch_.rank()) return start(offsets, beta);
    const std::int64_t steps = axis == inner_ ? 1 : batch_[axis];
    for (std::int64_t i = 0; i < steps; ++i) {
      start_all(axis + 1, offsets, beta);
      for (std::size_t k = 0; k < 3; ++k) offsets[k] += strides_[k][axis];
    }
  }

  void start(const std::array<std::int64_t, 3>& offsets, int beta) const {
    const auto place = [](const Tensor& tensor, std::int64_t offset) -> void* {
      return static_cast<std::byte*>(tensor.raw()) + offset * static_cast<std::int64_t>(size_of(tensor.dtype()));
    };
    void* const c = place(c_, offsets[2]);
    dispatch_floating(types_.scale == CUDA_R_64F ? DType::f64 : DType::f32, [&]<class T>() {
      const T alpha = 1, scale = static_cast<T>(beta);
      FRIT_CUBLAS_CALL(cublasLtMatmul(handle_, operation_.get(), &alpha, place(b_, offsets[1]), first_layout_.get(), place(a_, offsets[0]),
                                      second_layout_.get(), &scale, c, result_layout_.get(), c, result_layout_.get(), &algorithm_,
                                      workspace_.data(), workspace_.size(), stream_));
    });
  }

  const ops::GemmShape& shape_;
  const Tensor &a_, &b_, &c_;
  Numerics settings_ = numerics();
  Types types_;
  std::span<std::byte> workspace_;
  cublasLtHandle_t handle_;
  cudaStream_t stream_;
  Dims batch_;
  std::array<Strides, 3> strides_;  ///< of a, b and c along the batch axes
  int inner_;                       ///< the batch axis that one call covers
  Matrix first_, second_;
  MatrixLayout first_layout_, second_layout_, result_layout_;
  Operation operation_;
  cublasLtMatmulAlgo_t algorithm_;
};

constexpr std::size_t alignment = 256;

}  // namespace

std::string version() {
  const std::size_t number = cublasLtGetVersion();
  return concat("cuBLAS ", number / 10000, '.', number / 100 % 100, '.', number % 100);
}

void multiply(const ops::GemmShape& shape, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& c,
              std::span<std::byte> scratch, CUstream_st* stream) {
  if (c.elements() == 0) return;
  if (shape.depth == 0) {
    if (bias.defined()) return copy(c, bias.expand(c.shape()));
    FRIT_CUDA_CALL(cudaMemsetAsync(c.raw(), 0, static_cast<std::size_t>(c.bytes()), stream));
    return;
  }
  const std::size_t offset = (alignment - reinterpret_cast<std::uintptr_t>(scratch.data()) % alignment) % alignment;
  FRIT_CHECK(scratch.size() >= alignment);
  const std::span<std::byte> workspace = scratch.subspan(offset, scratch.size() - alignment);
  const Tensor left = aligned(a), right = aligned(b), addend = aligned(bias);
  Product(shape, left, right, c, workspace, stream).run(addend);
}

// As much as PyTorch gives on Hopper; more would make cuBLASLt no faster.
std::size_t product_scratch(const ops::GemmShape& shape) {
  if (shape.rows * shape.columns * shape.depth == 0) return 0;
  return std::min(numerics().workspace_limit, std::size_t{32} << 20) + alignment;
}

}  // namespace frit::cublas
