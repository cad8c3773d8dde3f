#pragma once

#include "frit/core/cuda/device.h"
#include "frit/core/numerics.h"
#include "frit/graph/choose_lowerings.h"
#include "frit/graph/pipeline.h"
#include "frit/ops/cuda/warpgroup_products.cuh"
#include "frit/ops/libraries/cuda/nvrtc.h"
#include "ops/chain/chain_checks.h"
#include "ops/operator_checks.h"

namespace frit {

/// In what kernels multiply.
struct Arithmetic {
  DType dtype;
  bool tf32 = true;
  double tolerance;  ///< of the largest value: the inputs are rounded to the dtype before, and float32 to TF32 on the way

  friend std::ostream& operator<<(std::ostream& to, const Arithmetic& a) { return to << a.dtype << (a.tf32 ? "" : ", strict"); }
};
inline constexpr Arithmetic arithmetics[] = {{.dtype = DType::f32, .tolerance = 1e-3},
                                             {.dtype = DType::f32, .tf32 = false, .tolerance = 5e-6},
                                             {.dtype = DType::f16, .tolerance = 1e-3},
                                             {.dtype = DType::bf16, .tolerance = 1e-2}};

/// Calls on a GPU's tensor cores, and of the same operators in strict float32, against the CPU's in float64. The generic suite does not
/// come here with TF32.
class OnTensorCores : public testing::Test {
 protected:
  static constexpr Device gpu{DeviceKind::cuda, 0};

  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no CUDA device";
  }
  void TearDown() override { set_numerics({}); }

  /// The schedule of what run_on_gpu ran last.
  static inline std::string ran;

  static void multiply_in(const Arithmetic& arithmetic) { set_numerics({.tf32 = arithmetic.tf32, .deterministic = true}); }

