// Files that are damaged, or made to do harm.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "models/onnx/model_builder.h"

namespace frit {
namespace {

namespace fs = std::filesystem;

class OnnxExternalData : public testing::Test {
 protected:
  OnnxExternalData() {
    fs::create_directories(folder_ / "model");
    std::ofstream(folder_ / "model" / "weights.bin", std::ios::binary) << std::string(4, 'x') << bytes({1, 2});
    std::ofstream(folder_ / "outside.bin", std::ios::binary) << bytes({1, 2});
  }
  ~OnnxExternalData() override { fs::remove_all(folder_); }

  static std::string bytes(const std::vector<float>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }

  /// y = x + w, whose w (2) is said to lie elsewhere.
  std::string write(const std::vector<std::pair<std::string, std::string>>& where) const {
    ModelBuilder builder;
    builder.input("x", {2}).output("y");
    onnx::TensorProto& tensor = builder.initializer("w", {2}, onnx::TensorProto::FLOAT);
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : where) {
      onnx::StringStringEntryProto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
    builder.node("Add", {"x", "w"}, {"y"});
    const std::string path = folder_ / "model" / "model.onnx";
    std::ofstream(path, std::ios::binary) << builder.bytes();
    return path;
  }
  std::string refusal(const std::vector<std::pair<std::string, std::string>>& where) const {
    const std::string path = write(where), message = message_of([&] { OnnxModel model(path); });
    return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
  }

