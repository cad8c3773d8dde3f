#include "frit/frit_c.h"

#include <thread>

#include "frit/core/thread_pool.h"
#include "models/saved_model.h"

namespace frit {
namespace {

class CInterface : public SavedModel {
 protected:
  CInterface() : SavedModel(make_model("conv3d-instnorm-max", R"({"in_channels": 2, "out_channels": 4})")) {}

  frit_model* load(const char* precision = nullptr) const {
    frit_model* model = nullptr;
    EXPECT_EQ(frit_model_load(path_.c_str(), "cpu", precision, &model), FRIT_OK) << frit_last_error();
    return model;
  }

  static std::vector<float> run(frit_model* model, const Tensor& input) {
    frit_type type;
    EXPECT_EQ(frit_model_output(model, input.shape().begin(), input.rank(), &type), FRIT_OK) << frit_last_error();
    std::int64_t elements = 1;
    for (int axis = 0; axis < type.rank; ++axis) elements *= type.sizes[axis];
    std::vector<float> output(static_cast<std::size_t>(elements));
    EXPECT_EQ(frit_model_run(model, input.raw(), input.shape().begin(), input.rank(), output.data(), output.size() * sizeof(float)),
              FRIT_OK)
        << frit_last_error();
    return output;
  }
};

TEST_F(CInterface, TellsWhatTheModelTakesAndGives) {
  frit_model* const model = load();
  EXPECT_STREQ(frit_model_name(model), "conv3d-instnorm-max");
  EXPECT_EQ(frit_model_config(model), model_.config);
  frit_type type;
  ASSERT_EQ(frit_model_input(model, &type), FRIT_OK);
  EXPECT_EQ(type.dtype, FRIT_F32);
  EXPECT_EQ(std::vector<std::int64_t>(type.sizes, type.sizes + type.rank), (std::vector<std::int64_t>{-1, 2, -1, -1, -1}));
  const std::int64_t sizes[] = {3, 2, 5, 6, 7};
  ASSERT_EQ(frit_model_output(model, sizes, 5, &type), FRIT_OK);
  EXPECT_EQ(std::vector<std::int64_t>(type.sizes, type.sizes + type.rank), (std::vector<std::int64_t>{3, 3, 4, 5}));
  frit_model_free(model);
}

TEST_F(CInterface, RunsAsAProgramDoesForSeveralShapes) {
  frit_model* const model = load();
  for (const Shape& shape : {Shape{2, 2, 4, 5, 5}, Shape{1, 2, 3, 4, 6}, Shape{2, 2, 4, 5, 5}}) {
    const Tensor x = input(shape, 3);
    EXPECT_EQ(run(model, x), expected(x)) << shape;
  }
  EXPECT_TRUE(run(model, Tensor::empty({0, 2, 4, 5, 5})).empty());
  frit_model_free(model);
}

TEST_F(CInterface, ComputesInTheAskedPrecision) {
  frit_model *const f64 = load("f64"), *const f16 = load("f16");
  const Tensor x = input({2, 2, 4, 5, 5}, 5);
  const std::vector<float> f32 = expected(x), halves = run(f16, x);
  std::vector<double> output(f32.size());
  ASSERT_EQ(frit_model_run(f64, x.to(DType::f64).raw(), x.shape().begin(), 5, output.data(), output.size() * sizeof(double)), FRIT_OK);
  for (std::size_t i = 0; i < f32.size(); ++i) {
    EXPECT_NEAR(output[i], static_cast<double>(f32[i]), 1e-4);
    EXPECT_NEAR(halves[i], f32[i], 0.1);
  }
  EXPECT_NE(halves, f32);
  frit_model_free(f64);
  frit_model_free(f16);
}

TEST_F(CInterface, ErrorsAreCodesAndText) {
  frit_model* model = load();
  const std::int64_t sizes[] = {1, 2, 4, 5, 5}, other[] = {1, 3, 4, 5, 5}, negative[] = {-1, 2, 4, 5, 5};
  float buffer[1000] = {};
  frit_type type;
  const auto expect = [](frit_status status, frit_status wanted, const std::string& text) {
    EXPECT_EQ(status, wanted) << frit_last_error();
    EXPECT_NE(std::string(frit_last_error()).find(text), std::string::npos) << frit_last_error();
  };
  expect(frit_model_run(model, buffer, other, 5, buffer, sizeof buffer), FRIT_BAD_ARGUMENT,
         "expected [N, 2, D, H, W], got [1, 3, 4, 5, 5]");
  expect(frit_model_run(model, buffer, sizes, 5, buffer, sizeof buffer), FRIT_BAD_ARGUMENT, "expected room for 72 bytes, got 4000");
  expect(frit_model_run(model, nullptr, sizes, 5, buffer, 72), FRIT_BAD_ARGUMENT, "null pointer");
  expect(frit_model_run(nullptr, buffer, sizes, 5, buffer, 72), FRIT_BAD_ARGUMENT, "null pointer");
  expect(frit_model_output(model, negative, 5, &type), FRIT_BAD_ARGUMENT, "negative size");
  expect(frit_model_output(model, sizes, 9, &type), FRIT_BAD_ARGUMENT, "expected 0 to 8, got 9");
  expect(frit_set_threads(0), FRIT_BAD_ARGUMENT, "thread");
  frit_model_free(model);

  expect(frit_model_load("/nowhere/x.safetensors", "cpu", nullptr, &model), FRIT_FILE_SYSTEM, "/nowhere/x.safetensors");
  EXPECT_EQ(model, nullptr);
  expect(frit_model_load(path_.c_str(), "tpu", nullptr, &model), FRIT_BAD_ARGUMENT, "tpu");
  expect(frit_model_load(path_.c_str(), "cpu", "f8", &model), FRIT_BAD_ARGUMENT, "expected f32, f64, f16 or bf16");
  write_safetensors(path_, {{"x", Tensor::zeros({1})}}, {});
  expect(frit_model_load(path_.c_str(), "cpu", nullptr, &model), FRIT_BAD_FILE, "not a checkpoint of frit");
  frit_model_free(nullptr);
}

TEST_F(CInterface, IsForManyThreads) {
  constexpr int threads = 4;
  frit_model* const shared = load();
  const std::string error = frit_last_error();
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      frit_model* const own = load();
      for (int i = 0; i < 10; ++i) {
        const Tensor x = input({1 + t % 2, 2, 4, 5, 5}, static_cast<std::uint64_t>(100 * t + i));
        EXPECT_EQ(run(shared, x), run(own, x));
      }
      EXPECT_EQ(frit_model_run(shared, nullptr, nullptr, t, nullptr, 0), FRIT_BAD_ARGUMENT) << "each thread has its own text";
      EXPECT_NE(std::string(frit_last_error()), "");
      frit_model_free(own);
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(frit_last_error(), error);
  frit_model_free(shared);
}

}  // namespace
}  // namespace frit
