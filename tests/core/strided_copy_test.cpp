#include "frit/core/strided_copy.h"

#include <gtest/gtest.h>

#include <numeric>

#include "frit/core/thread_pool.h"

namespace frit {
namespace {

Tensor pattern(const Shape& shape, DType dtype, Layout layout) {
  std::vector<double> numbers(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>(i % 1021);
  const Tensor result = Tensor::empty(shape, dtype, {}, layout);
  copy(result, Tensor::from(numbers, shape));
  return result;
}

/// Element by element, from the strides.
template <class T>
double element_of(const Tensor& tensor, std::int64_t number) {
  std::int64_t offset = 0;
  for (int axis = tensor.rank() - 1; axis >= 0; --axis) {
    offset += number % tensor.shape()[axis] * tensor.strides()[axis];
    number /= tensor.shape()[axis];
  }
  return static_cast<double>(tensor.data<T>()[offset]);
}

template <class To, class From>
void expect_copied(const Shape& shape, Layout to, Layout from) {
  SCOPED_TRACE(concat(shape, " to layout ", static_cast<int>(to)));
  const Tensor source = pattern(shape, dtype_of<From>(), from), target = Tensor::empty(shape, dtype_of<To>(), {}, to);
  copy(target, source);
  for (std::int64_t i = 0; i < source.elements(); ++i) {
    ASSERT_EQ(element_of<From>(source, i), static_cast<double>(i % 1021)) << i;
    ASSERT_EQ(element_of<To>(target, i), static_cast<double>(i % 1021)) << i;
  }
}

TEST(StridedCopy, ConvertsBetweenLayouts) {
  constexpr Layout layouts[] = {Layout::contiguous, Layout::channels_last};
  for (const std::int64_t channels : {1, 2, 3, 5, 7, 8, 9, 11, 15, 16, 17, 24, 33, 64}) {
    for (const Shape& shape : {Shape{2, channels, 1, 3}, Shape{1, channels, 5, 7}, Shape{3, channels, 4, 4}, Shape{2, channels, 3, 1, 17},
                               Shape{2, channels, 5, 13}}) {
      for (const Layout to : layouts) {
        for (const Layout from : layouts) {
          expect_copied<float, float>(shape, to, from);
          expect_copied<double, float>(shape, to, from);
          expect_copied<std::int32_t, std::int32_t>(shape, to, from);
        }
      }
    }
  }
}

/// In many tasks.
TEST(StridedCopy, ConvertsLargeImages) {
  for (const Shape& shape : {Shape{2, 24, 31, 33}, Shape{1, 3, 97, 131}, Shape{3, 515, 5, 7}}) {
    expect_copied<float, float>(shape, Layout::channels_last, Layout::contiguous);
    expect_copied<float, float>(shape, Layout::contiguous, Layout::channels_last);
  }
}

/// Nothing next to a part of an image is written, nor read into it.
TEST(StridedCopy, KeepsToPartsOfImages) {
  for (const Layout to : {Layout::contiguous, Layout::channels_last}) {
    for (const Layout from : {Layout::contiguous, Layout::channels_last}) {
      for (const std::int64_t channels : {3, 8, 13}) {
        const Tensor source = pattern({2, 16, 9, 11}, DType::f32, from).slice(1, 2, 2 + channels).slice(3, 1, 10);
        const Tensor whole = Tensor::empty({2, 16, 9, 11}, DType::f32, {}, to);
        whole.fill(-1);
        const Tensor target = whole.slice(1, 1, 1 + channels).slice(3, 2, 11);
        copy(target, source);
        EXPECT_EQ(target.to_vector<double>(), source.to_vector<double>());
        for (std::int64_t i = 0; i < target.elements(); ++i) ASSERT_EQ(element_of<float>(target, i), element_of<float>(source, i));
        target.fill(-1);
        EXPECT_EQ(whole.to_vector<float>(), std::vector<float>(static_cast<std::size_t>(whole.elements()), -1));
      }
    }
  }
}

TEST(StridedCopy, ImagesOfOnePixelLieInEitherOrder) {
  EXPECT_FALSE(has_inner_channels(Tensor::empty({2, 5, 1, 1})));
  EXPECT_FALSE(has_inner_channels(Tensor::empty({2, 5, 3, 1})));
  EXPECT_FALSE(has_inner_channels(Tensor::empty({2, 1, 3, 1}, DType::f32, {}, Layout::channels_last)));
  EXPECT_TRUE(has_inner_channels(Tensor::empty({2, 5, 3, 1}, DType::f32, {}, Layout::channels_last)));
  EXPECT_TRUE(has_inner_channels(Tensor::empty({2, 5, 3, 2}, DType::f32, {}, Layout::channels_last).slice(1, 1, 3)));
}

TEST(StridedCopy, GathersAndScattersAnyRangeInAnyOrder) {
  const Shape shape{2, 5, 3, 7};
  const Tensor tensors[] = {pattern(shape, DType::f32, Layout::contiguous), pattern(shape, DType::f32, Layout::channels_last),
                            pattern({5, 1, 1}, DType::f32, Layout::contiguous).expand(shape),
                            pattern({2, 5, 1, 1}, DType::f32, Layout::contiguous).expand(shape),
                            pattern({2, 1, 3, 7}, DType::f32, Layout::contiguous).expand(shape)};
  for (const Layout order : {Layout::contiguous, Layout::channels_last}) {
    for (const Tensor& tensor : tensors) {
      const StridedElements elements(tensor, order);
      const Tensor ordered = tensor.permute(axes_in_memory(4, order)), target = Tensor::zeros(tensor.shape());
      const std::vector<double> expected = ordered.clone().to_vector<double>();
      for (const auto& [begin, end] : {std::pair{0, 210}, {1, 209}, {33, 36}, {7, 180}, {104, 107}}) {
        std::vector<double> found(static_cast<std::size_t>(end - begin));
        elements.gather(tensor.data<float>(), begin, end, found.data());
        EXPECT_EQ(found, std::vector<double>(expected.begin() + begin, expected.begin() + end));
        const Tensor image = Tensor::empty(shape, DType::f32, {}, Layout::channels_last);
        image.fill(-1);
        StridedElements(image, order).scatter(image.data<float>(), begin, end, found.data());
        std::vector<double> written(210, -1);
        std::copy(found.begin(), found.end(), written.begin() + begin);
        EXPECT_EQ(image.permute(axes_in_memory(4, order)).to_vector<double>(), written);
      }
    }
  }
}

}  // namespace
}  // namespace frit
