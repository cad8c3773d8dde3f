// An ONNX file of several inputs and outputs as a model.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "frit/core/io/file.h"
#include "frit/models/predictor.h"
#include "models/onnx/model_builder.h"

namespace frit {
namespace {

class OnnxFormat : public testing::Test {
 protected:
  OnnxFormat() { add_onnx_format(); }
  ~OnnxFormat() override { std::filesystem::remove(path_); }

  /// "sum" is the image and the mask times the age; "age" comes back doubled.
  static ModelBuilder builder() {
    ModelBuilder builder;
    builder.input("age", {-1, 1, 1, 1}).input("image", {-1, 2, -1, -1}).input("mask", {-1, 2, -1, -1});
    builder.output("sum", {-1, 2, -1, -1}).output("twice", {-1, 1, 1, 1}).output("size");
    builder.node("Mul", {"mask", "age"}, {"scaled"});
    builder.node("Add", {"image", "scaled"}, {"sum"});
    builder.node("Add", {"age", "age"}, {"twice"});
    builder.node("ReduceSum", {"age"}, {"size"});
    return builder;
  }
  Model model_of(const ModelBuilder& file) const {
    write_text(path_, file.bytes());
    return make_model(path_);
  }

  const std::string path_ = std::filesystem::temp_directory_path() / concat("frit_onnx_format_", ::getpid(), ".onnx");
};

TEST_F(OnnxFormat, KeepsTheNamesOfOtherInputsAndOutputs) {
  ModelBuilder file = builder();
  file.proto.mutable_graph()->mutable_input()->SwapElements(0, 1);  // age, which has an image's axes too, comes after the image
  const Model model = model_of(file);
  EXPECT_EQ(model.data_fields(), (std::vector<std::string>{"input", "target", "age", "mask"})) << "other outputs are not learnt";
  Predictor predict(path_, {.device = Device::cpu()});
  const Bindings said = predict({{"input", Tensor::full({2, 2, 3, 5}, 1)},
                                 {"age", Tensor::from<float>({2, 3}, {2, 1, 1, 1})},
                                 {"mask", Tensor::full({2, 2, 3, 5}, 10)}});
  ASSERT_EQ(said.size(), 2u) << "what is of no batch is left out";
  EXPECT_EQ(said.at("output").shape(), (Shape{2, 2, 3, 5}));
  EXPECT_EQ(said.at("output").to_vector<float>()[0], 21);
  EXPECT_EQ(said.at("output").to_vector<float>()[59], 31);
  EXPECT_EQ(said.at("twice").to_vector<float>(), (std::vector<float>{4, 6}));
}

TEST_F(OnnxFormat, LeavesOutOutputsThatAreOfNoBatchOrHaveNoNameOfTheirOwn) {
  ModelBuilder file;
  file.input("image", {-1, 2, 4, 4}).output("y", {-1, 2, 4, 4});
  for (const char* const name : {"loss", "target.y", "inputs", "kept"}) {
    file.output(name, {-1, 2, 4, 4});
    file.node("Neg", {"image"}, {name});
  }
  file.output("mean", {-1, 2, 4, 4});
  ModelBuilder::set(file.node("ReduceMean", {"image"}, {"mean"}), "axes", std::vector<std::int64_t>{0});
  file.node("Relu", {"image"}, {"y"});
  const Model model = model_of(file);
  ASSERT_EQ(model.heads.size(), 1u);
  EXPECT_EQ(model.heads[0].name, "kept");
}

TEST_F(OnnxFormat, RefusesInputsThatDataCannotHave) {
  ModelBuilder file;
  file.input("image", {-1, 2, 4, 4}).input("words", {-1, -1}, onnx::TensorProto::INT64).output("y", {-1, 2, 4, 4});
  file.node("Relu", {"image"}, {"y"});
  EXPECT_EQ(
      message_of([&] { model_of(file); }),
      concat(path_, ": input \"words\": expected f32 or integers [N, ...] of known sizes, found i64 [any, any]; import_onnx() takes any"));
  ModelBuilder none;
  none.input("a", {-1, 2}).input("b", {3}).output("y", {-1, 2});
  none.node("Relu", {"a"}, {"y"});
  EXPECT_EQ(message_of([&] { model_of(none); }),
            concat(path_, ": expected an input of images, f32 [N, C, ...], found f32 [any, 2], f32 [3]; import_onnx() takes any"));
}

}  // namespace
}  // namespace frit
