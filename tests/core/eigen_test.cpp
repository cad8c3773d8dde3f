#include "frit/eigen.h"

#include <gtest/gtest.h>

#include "core/io/file_testing.h"
#include "core/tensor_testing.h"

namespace frit {
namespace {

using Floats = std::vector<float>;

TEST(EigenViews, AreOfTheTensorsMemory) {
  const Tensor x = counting({2, 3});
  auto matrix = eigen_matrix<float>(x);
  EXPECT_EQ(matrix.data(), x.data<float>());
  EXPECT_EQ(matrix.rows(), 2);
  EXPECT_EQ(matrix.cols(), 3);
  matrix(1, 2) = 50;
  eigen_array<float>(x) += 1.0F;
  eigen_tensor<float, 2>(x)(0, 1) = -1;
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, -1, 3, 4, 5, 51}));
  eigen_vector<float>(x.slice(0, 1, 2).reshape({3})) *= 2;
  EXPECT_EQ(x.to_vector<float>(), (Floats{1, -1, 3, 8, 10, 102}));
  static_assert(!std::is_assignable_v<decltype(eigen_matrix<const float>(x)(0, 0)), float>);
  EXPECT_EQ(eigen_matrix<const float>(x).sum(), 123);
}

TEST(EigenViews, HaveEveryDtype) {
  for (const DType dtype : all_dtypes) {
    const Tensor x = Tensor::full({2, 2}, 3, dtype);
    const auto sum = [&]<class T>() { return static_cast<double>(eigen_matrix<const T>(x)(1, 1) + eigen_tensor<const T, 2>(x)(0, 1)); };
    switch (dtype) {
      case DType::f16: EXPECT_EQ(sum.operator()<Eigen::half>(), 6); break;
      case DType::bf16: EXPECT_EQ(sum.operator()<Eigen::bfloat16>(), 6); break;
      default: dispatch_arithmetic(dtype, [&]<class T>() { EXPECT_EQ(sum.operator()<T>(), 6); });
    }
  }
}

TEST(EigenViews, HaveEveryRank) {
  EXPECT_EQ((eigen_tensor<float, 0>(Tensor::full({}, 5))()), 5);
  EXPECT_EQ((eigen_tensor<float, 1>(counting({4}))(3)), 3);
  const Tensor x = counting({2, 3, 4, 1, 5});
  EXPECT_EQ((eigen_tensor<const float, 5>(x)(1, 2, 3, 0, 4)), 119);
  EXPECT_EQ((eigen_tensor<float, 5>(x).dimension(2)), 4);
  EXPECT_EQ((eigen_tensor<float, 8>(counting({1, 2, 1, 2, 1, 2, 1, 2}))(0, 1, 0, 1, 0, 1, 0, 0)), 14);
  EXPECT_EQ((eigen_tensor<float, 3>(Tensor::zeros({2, 0, 3})).size()), 0);
  EXPECT_EQ(eigen_matrix<float>(Tensor::zeros({0, 3})).size(), 0);
}

TEST(EigenViews, TakeWhatStridesCanSay) {
  const Tensor x = counting({3, 4}), columns = x.transpose(0, 1);
  EXPECT_EQ(eigen_matrix<float>(x.slice(1, 1, 3)).col(0), Eigen::Vector3f(1, 5, 9));
  EXPECT_EQ((eigen_matrix<float, EigenMatrixStrides>(columns)), eigen_matrix<float>(x).transpose());
  EXPECT_EQ((eigen_matrix<float, EigenMatrixStrides>(x.slice(1, 0, 4, 2)).row(2)), Eigen::RowVector2f(8, 10));
  eigen_vector<float, EigenVectorStride>(columns.slice(0, 1, 2).reshape({3})).setZero();  // reshape has copied
  eigen_vector<float, EigenVectorStride>(counting({6}).slice(0, 0, 6, 5)).setZero();
  EXPECT_EQ(eigen_matrix<float>(x), eigen_matrix<float>(counting({3, 4})));
  EXPECT_EQ((eigen_tensor<float, 2, Eigen::ColMajor>(columns)(3, 1)), 7);
  EXPECT_EQ((eigen_matrix<const float>(Tensor::full({4}, 2).expand({3, 4})).sum()), 24);  // one row, three times
  EXPECT_EQ((eigen_vector<const float, EigenVectorStride>(Tensor::full({1}, 2).expand({3})).sum()), 6);
  EXPECT_EQ((eigen_matrix<float>(x.slice(1, 3, 4)).sum()), 21);  // its stride does not matter
}

