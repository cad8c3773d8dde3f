#include "frit/core/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "core/tensor_testing.h"
#include "frit/core/memory/allocator.h"

namespace frit {
namespace {

using Floats = std::vector<float>;

TEST(Tensor, Creation) {
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(Tensor::zeros({2, 2}).to_vector<float>(), Floats(4, 0));
  EXPECT_EQ(Tensor::full({3}, 2.5, DType::f16).to_vector<float>(), Floats(3, 2.5));
  EXPECT_EQ(Tensor::full({}, -7, DType::i64).item(), -7);
  const Tensor tensor = Tensor::from({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}, {2, 3});
  EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
  EXPECT_EQ(tensor.strides(), (Strides{3, 1}));
  EXPECT_EQ(tensor.dtype(), DType::f32);
  EXPECT_EQ(tensor.device(), Device::cpu());
  EXPECT_EQ(tensor.elements(), 6);
  EXPECT_EQ(tensor.bytes(), 24);
  EXPECT_EQ(tensor.dim(-1), 3);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 64, 0u);
  EXPECT_EQ(argument_error([] { Tensor::from({1.0f}, {2}); }), "Tensor::from: shape 2 has 2 elements, got 1 values");
  EXPECT_EQ(argument_error([] { Tensor::empty({2, -1}); }), "shape 2x-1 has a negative size");
  EXPECT_EQ(argument_error([&] { tensor.item(); }), "Tensor::item: needs one element, shape is 2x3");
  EXPECT_EQ(argument_error([&] { tensor.data<double>(); }), "Tensor::data: the tensor has dtype f32, asked for f64 (shape 2x3)");
  EXPECT_EQ(argument_error([&] { tensor.span<std::int64_t>(); }), "Tensor::data: the tensor has dtype f32, asked for i64 (shape 2x3)");
  EXPECT_EQ(argument_error([&] { tensor.transpose(0, 1).span<float>(); }),
            "Tensor::span: needs a contiguous tensor on the CPU, got shape 3x2 with strides 1x3 on cpu");
}

TEST(Tensor, EmptyOnesWork) {
  const Tensor tensor = Tensor::zeros({2, 0, 3});
  EXPECT_EQ(tensor.elements(), 0);
  EXPECT_TRUE(tensor.defined());
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_TRUE(tensor.permute({2, 1, 0}).clone().to(DType::f64).to_vector<double>().empty());
  EXPECT_EQ(tensor.reshape({0, 5}).shape(), (Shape{0, 5}));
  EXPECT_EQ(Tensor::zeros({0, 1'000'000'000'000, 1'000'000'000'000}).elements(), 0);
}

TEST(Tensor, CopiesOfTheHandleShareMemoryAndReleaseItOnce) {
  const auto before = allocator_of(Device::cpu()).statistics().in_use;
  {
    const Tensor a = counting({4});
    const Tensor b = a;
    const Tensor c = a.slice(0, 1, 3);
    b.fill(9);
    EXPECT_EQ(c.to_vector<float>(), Floats(2, 9));
    const Tensor d = a.clone();
    a.fill(1);
    EXPECT_EQ(d.to_vector<float>(), Floats(4, 9));
  }
  EXPECT_EQ(allocator_of(Device::cpu()).statistics().in_use, before);
}

TEST(Tensor, OverKeepsItsOwnerAlive) {
  auto owner = std::make_shared<Floats>(Floats{1, 2, 3, 4});
  const std::weak_ptr<Floats> watch = owner;
  Tensor view = Tensor::over(owner->data(), {2, 2}, DType::f32, Device::cpu(), owner).slice(0, 1, 2);
  owner.reset();
  EXPECT_EQ(view.to_vector<float>(), (Floats{3, 4}));
  view = Tensor();
  EXPECT_TRUE(watch.expired());
}

TEST(Tensor, Permute) {
  const Tensor tensor = counting({2, 3});
  EXPECT_EQ(tensor.transpose(0, -1).shape(), (Shape{3, 2}));
  EXPECT_EQ(tensor.transpose(0, 1).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(counting({2, 1, 3}).permute({2, 0, 1}).to_vector<float>(), (Floats{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(argument_error([&] { tensor.permute({0}); }), "permute: 1 axes for rank 2");
  EXPECT_EQ(argument_error([&] { tensor.permute({1, -1}); }), "permute: axis 1 is named twice in 1x-1");
  EXPECT_EQ(argument_error([&] { tensor.transpose(0, 2); }), "transpose: axis 2 is outside [-2, 2)");
}

TEST(Tensor, Reshape) {
  const Tensor tensor = counting({2, 6});
  EXPECT_EQ(tensor.reshape({3, -1}).shape(), (Shape{3, 4}));
  EXPECT_EQ(tensor.reshape({3, 4}).raw(), tensor.raw());
  EXPECT_EQ(tensor.transpose(0, 1).reshape({12}).to_vector<float>(), (Floats{0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11}));
  EXPECT_EQ(counting({1}).reshape({}).item(), 0);
  EXPECT_EQ(argument_error([&] { tensor.reshape({5, -1}); }), "reshape: shape 5x-1 does not fit 12 elements (input 2x6)");
  EXPECT_EQ(argument_error([&] { tensor.reshape({5, 2}); }), "reshape: shape 5x2 does not fit 12 elements (input 2x6)");
  EXPECT_EQ(argument_error([&] { tensor.reshape({0, -1}); }), "reshape: shape 0x-1 does not fit 12 elements (input 2x6)");
  EXPECT_EQ(argument_error([&] { tensor.reshape({-1, -1}); }), "reshape: only one size can be inferred, got -1x-1");
  EXPECT_NE(argument_error([&] { tensor.reshape({std::int64_t{1} << 40, std::int64_t{1} << 40, -1}); }), "no error");
  EXPECT_NE(argument_error([&] { tensor.reshape({-12, -1}); }), "no error");
}

TEST(Tensor, Slice) {
  const Tensor tensor = counting({3, 5});
  EXPECT_EQ(tensor.slice(1, 1, 5, 2).to_vector<float>(), (Floats{1, 3, 6, 8, 11, 13}));
  EXPECT_EQ(tensor.slice(-2, 1, 2).to_vector<float>(), (Floats{5, 6, 7, 8, 9}));
  EXPECT_EQ(tensor.slice(0, 3, 3).shape(), (Shape{0, 5}));
  EXPECT_EQ(tensor.slice(1, 0, 5, std::numeric_limits<std::int64_t>::max()).to_vector<float>(), (Floats{0, 5, 10}));
  tensor.slice(1, 1, 3).fill(-1);
  EXPECT_EQ(tensor.slice(0, 0, 1).to_vector<float>(), (Floats{0, -1, -1, 3, 4}));
  EXPECT_EQ(argument_error([&] { tensor.slice(1, 2, 6); }), "slice: [2, 6) is outside axis 1 of shape 3x5");
  EXPECT_EQ(argument_error([&] { tensor.slice(0, -1, 2); }), "slice: [-1, 2) is outside axis 0 of shape 3x5");
  EXPECT_EQ(argument_error([&] { tensor.slice(0, 0, 2, 0); }), "slice: step must be positive, got 0");
}

TEST(Tensor, Expand) {
  const Tensor tensor = counting({2, 1});
  const Tensor wide = tensor.expand({3, 2, 2});
  EXPECT_EQ(wide.strides(), (Strides{0, 1, 0}));
  EXPECT_EQ(wide.to_vector<float>(), (Floats{0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1}));
  EXPECT_FALSE(wide.is_contiguous());
  EXPECT_EQ(tensor.expand({2, 0}).elements(), 0);
  EXPECT_EQ(argument_error([&] { tensor.expand({4, 2}); }), "shapes 2x1 and 4x2 do not broadcast: sizes 2 and 4 at axis 0");
  EXPECT_EQ(argument_error([&] { tensor.expand({1, 1}); }), "expand: shape 2x1 does not expand to 1x1");
  EXPECT_EQ(argument_error([&] { tensor.expand({2}); }), "expand: shape 2x1 does not expand to 2");
}

TEST(Tensor, ChannelsLast) {
  const Tensor tensor = counting({2, 3, 2, 2});
  const Tensor last = tensor.contiguous(Layout::channels_last);
  EXPECT_TRUE(last.is_contiguous(Layout::channels_last));
  EXPECT_FALSE(last.is_contiguous());
  EXPECT_EQ(last.shape(), tensor.shape());
  EXPECT_EQ(last.to_vector<float>(), tensor.to_vector<float>());
  EXPECT_EQ(Floats(last.data<float>(), last.data<float>() + 6), (Floats{0, 4, 8, 1, 5, 9}));
  EXPECT_EQ(last.contiguous(Layout::channels_last).raw(), last.raw());
  EXPECT_EQ(last.clone().strides(), tensor.strides());
  EXPECT_TRUE(counting({2, 1, 3, 1}).is_contiguous(Layout::channels_last));
  EXPECT_EQ(argument_error([] {
              counting({2, 3}).contiguous(Layout::channels_last);
            }),
            "channels_last needs a shape of rank 3 or more, got 2x3");
}

TEST(Tensor, CopyOfStridedViews) {
  const Tensor source = counting({4, 6}).slice(1, 0, 6, 2).transpose(0, 1);
  const Tensor target = Tensor::zeros({3, 8});
  copy(target.slice(1, 1, 8, 2), source);
  EXPECT_EQ(target.to_vector<float>(), (Floats{0, 0, 0, 6, 0, 12, 0, 18, 0, 2, 0, 8, 0, 14, 0, 20, 0, 4, 0, 10, 0, 16, 0, 22}));
  EXPECT_EQ(argument_error([&] { copy(target, source); }), "copy: destination is 3x8, source is 3x4");
  EXPECT_EQ(argument_error([&] { copy(Tensor(), source); }), "copy: a tensor is undefined");
}

TEST(Tensor, CopyBetweenLayouts) {
  for (const Shape& shape : {Shape{1, 3, 5, 7}, {2, 2, 40, 30}, {1, 17, 9, 4}, {2, 33, 4, 5, 31}, {1, 600, 3, 5}, {3, 4, 2, 1}}) {
    for (const DType dtype : {DType::u8, DType::f16, DType::f32, DType::f64}) {
      SCOPED_TRACE(concat(dtype, ' ', shape));
      const std::int64_t channels = shape[1], pixels = element_count(shape) / shape[0] / channels;
      const Floats values = counting(shape).to(dtype).to_vector<float>();
      const Tensor last = counting(shape).to(dtype).contiguous(Layout::channels_last);
      const Floats found = Tensor::over(last.raw(), {shape[0], pixels, channels}, dtype, {}, nullptr).to_vector<float>();
      for (std::int64_t i = 0; i < last.elements(); ++i) {
        const std::int64_t pixel = i / channels % pixels, row = i / channels / pixels * channels + i % channels;
        ASSERT_EQ(found[static_cast<std::size_t>(i)], values[static_cast<std::size_t>(row * pixels + pixel)]) << "element " << i;
      }
      EXPECT_EQ(last.clone().to_vector<float>(), values);
      Tensor converted = Tensor::empty(shape, DType::f32);
      copy(converted, last);
      EXPECT_EQ(converted.to_vector<float>(), values);
    }
  }
}

TEST(Tensor, CopyBetweenAllDtypes) {
  const std::vector<double> values{0, 1, 2, 100, 255};  // exact in every type
  for (const DType from : all_dtypes) {
    for (const DType to : all_dtypes) {
      const Tensor source = Tensor::from(values, {5}).to(from);
      EXPECT_EQ(source.dtype(), from);
      EXPECT_EQ(source.to(to).dtype(), to);
      EXPECT_EQ(source.to(to).to_vector<double>(), values) << from << " to " << to;
    }
  }
}

TEST(Tensor, ConversionToIntegersSaturates) {
  const Tensor source = Tensor::from({-1e30, -1.9, 300.7, 1e30, static_cast<double>(NAN)}, {5});
  EXPECT_EQ(source.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 0, 255, 255, 0}));
  EXPECT_EQ(source.to_vector<std::int32_t>(), (std::vector<std::int32_t>{INT32_MIN, -1, 300, INT32_MAX, 0}));
  EXPECT_EQ(source.to(DType::f32).to_vector<std::int64_t>(), (std::vector<std::int64_t>{INT64_MIN, -1, 300, INT64_MAX, 0}));
  EXPECT_EQ(Tensor::full({1}, 1e9, DType::i32).item(), 1e9);
}

TEST(Tensor, Prints) {
  EXPECT_EQ(concat(Tensor::from({0.5f, 1.0f}, {2, 1})), "f32 2x1 {0.5, 1}");
  EXPECT_EQ(concat(counting({9})), "f32 9 {0, 1, 2, 3, 4, 5, 6, 7, ...}");
  EXPECT_EQ(concat(Tensor()), "undefined");
}

TEST(Tensor, NoMemoryForDevicesOfOtherBuilds) {
  try {
    Tensor::empty({1}, DType::f32, {DeviceKind::cuda, 4096});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
  }
}

}  // namespace
}  // namespace frit
