// Blocks to images and back, with programs of elementwise operators after and before them.

#include "frit/ops/convolution/lowerings/subpixel.h"
#include "frit/ops/elementwise/elementwise.h"
#include "ops/tensor_core_checks.h"

namespace frit::rearrangements_test {
namespace {

using CudaRearrangements = OnTensorCores;

struct Case {
  Shape image, blocks;
  Dims block, offset;
};

/// The program's operands after the first: an image, a number for each channel, one for all, one for each sample and channel.
std::vector<Tensor> operands_of(const Shape& image, DType dtype, int count) {
  Dims channels = Dims::filled(image.rank() - 1, 1), both = Dims::filled(image.rank(), 1);
  channels[0] = both[1] = image[1];
  both[0] = image[0];
  const Shape shapes[] = {image, Shape(channels), Shape{}, Shape(both)};
  std::vector<Tensor> operands;
  for (int k = 0; k < count; ++k) operands.push_back(normal_tensor(shapes[k % 4], DType::f64, static_cast<std::uint64_t>(k) + 5).to(dtype));
  return operands;
}

Tensor on_gpu(const Tensor& tensor, Device gpu) {
  return tensor.rank() < 4 ? tensor.to(gpu) : tensor.to(gpu).contiguous(Layout::channels_last);
}

TEST_F(CudaRearrangements, WithPrograms) {
  const Case cases[] = {{{2, 64, 32, 32}, {2, 256, 16, 16}, {2, 2}, {0, 0}},
                        {{4, 16, 31, 35}, {4, 64, 17, 18}, {2, 2}, {1, 1}},
                        {{2, 8, 12, 20, 21}, {2, 64, 7, 11, 11}, {2, 2, 2}, {1, 1, 1}},
                        {{3, 24, 33, 40}, {3, 144, 12, 20}, {3, 2}, {2, 0}},
                        {{2, 6, 75, 80}, {2, 24, 38, 41}, {2, 2}, {1, 1}},
                        {{2, 3, 110, 100}, {2, 12, 55, 50}, {2, 2}, {0, 0}}};
  const auto program = ops::ElementwiseProgram::parse(
      "y0 = add(x0, x1); y1 = multiply(y0, x2); y2 = relu(y1); y3 = multiply(y2, x3); y4 = add(y3, x4); return y4");
  const ops::ElementwiseProgram none;
  const ops::Operator& elementwise = ops::registry().find("elementwise");
  for (const Case& c : cases) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
      for (const bool to_space : {true, false}) {
        SCOPED_TRACE(concat(c.image, ' ', dtype, to_space ? " to space" : " to depth"));
        const ops::Operator& op = ops::registry().find(to_space ? "depth_to_space" : "space_to_depth");
        const ops::Attributes attributes = ops::BlockAttributes{c.block, c.offset, ops::image_of((to_space ? c.image : c.blocks))};
        const Tensor blocks = normal_tensor(c.blocks, DType::f64, 1).to(dtype);
        std::vector<Tensor> operands = operands_of(c.image, dtype, program.inputs - 1);
        operands.insert(operands.begin(),
                        to_space ? ops::run(op, std::array{blocks}, attributes)[0] : normal_tensor(c.image, DType::f64, 2).to(dtype));
        Tensor expected = ops::run(elementwise, operands, ops::ElementwiseAttributes{program})[0];
        if (!to_space) expected = ops::run(op, std::array{expected}, attributes)[0];

        std::vector<Tensor> further;
        for (std::size_t k = to_space ? 1 : 0; k < operands.size(); ++k) further.push_back(on_gpu(operands[k], gpu));
        const Tensor inputs[] = {to_space ? on_gpu(blocks, gpu) : Tensor()};
        const Tensor outputs[] = {Tensor::empty(expected.shape(), dtype, gpu, Layout::channels_last)};
        const std::span<const Tensor> nothing;
        const ops::Stages stages{to_space ? none : program,   0, {dtype, c.image}, to_space ? nothing : further, to_space ? program : none,
                                 to_space ? further : nothing};
        const ops::KernelContext call{op, attributes, inputs, outputs, {}, cuda::compute_stream(gpu.index)};
        if (!op.cuda.staged.takes(call, stages)) GTEST_SKIP() << "NVRTC is not installed";
        op.cuda.staged.run(call, stages);
        const double tolerance = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 1e-5 : dtype == DType::f16 ? 1e-2 : 1e-1;
        EXPECT_TRUE(near(outputs[0].to(Device::cpu()), expected, tolerance, largest_finite(expected)));
      }
    }
  }
}

}  // namespace
}  // namespace frit::rearrangements_test