  /// Images lie channels-last where the kernel takes that, and so do results.
  static std::vector<Tensor> run_on_gpu(const Operator& op, const std::vector<Tensor>& inputs, const ops::Attributes& attributes) {
    const auto layout = [](const std::vector<int>& any_layout, std::size_t operand, const Shape& shape) {
      const bool free = std::find(any_layout.begin(), any_layout.end(), static_cast<int>(operand)) != any_layout.end();
      return free && shape.rank() >= 4 ? Layout::channels_last : Layout::contiguous;
    };
    std::vector<Tensor> moved;
    ops::CallLayouts layouts;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      layouts.inputs.push_back(layout(op.cuda.any_layout_inputs, i, inputs[i].shape()));
      moved.push_back(inputs[i].to(gpu).contiguous(layouts.inputs.back()));
    }
    const std::vector<TensorType> types = op.infer_types(types_of(inputs), attributes);
    std::vector<Tensor> outputs;
    for (std::size_t i = 0; i < types.size(); ++i) {
      layouts.outputs.push_back(layout(op.cuda.any_layout_outputs, i, types[i].shape));
      const Tensor output = Tensor::full(types[i].shape, is_floating(types[i].dtype) ? NAN : 77, types[i].dtype, gpu);
      outputs.push_back(output.contiguous(layouts.outputs.back()));
    }
    const std::size_t bytes = ops::scratch_bytes(op, types_of(inputs), types, attributes, gpu, layouts);
    const Tensor scratch = Tensor::full({static_cast<std::int64_t>(bytes)}, 255, DType::u8, gpu);
    const std::span<std::byte> memory(static_cast<std::byte*>(scratch.raw()), bytes);
    ran = ops::schedule_of(op, attributes, moved, outputs, memory);
    ops::invoke(op, attributes, moved, outputs, memory);
    for (Tensor& output : outputs) output = output.to(Device::cpu()).contiguous();
    return outputs;
  }

  /// The floating inputs in float64.
  static std::vector<Tensor> exactly(const std::vector<Tensor>& inputs) {
    std::vector<Tensor> exact;
    for (const Tensor& input : inputs) exact.push_back(is_floating(input.dtype()) ? input.to(DType::f64) : input);
    return exact;
  }

  /// On tensor cores. Gives the schedules that ran.
  static std::map<DType, std::string> expect_accurate(const char* name, const std::vector<Shape>& shapes,
                                                      const ops::Attributes& attributes) {
    std::map<DType, std::string> schedules;
    const Operator& op = ops::registry().find(name);
    for (const Arithmetic& arithmetic : arithmetics) {
      if (!arithmetic.tf32) continue;
      std::vector<Tensor> inputs;
      for (const Shape& shape : shapes) inputs.push_back(normal_tensor(shape, DType::f32, inputs.size()).to(arithmetic.dtype));
      const std::vector<Tensor> expected = ops::run(op, exactly(inputs), attributes), found = run_on_gpu(op, inputs, attributes);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(near(found[i].to(DType::f64), expected[i], arithmetic.tolerance, largest_finite(expected[i])))
            << name << ' ' << shapes[1] << ' ' << arithmetic << " result " << i;
      }
      const std::vector<Tensor> again = run_on_gpu(op, inputs, attributes);
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(same_bits(found[i], again[i]));
      schedules[arithmetic.dtype] = ran;
    }
    return schedules;
  }

  /// Results of any operator against the definition's; integers are left to others.
  static void expect_near(const std::vector<Tensor>& found, const std::vector<Tensor>& expected, double tolerance,
                          const std::string& what) {
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (!is_floating(expected[i].dtype())) continue;
      // The gradient of a bias in front of a norm may be 0 but for rounding.
      const double largest = std::max(0.1, largest_finite(expected[i]));
      EXPECT_TRUE(near(found[i].to(DType::f64), expected[i], tolerance, largest)) << what << " result " << i;
    }
  }

  /// A fused operator whose results are (output, argmax, mean, rstd, argmax_input, ...), and the gradient's, against their definitions in
  /// float64. `backward_inputs` makes of the operator's inputs and results what the gradient's is given.
  template <class Call, class BackwardInputs>
  static void expect_agreement(const char* forward, const char* backward, const Call& call, const BackwardInputs& backward_inputs) {
    for (const Arithmetic& arithmetic : arithmetics) {
      multiply_in(arithmetic);
      const std::string what = concat(call.image, ' ', arithmetic);
      const std::vector<Tensor> inputs = call.inputs(arithmetic.dtype);
      std::vector<Tensor> expected = ops::run(forward, exactly(inputs), call.attributes());
      const std::vector<Tensor> found = run_on_gpu(ops::registry().find(forward), inputs, call.attributes());
      // What rounding makes equal may win instead: argmax and its input are then others.
      const std::vector<double> argmax = found[1].to_vector<double>(), right = expected[1].to_vector<double>();
      std::vector<double> argmax_input = expected[4].to_vector<double>();
      const std::vector<double> found_argmax_input = found[4].to_vector<double>();
      std::size_t other = 0;
      for (std::size_t i = 0; i < right.size(); ++i) {
        if (argmax[i] == right[i]) continue;
        ++other;
        argmax_input[i] = found_argmax_input[i];
      }
      EXPECT_LE(other, 2 + right.size() / (arithmetic.dtype == DType::bf16 ? 20 : 100)) << what;
      expected[4] = Tensor::from(argmax_input, expected[4].shape());
      expect_near(found, expected, 4 * arithmetic.tolerance, concat(forward, ' ', what));

      const std::vector<Tensor> given = backward_inputs(inputs, found);
      const std::vector<Tensor> gradients = ops::run(backward, exactly(given), call.attributes());
      const std::vector<Tensor> found_gradients = run_on_gpu(ops::registry().find(backward), given, call.attributes());
      expect_near(found_gradients, gradients, 4 * arithmetic.tolerance, concat(backward, ' ', what));
      if (arithmetic.tf32) {
        EXPECT_EQ(ran, "taps on tensor cores") << backward << ' ' << what;
      }

      const std::vector<Tensor> again = run_on_gpu(ops::registry().find(backward), given, call.attributes());
      for (std::size_t i = 0; i < again.size(); ++i) {
        EXPECT_TRUE(same_bits(found_gradients[i], again[i])) << backward << ' ' << what << " result " << i;
      }
    }
  }

  /// Of inputs in halves, those but the weight, which is the second, may be float32, and the image may lie in either layout.
  template <class Call>
  static void expect_same_with_halves(const Operator& op, const Call& call) {
    for (const DType dtype : {DType::f16, DType::bf16}) {
      std::vector<Tensor> inputs = call.inputs(dtype);
      const Tensor expected = run_on_gpu(op, inputs, call.attributes())[0];
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (i != 1) inputs[i] = inputs[i].to(DType::f32);
      }
      EXPECT_TRUE(same_bits(run_on_gpu(op, inputs, call.attributes())[0], expected));
      std::vector<Tensor> contiguous;
      for (const Tensor& input : inputs) contiguous.push_back(input.to(gpu));
      EXPECT_TRUE(same_bits(ops::run(op, contiguous, call.attributes())[0].to(Device::cpu()), expected));
    }
  }
};

/// The operations that a forward graph has in the end, with its convolutions' lowering of some name. build(graph) makes the graph.
template <class Build>
std::vector<std::string> operations_lowered(bool tf32, const char* lowering, const Build& build) {
  const Numerics before = numerics();
  Numerics changed = before;
  changed.tf32 = tf32;
  set_numerics(changed);
  Graph graph;
  build(graph);
  const Graph lowered =
      graph::apply_lowerings(graph::apply(graph::forward_pipeline(), graph), [&](const graph::Node&) { return lowering; });
  set_numerics(before);
  std::vector<std::string> names;
  for (const graph::Node* node : lowered.all(graph::NodeKind::operation)) names.push_back(node->op->name);
  return names;
}

/// Kernels that NVRTC compiles for warpgroups' products.
class OnHopper : public OnTensorCores {
 protected:
  void SetUp() override {
    OnTensorCores::SetUp();
    if (IsSkipped()) return;
    if (cuda::capability(gpu.index) != warpgroup::capability) GTEST_SKIP() << "not a Hopper GPU";
    if (!nvrtc::is_available(gpu.index)) GTEST_SKIP() << "no NVRTC";
  }
};

}  // namespace frit