  fs::path folder_ = fs::temp_directory_path() / concat("frit_onnx_external_", ::getpid());
};

TEST_F(OnnxExternalData, IsReadFromTheModelsFolder) {
  const Graph graph = import_onnx(write({{"location", "weights.bin"}, {"offset", "4"}, {"length", "8"}}));
  EXPECT_EQ(run_graph(graph, Tensor::from({10.0f, 20.0f}, {2})).to_vector<float>(), (std::vector<float>{11, 22}));
}

TEST_F(OnnxExternalData, IsReadFromNowhereElse) {
  const auto outside = [](const std::string& path) {
    return concat("tensor \"w\": its data is said to lie in \"", path, "\": expected a path below the model's folder");
  };
  const std::string absolute = folder_ / "outside.bin";
  for (const std::string& path : {std::string("../outside.bin"), std::string("a/../../outside.bin"), absolute, std::string()}) {
    EXPECT_EQ(refusal({{"location", path}}), outside(path));
  }
  fs::create_symlink("../outside.bin", folder_ / "model" / "link.bin");
  EXPECT_EQ(refusal({{"location", "link.bin"}}),
            "tensor \"w\": its data is said to lie in \"link.bin\", which a link leads out of the model's folder");
  ModelBuilder builder;
  builder.initializer("w", {2}, onnx::TensorProto::FLOAT).set_data_location(onnx::TensorProto::EXTERNAL);
  EXPECT_EQ(message_of([&] { builder.model(); }),
            "test.onnx: tensor \"w\": its data is said to lie in a file of its own: a model in memory has none");
}

TEST_F(OnnxExternalData, MustBeThereAsSaid) {
  const std::string weights = fs::canonical(folder_ / "model" / "weights.bin");
  EXPECT_EQ(refusal({{"location", "weights.bin"}, {"offset", "8"}}),
            concat("tensor \"w\": its data is said to be 8 bytes from 8 on in ", weights, ", which has 12"));
  EXPECT_EQ(refusal({{"location", "weights.bin"}, {"offset", "18446744073709551615"}}),
            concat("tensor \"w\": its data is said to be 8 bytes from 18446744073709551615 on in ", weights, ", which has 12"));
  EXPECT_EQ(refusal({{"location", "weights.bin"}, {"length", "4"}}), "tensor \"w\": its data is said to have 4 bytes, its shape needs 8");
  EXPECT_EQ(refusal({{"location", "weights.bin"}, {"offset", "-1"}}), "tensor \"w\": its data's offset is \"-1\", not a number");
  EXPECT_EQ(refusal({{"location", "none.bin"}}),
            concat("tensor \"w\": ", (fs::canonical(folder_ / "model") / "none.bin").string(), ": no such file or directory"));
}

TEST(OnnxFile, IsRefusedUnlessItIsWhole) {
  ModelBuilder builder;
  builder.input("x", {2}).output("y").weight("w", {2}, {1, 2}).node("Add", {"x", "w"}, {"y"});
  const std::string whole = builder.bytes();
  EXPECT_EQ(message_of([] { ModelBuilder::read_onnx(""); }), "test.onnx: not an ONNX model, or cut short");
  EXPECT_EQ(message_of([] { ModelBuilder::read_onnx("plain text"); }), "test.onnx: not an ONNX model, or cut short");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    // Where a field ends the rest is a smaller model.
    const std::string message = message_of([&] { import_onnx(ModelBuilder::read_onnx(whole.substr(0, length))); });
    EXPECT_TRUE(message.starts_with("test.onnx: ") || message == "no error") << message;
  }
}

TEST(OnnxFile, ATensorIsAsLongAsItsShapeSays) {
  ModelBuilder builder;
  builder.weight("w", {1 << 20, 1 << 20}, {1, 2});
  EXPECT_EQ(message_of([&] { builder.model(); }), "test.onnx: tensor \"w\": it has 8 bytes, its shape 1048576x1048576 needs 4398046511104");
  ModelBuilder integers;
  integers.integers("sizes", {std::int64_t{1} << 40}, {1});
  EXPECT_EQ(message_of([&] { integers.model(); }),
            "test.onnx: tensor \"sizes\": it has 1 elements, its shape 1099511627776 needs 1099511627776");
  ModelBuilder negative;
  negative.weight("w", {-1}, {});
  EXPECT_TRUE(message_of([&] { negative.model(); }).starts_with("test.onnx: tensor \"w\": "));
  ModelBuilder eight_bits;
  eight_bits.initializer("q", {1}, onnx::TensorProto::INT8).set_raw_data("x");
  EXPECT_EQ(message_of([&] { eight_bits.model(); }), "test.onnx: tensor \"q\": elements of type int8 are not supported");
}

TEST(OnnxFile, OpsetsAreThoseThatAreKnown) {
  EXPECT_EQ(message_of([] { ModelBuilder(29).model(); }), "test.onnx: opset 29 of the standard operators: expected 1 to 28");
  EXPECT_EQ(message_of([] { ModelBuilder(0).model(); }), "test.onnx: opset 0 of the standard operators: expected 1 to 28");
}

/// Doubling on and on: 2^40 elements by 40 nodes.
TEST(OnnxFile, ConstantsGrowNoFurtherThanTheFileExplains) {
  ModelBuilder builder;
  builder.output("v40").weight("scalar", {}, {1}).integers("one", {1}, {1});
  builder.node("Expand", {"scalar", "one"}, {"v0"});
  for (int i = 0; i < 40; ++i) {
    const std::string from = concat("v", i);
    ModelBuilder::set(builder.node("Concat", {from, from}, {concat("v", i + 1)}), "axis", std::int64_t{0});
  }
  const Graph graph = import_onnx(builder.model());
  std::int64_t bytes = 0;
  for (const graph::Node* node : graph.all(graph::NodeKind::constant)) bytes += node->constant.bytes();
  EXPECT_LT(bytes, 8 << 20);
  EXPECT_EQ(graph.type(graph.outputs()[0].value).shape, (Shape{std::int64_t{1} << 40}));
}

TEST(OnnxFile, NumbersThatNoModelHasAreRefused) {
  const auto refused = [](const std::function<void(ModelBuilder&)>& build) {
    ModelBuilder builder;
    builder.input("x", {1, 1, 4, 4}).output("y");
    build(builder);
    return message_of([&] { import_onnx(builder.model()); });
  };
  EXPECT_NE(refused([](ModelBuilder& b) { b.node("Split", {"x"}, {}); }).find("it has no outputs"), std::string::npos);
  EXPECT_NE(refused([](ModelBuilder& b) {
              b.integers("none", {0}, {}).integers("one", {1}, {1});
              b.node("Range", {"none", "one", "one"}, {"y"});
            }).find("input 0 is not one number"),
            std::string::npos);
  EXPECT_NE(refused([](ModelBuilder& b) {
              b.integers("pads", {8}, {0, 0, INT64_MIN, 0, 0, 0, -1, 0});
              b.node("Pad", {"x", "pads"}, {"y"});
            }).find("pads has -9223372036854775808"),
            std::string::npos);
}

TEST(OnnxFile, ManySmallNodesMakeNoLargeGraph) {
  ModelBuilder builder;
  builder.input("x", {4, 1 << 20}).output("y");
  for (int i = 0; i < 100; ++i) builder.node("Trilu", {"x"}, {concat("t", i)});
  EXPECT_EQ(message_of([&] { import_onnx(builder.model()); }), "test.onnx: its nodes make constants of more than 67108864 bytes");
}

TEST(OnnxFile, NestingIsLimited) {
  ModelBuilder builder;
  onnx::GraphProto* graph = builder.proto.mutable_graph();
  for (int i = 0; i < 200; ++i) {
    onnx::NodeProto* node = graph->add_node();
    node->set_op_type("If");
    graph = node->add_attribute()->mutable_g();
  }
  EXPECT_EQ(message_of([&] { builder.model(); }), "test.onnx: not an ONNX model, or cut short");
}

}  // namespace
}  // namespace frit
