// Operators that bring elements to other places of an image, by formulas for one element.

#include <gtest/gtest.h>

#include "models/onnx/model_builder.h"

namespace frit {
namespace {

using Floats = std::vector<float>;

/// Columns of blocks of 2 x 3 elements, of an image with two channels.
struct Columns {
  std::int64_t height, width, stride, dilation;
  std::vector<std::int64_t> pads;  ///< above, left, below, right

  std::int64_t down() const { return (height + pads[0] + pads[2] - dilation - 1) / stride + 1; }
  std::int64_t across() const { return (width + pads[1] + pads[3] - 2 * dilation - 1) / stride + 1; }

  Tensor image_of(const Tensor& x) const {
    ModelBuilder builder(18);
    builder.input("x", std::vector<std::int64_t>(x.shape().begin(), x.shape().end())).output("y");
    builder.integers("image", {2}, {height, width}).integers("block", {2}, {2, 3});
    onnx::NodeProto& node = builder.node("Col2Im", {"x", "image", "block"}, {"y"});
    ModelBuilder::set(node, "strides", std::vector{stride, stride});
    ModelBuilder::set(node, "dilations", std::vector{dilation, dilation});
    ModelBuilder::set(node, "pads", pads);
    return run_graph(import_onnx(builder.model()), x);
  }

  Floats by_formula(const Tensor& x) const {
    Floats image(static_cast<std::size_t>(2 * height * width));
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const std::int64_t column = i % (down() * across()), channel = i / (down() * across()), tap = channel % 6;
      const std::int64_t row = column / across() * stride + tap / 3 * dilation - pads[0];
      const std::int64_t at = column % across() * stride + tap % 3 * dilation - pads[1];
      if (row < 0 || row >= height || at < 0 || at >= width) continue;
      image[static_cast<std::size_t>((channel / 6 * height + row) * width + at)] += x.data<float>()[i];
    }
    return image;
  }
};

TEST(OnnxRearrangement, ColumnsAreBlocksOfAnImage) {
  for (const Columns& c : {Columns{4, 6, 1, 1, {0, 0, 0, 0}}, Columns{5, 7, 2, 1, {1, 0, 0, 2}}, Columns{6, 9, 3, 2, {0, 1, 1, 0}},
                           Columns{7, 8, 2, 1, {0, 0, 0, 0}}}) {
    const Tensor x = counting({1, 12, c.down() * c.across()});
    const Tensor image = c.image_of(x);
    EXPECT_EQ(image.shape(), (Shape{1, 2, c.height, c.width}));
    EXPECT_EQ(image.to_vector<float>(), c.by_formula(x)) << c.height << " x " << c.width;
  }
  EXPECT_NE(message_of([&] {
              Columns{4, 6, 1, 1, {0, 0, 0, 0}}.image_of(counting({1, 12, 7}));
            }).find("columns of shape 1x12x7"),
            std::string::npos);
}

ModelBuilder unpool_model(std::int64_t stride) {
  ModelBuilder builder;
  builder.input("x", {1, 1, 2, 2}).output("y").integers("places", {1, 1, 2, 2}, {5, 7, 8, 15});
  onnx::NodeProto& node = builder.node("MaxUnpool", {"x", "places"}, {"y"}, "unpool");
  ModelBuilder::set(node, "kernel_shape", std::vector<std::int64_t>{2, 2});
  ModelBuilder::set(node, "strides", std::vector{stride, stride});
  return builder;
}

TEST(OnnxRearrangement, UnpoolingBringsElementsBack) {
  ModelBuilder builder = unpool_model(2);
  EXPECT_EQ(run_graph(import_onnx(builder.model()), counting({1, 1, 2, 2})).to_vector<float>(),
            (Floats{0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3}));
  builder.integers("size", {4}, {1, 1, 4, 5});
  builder.proto.mutable_graph()->mutable_node(0)->add_input("size");
  EXPECT_EQ(run_graph(import_onnx(builder.model()), counting({1, 1, 2, 2})).to_vector<float>(),
            (Floats{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0}));
  EXPECT_EQ(message_of([&] { import_onnx(unpool_model(1).model()); }),
            "test.onnx: not supported:\n  node \"unpool\" (MaxUnpool, opset 17): windows that overlap");
}

/// Numbers are PyTorch's, torch.nn.functional.affine_grid.
TEST(OnnxRearrangement, AffineGridsArePlacesOfAnImage) {
  const auto grid = [](const std::vector<std::int64_t>& size, std::int64_t align_corners) {
    ModelBuilder builder(20);
    const auto rank = static_cast<std::int64_t>(size.size()) - 2;
    builder.input("x", {1, rank, rank + 1}).output("y").integers("size", {rank + 2}, size);
    ModelBuilder::set(builder.node("AffineGrid", {"x", "size"}, {"y"}), "align_corners", align_corners);
    return run_graph(import_onnx(builder.model()), counting({1, rank, rank + 1})).to_vector<float>();
  };
  EXPECT_EQ(grid({1, 3, 2, 4}, 0),
            (Floats{1.5f, 0.75f, 1.5f, 2.25f, 1.5f, 3.75f, 1.5f, 5.25f, 2.5f, 4.75f, 2.5f, 6.25f, 2.5f, 7.75f, 2.5f, 9.25f}));
  EXPECT_EQ(grid({1, 3, 3, 2}, 1), (Floats{1, -2, 1, 4, 2, 2, 2, 8, 3, 6, 3, 12}));
  EXPECT_EQ(grid({1, 1, 1, 2, 2}, 0), (Floats{2.5f, 2.5f, 2.5f, 2.5f, 6.5f, 10.5f, 3.5f, 7.5f, 11.5f, 3.5f, 11.5f, 19.5f}));
  EXPECT_EQ(grid({1, 1, 1, 2, 2}, 1), (Floats{2, -2, -6, 2, 6, 10, 4, 8, 12, 4, 16, 28}));
}

}  // namespace
}  // namespace frit
