// Hands tensors to Eigen and takes them back, in a program that has it.

#include <frit/eigen.h>
#include <frit/runtime.h>

#include <cstdio>

int main() {
  using namespace frit;
  const Tensor a = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor square = from_eigen(eigen_matrix<float>(a) * eigen_matrix<const float>(a).transpose());
  eigen_tensor<float, 2>(a).setConstant(7);
  std::printf("trace %g, then all %g\n", static_cast<double>(eigen_matrix<float>(square).trace()),
              static_cast<double>(eigen_array<float>(a).mean()));
  return square.to_vector<float>() == std::vector<float>{14, 32, 32, 77} && a.data<float>()[5] == 7 ? 0 : 1;
}