TEST(EigenViews, SayWhatTheyExpected) {
  const Tensor x = counting({2, 3}), turned = x.transpose(0, 1), repeated = counting({3}).expand({2, 3});
  const auto refused = [](const std::string& message, const std::function<void()>& body) {
    expect_error(ErrorKind::argument, message, body);
  };
  refused("eigen_matrix: expected a tensor of f64 and rank 2 on cpu, got f32 2x3 of rank 2 on cpu", [&] { eigen_matrix<double>(x); });
  refused("eigen_matrix: expected a tensor of f16 and rank 2 on cpu, got f32 2x3 of rank 2 on cpu", [&] { eigen_matrix<Eigen::half>(x); });
  refused("eigen_vector: expected a tensor of f32 and rank 1 on cpu, got f32 2x3 of rank 2 on cpu", [&] { eigen_vector<float>(x); });
  refused("eigen_tensor: expected a tensor of f32 and rank 3 on cpu, got f32 2x3 of rank 2 on cpu", [&] { eigen_tensor<float, 3>(x); });
  refused("eigen_array: expected a tensor of f32, got an undefined one", [] { eigen_array<float>(Tensor()); });
  float memory = 0;
  const Tensor elsewhere = Tensor::over(&memory, {1, 1}, DType::f32, {DeviceKind::cuda, 0}, nullptr);
  refused("eigen_matrix: expected a tensor of f32 and rank 2 on cpu, got f32 1x1 of rank 2 on cuda:0",
          [&] { eigen_matrix<float>(elsewhere); });
  refused(
      "eigen_matrix: expected the elements of a row side by side, got strides 1x3 of shape 3x2; hint: eigen_matrix<T, EigenMatrixStrides>, "
      "or Tensor::contiguous",
      [&] { eigen_matrix<float>(turned); });
  refused("eigen_vector: expected elements side by side, got stride 2 of shape 3; hint: eigen_vector<T, EigenVectorStride>",
          [] { eigen_vector<float>(counting({6}).slice(0, 0, 6, 2)); });
  refused("eigen_array: expected row-major elements, strides 2x1, got strides 1x3 of shape 3x2; hint: Tensor::contiguous",
          [&] { eigen_array<float>(turned); });
  refused("eigen_tensor: expected row-major elements, strides 2x1, got strides 1x3 of shape 3x2", [&] { eigen_tensor<float, 2>(turned); });
  refused("eigen_tensor: expected column-major elements, strides 1x2, got strides 3x1 of shape 2x3",
          [&] { eigen_tensor<float, 2, Eigen::ColMajor>(x); });
  refused(
      "eigen_matrix: axis 0 of shape 2x3 repeats its elements, which can only be read; hint: a view of f32 const, or Tensor::contiguous",
      [&] { eigen_matrix<float, EigenMatrixStrides>(repeated); });
}

TEST(FromEigen, TakesMatricesAndTheirExpressions) {
  Eigen::MatrixXd m(2, 3);
  m << 1, 2, 3, 4, 5, 6;
  const Tensor whole = from_eigen(m);
  EXPECT_EQ(whole.dtype(), DType::f64);
  EXPECT_EQ(whole.shape(), (Shape{2, 3}));
  EXPECT_EQ(whole.to_vector<double>(), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(whole.is_contiguous());
  EXPECT_EQ(from_eigen(m * m.transpose()).to_vector<double>(), (std::vector<double>{14, 32, 32, 77}));
  EXPECT_EQ(from_eigen(m.array().square() + 1).to_vector<float>(), (Floats{2, 5, 10, 17, 26, 37}));
  EXPECT_EQ(from_eigen(m.cast<Eigen::half>()).dtype(), DType::f16);
  EXPECT_EQ(from_eigen(m.cast<Eigen::bfloat16>()).to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(from_eigen((m.array() > 2).cast<std::uint8_t>()).dtype(), DType::u8);
  EXPECT_EQ(from_eigen(m.rowwise().sum()).shape(), Shape{2});
  EXPECT_EQ(from_eigen(m.colwise().sum()).to_vector<double>(), (std::vector<double>{5, 7, 9}));
  EXPECT_EQ(from_eigen(Eigen::MatrixXf(0, 3)).shape(), (Shape{0, 3}));
  EXPECT_EQ(from_eigen(Eigen::VectorXi::LinSpaced(3, 1, 3)).dtype(), DType::i32);
}

TEST(FromEigen, TakesTensorsOfEitherOrder) {
  const Tensor x = counting({2, 3, 4});
  Eigen::Tensor<float, 3> columns(2, 3, 4);
  for (int i = 0; i < 24; ++i) columns(i / 12, i / 4 % 3, i % 4) = static_cast<float>(i);
  const Tensor same = from_eigen(columns);
  EXPECT_TRUE(same.is_contiguous());
  EXPECT_EQ(same.shape(), x.shape());
  EXPECT_EQ(same.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(from_eigen(eigen_tensor<float, 3>(x)).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(from_eigen(columns * 2.0F + columns.constant(1)).to_vector<float>()[23], 47);
  const Tensor sums = from_eigen(eigen_tensor<const float, 3>(x).sum(Eigen::array<int, 2>{0, 2}));
  EXPECT_EQ(sums.shape(), Shape{3});
  EXPECT_EQ(sums.to_vector<float>(), (Floats{60, 92, 124}));
  EXPECT_EQ(from_eigen(columns.maximum()).shape(), Shape{});
  EXPECT_EQ(from_eigen(columns.maximum()).item(), 23);
  EXPECT_EQ(from_eigen(eigen_tensor<float, 3>(x).shuffle(Eigen::array<int, 3>{2, 0, 1})).to_vector<float>(),
            x.permute({2, 0, 1}).to_vector<float>());
}

}  // namespace
}  // namespace frit
