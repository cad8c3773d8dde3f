#include "frit/models/predictor.h"

#include <malloc.h>

#include "models/saved_model.h"
#include "sanitized.h"

namespace frit {
namespace {

class PredictorTest : public SavedModel {
 protected:
  PredictorTest()
      : SavedModel(
            make_model("conv2d-groupnorm-pool", R"({"in_channels": 2, "out_channels": 4, "num_groups": 2, "pool_kernel_size": 2})")) {}
};

TEST_F(PredictorTest, ComputesWhatAProgramDoesAndEachResultStays) {
  Predictor predict(path_, {.device = Device::cpu()});
  EXPECT_EQ(predict.model().name, model_.name);
  const Tensor first = input({2, 2, 9, 8}, 1), second = input({2, 2, 9, 8}, 2), other = input({1, 2, 12, 10}, 3);
  const Tensor of_first = predict(first), of_second = predict(second), of_other = predict(other);
  EXPECT_EQ(of_first.to_vector<float>(), expected(first));
  EXPECT_EQ(of_second.to_vector<float>(), expected(second));
  EXPECT_EQ(of_other.to_vector<float>(), expected(other));
  EXPECT_EQ(of_other.shape(), predict.output_shape(other.shape()));
}

TEST_F(PredictorTest, ConvertsTheInputAndTakesEmptyBatches) {
  Predictor predict(path_, {.device = Device::cpu()});
  const Tensor x = input({1, 2, 9, 8}, 1);
  EXPECT_EQ(predict(x.to(DType::f16)).to_vector<float>(), expected(x.to(DType::f16).to(DType::f32)));
  EXPECT_EQ(predict(Tensor::empty({0, 2, 9, 8})).shape(), Shape({0, 4, 3, 3}));
}

TEST_F(PredictorTest, ComputesInTheAskedPrecision) {
  Predictor f64(path_, {.device = Device::cpu(), .precision = DType::f64}),
      bf16(path_, {.device = Device::cpu(), .precision = DType::bf16});
  const Tensor x = input({1, 2, 9, 8}, 1);
  const std::vector<float> single = expected(x);
  EXPECT_EQ(f64(x).dtype(), DType::f64);
  const std::vector<double> doubles = f64(x).to_vector<double>(), halves = bf16(x).to_vector<double>();
  for (std::size_t i = 0; i < single.size(); ++i) {
    EXPECT_NEAR(doubles[i], single[i], 1e-5);
    EXPECT_NEAR(halves[i], single[i], 0.2);
  }
  EXPECT_NE(halves, doubles);
}

TEST_F(PredictorTest, KeepsNoMoreForEverMoreShapes) {
  if (sanitized) GTEST_SKIP() << "a sanitizer has an allocator of its own";
  Predictor predict(path_, {.device = Device::cpu()});
  const auto ask = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t size = begin; size < end; ++size) EXPECT_EQ(predict.output_shape({1, 2, 9, size})[3], (size - 2) / 2);
  };
  ask(100, 300);
  const std::size_t before = mallinfo2().uordblks;
  ask(300, 2300);
  EXPECT_LT(mallinfo2().uordblks, before + (64u << 10)) << "of 2000 shapes";
}

class LargeKernel : public SavedModel {
 protected:
  LargeKernel()
      : SavedModel(make_model("conv2d-groupnorm-pool", R"({"in_channels": 2, "out_channels": 4, "num_groups": 2, "kernel_size": 9})")) {}
};

TEST_F(LargeKernel, IsLoadedThoughItDoesNotFitTheImageOfAGradientCheck) {
  Predictor predict(path_, {.device = Device::cpu()});
  const Tensor x = input({1, 2, 20, 17}, 1);
  EXPECT_EQ(predict(x).to_vector<float>(), expected(x));
}

TEST_F(PredictorTest, RefusesWhatDoesNotFit) {
  const auto refused = [](ErrorKind kind, const std::string& text, const auto& body) {
    try {
      body();
      ADD_FAILURE() << "not refused: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  Predictor predict(path_, {.device = Device::cpu()});
  refused(ErrorKind::argument, "expected [N, 2, H, W], got [1, 3, 9, 8]", [&] { predict(Tensor::zeros({1, 3, 9, 8})); });
  refused(ErrorKind::argument, "expected f32, f64, f16 or bf16, got i64", [&] { Predictor(path_, {.precision = DType::i64}); });
  refused(ErrorKind::file_system, "nowhere.safetensors", [] { Predictor("nowhere.safetensors"); });
  write_safetensors(path_, {{"x", Tensor::zeros({1})}}, {});
  refused(ErrorKind::format, "not a checkpoint of frit", [&] { Predictor{path_}; });
}

}  // namespace
}  // namespace frit
