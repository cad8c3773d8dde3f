#pragma once

// Tensors as Eigen's vectors, matrices, arrays and tensors, and back, for programs that have Eigen 3.4 (Debian: libeigen3-dev; CMake:
// Eigen3::Eigen): #include <frit/eigen.h>. No other header of frit's needs it.
//
// A view is of the tensor's own memory, which it does not keep alive: the tensor has to. Of T const it may only be read.

#include <Eigen/Core>
#include <concepts>
#include <type_traits>
#include <unsupported/Eigen/CXX11/Tensor>

#include "frit/core/tensor.h"

namespace frit {
namespace detail {

/// The dtype of elements that Eigen knows as T: halves are Eigen::half and Eigen::bfloat16.
template <class T>
constexpr DType eigen_dtype() {
  if constexpr (std::is_same_v<T, Eigen::half>)
    return DType::f16;
  else if constexpr (std::is_same_v<T, Eigen::bfloat16>)
    return DType::bf16;
  else
    return dtype_of<T>();
}

template <class T>
using EigenScalar = std::remove_const_t<T>;
/// Plain, or const if T is.
template <class T, class Plain>
using EigenLike = std::conditional_t<std::is_const_v<T>, const Plain, Plain>;

/// The first element, once the tensor is known to be what `function` takes. No axis may repeat its elements, unless they are only read.
template <class T>
T* eigen_data(const char* function, const Tensor& tensor, int rank) {
  constexpr DType dtype = eigen_dtype<EigenScalar<T>>();
  require(tensor.defined(), function, ": expected a tensor of ", dtype, ", got an undefined one");
  require(tensor.dtype() == dtype && tensor.rank() == rank && tensor.device() == Device::cpu(), function, ": expected a tensor of ", dtype,
          " and rank ", rank, " on cpu, got ", tensor.dtype(), ' ', tensor.shape(), " of rank ", tensor.rank(), " on ", tensor.device());
  for (int axis = 0; axis < rank && !std::is_const_v<T>; ++axis) {
    require(tensor.strides()[axis] != 0 || tensor.shape()[axis] < 2, function, ": axis ", axis, " of shape ", tensor.shape(),
            " repeats its elements, which can only be read; hint: a view of ", dtype, " const, or Tensor::contiguous");
  }
  return static_cast<T*>(tensor.raw());
}

/// The stride of an axis; of one that has but one element it does not matter.
inline std::int64_t eigen_stride(const Tensor& tensor, int axis) { return tensor.shape()[axis] < 2 ? 1 : tensor.strides()[axis]; }

inline void require_dense(const char* function, const Tensor& tensor, const Strides& dense, const char* order) {
  for (int axis = 0; axis < tensor.rank() && tensor.elements() > 0; ++axis) {
    require(tensor.shape()[axis] == 1 || tensor.strides()[axis] == dense[axis], function, ": expected ", order, " elements, strides ",
            dense, ", got strides ", tensor.strides(), " of shape ", tensor.shape(), "; hint: Tensor::contiguous");
  }
}

}  // namespace detail

/// Strides that a view learns when it is made. A view that has them takes every tensor of its rank, but Eigen does not vectorise it.
using EigenVectorStride = Eigen::InnerStride<>;
using EigenMatrixStrides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;

template <class T, class Stride = Eigen::Stride<0, 0>>
using EigenVector = Eigen::Map<detail::EigenLike<T, Eigen::Matrix<detail::EigenScalar<T>, Eigen::Dynamic, 1>>, Eigen::Unaligned, Stride>;
template <class T, class Strides = Eigen::OuterStride<>>
using EigenMatrix = Eigen::Map<detail::EigenLike<T, Eigen::Matrix<detail::EigenScalar<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>,
                               Eigen::Unaligned, Strides>;
template <class T>
using EigenArray = Eigen::Map<detail::EigenLike<T, Eigen::Array<detail::EigenScalar<T>, Eigen::Dynamic, 1>>>;
template <class T, int rank, int order = Eigen::RowMajor>
using EigenTensor = Eigen::TensorMap<detail::EigenLike<T, Eigen::Tensor<detail::EigenScalar<T>, rank, order, Eigen::Index>>>;

/// A tensor (n) on the CPU: eigen_vector<float>(x), to be read only eigen_vector<const float>(x). Its elements lie side by side, or
/// anywhere for eigen_vector<T, EigenVectorStride>. Throws ErrorKind::argument for another dtype, rank, device or layout, as all views do.
template <class T, class Stride = Eigen::Stride<0, 0>>
EigenVector<T, Stride> eigen_vector(const Tensor& tensor) {
  T* const data = detail::eigen_data<T>("eigen_vector", tensor, 1);
  const std::int64_t stride = detail::eigen_stride(tensor, 0);
  if constexpr (std::is_same_v<Stride, EigenVectorStride>) {
    return {data, tensor.dim(0), Stride(stride)};
  } else {
    require(stride == 1, "eigen_vector: expected elements side by side, got stride ", stride, " of shape ", tensor.shape(),
            "; hint: eigen_vector<T, EigenVectorStride>, or Tensor::contiguous");
    return {data, tensor.dim(0)};
  }
}

/// A tensor (rows, columns) on the CPU. The elements of a row lie side by side, or anywhere for eigen_matrix<T, EigenMatrixStrides>.
template <class T, class Strides = Eigen::OuterStride<>>
EigenMatrix<T, Strides> eigen_matrix(const Tensor& tensor) {
  T* const data = detail::eigen_data<T>("eigen_matrix", tensor, 2);
  const std::int64_t outer = detail::eigen_stride(tensor, 0), inner = detail::eigen_stride(tensor, 1);
  if constexpr (std::is_same_v<Strides, EigenMatrixStrides>) {
    return {data, tensor.dim(0), tensor.dim(1), Strides(outer, inner)};
  } else {
    require(inner == 1, "eigen_matrix: expected the elements of a row side by side, got strides ", tensor.strides(), " of shape ",
            tensor.shape(), "; hint: eigen_matrix<T, EigenMatrixStrides>, or Tensor::contiguous");
    return {data, tensor.dim(0), tensor.dim(1), Strides(outer)};
  }
}

/// All elements of a contiguous tensor of any rank on the CPU, one after another.
template <class T>
EigenArray<T> eigen_array(const Tensor& tensor) {
  T* const data = detail::eigen_data<T>("eigen_array", tensor, tensor.defined() ? tensor.rank() : 0);
  detail::require_dense("eigen_array", tensor, dense_strides(tensor.shape()), "row-major");
  return {data, tensor.elements()};
}

/// A contiguous tensor of this rank on the CPU. With Eigen::ColMajor, Eigen's own default, the first axis is the innermost, as in what
/// Tensor::permute makes of a contiguous tensor when it turns the axes around.
template <class T, int rank, int order = Eigen::RowMajor>
EigenTensor<T, rank, order> eigen_tensor(const Tensor& tensor) {
  T* const data = detail::eigen_data<T>("eigen_tensor", tensor, rank);
  constexpr bool rows = order == Eigen::RowMajor;
  const Shape& shape = tensor.shape();
  Strides dense = dense_strides(shape);
  Eigen::DSizes<Eigen::Index, rank> sizes;
  for (int axis = 0; axis < rank; ++axis) {
    sizes[static_cast<std::size_t>(axis)] = shape[axis];
    if (!rows) dense[axis] = axis == 0 ? 1 : dense[axis - 1] * shape[axis - 1];
  }
  detail::require_dense("eigen_tensor", tensor, dense, rows ? "row-major" : "column-major");
  return {data, sizes};
}

/// What an expression of vectors, matrices or arrays is: a fresh contiguous tensor (n) of a vector or (rows, columns), computed into place.
template <class Expression>
Tensor from_eigen(const Eigen::DenseBase<Expression>& expression) {
  using T = typename Expression::Scalar;
  const std::int64_t rows = expression.rows(), columns = expression.cols();
  const bool vector = Expression::IsVectorAtCompileTime;
  const Tensor result = Tensor::empty(vector ? Shape{rows * columns} : Shape{rows, columns}, detail::eigen_dtype<T>());
  EigenMatrix<T>(static_cast<T*>(result.raw()), rows, columns, Eigen::OuterStride<>(columns)).noalias() = expression.derived().matrix();
  return result;
}

/// Likewise of Eigen's tensors and their expressions, of either order: contiguous, with the same axes.
template <class Expression>
  requires std::derived_from<Expression, Eigen::TensorBase<Expression, Eigen::ReadOnlyAccessors>>
Tensor from_eigen(const Expression& expression) {
  using T = std::remove_const_t<typename Expression::Scalar>;
  using Evaluator = Eigen::TensorEvaluator<const Expression, Eigen::DefaultDevice>;
  constexpr int rank = Eigen::internal::array_size<typename Evaluator::Dimensions>::value, order = Evaluator::Layout;
  static_assert(rank <= Dims::max_rank, "a tensor has at most eight axes");
  const Eigen::DSizes<Eigen::Index, rank> sizes(Evaluator(expression, Eigen::DefaultDevice()).dimensions());
  Shape lies;  // outermost first
  Dims axes;
  for (int i = 0; i < rank; ++i) {
    const int axis = order == Eigen::RowMajor ? i : rank - 1 - i;
    lies.push_back(sizes[static_cast<std::size_t>(axis)]);
    axes.push_back(axis);
  }
  const Tensor result = Tensor::empty(lies, detail::eigen_dtype<T>());
  EigenTensor<T, rank, order>(static_cast<T*>(result.raw()), sizes) = expression;
  return result.permute(axes).contiguous();
}

}  // namespace frit
