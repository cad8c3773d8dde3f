// Graphs within nodes, and sequences, as PyTorch writes what shapes decide.

#include <gtest/gtest.h>

#include <functional>

#include "models/onnx/model_builder.h"

namespace frit {
namespace {

using Floats = std::vector<float>;

onnx::GraphProto& inner_graph(onnx::NodeProto& node, const std::string& name) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::GRAPH);
  return *attribute.mutable_g();
}

onnx::NodeProto& add(onnx::GraphProto& graph, const std::string& op, const ModelBuilder::Names& inputs, const std::string& output) {
  onnx::NodeProto& node = *graph.add_node();
  node.set_op_type(op);
  node.set_name("inner");
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

/// y = -x w where x has three axes, else -(x + w).
ModelBuilder choosing_model(const std::vector<std::int64_t>& sizes, const std::string& op = "Mul") {
  ModelBuilder builder;
  builder.input("x", sizes).output("y").integers("three", {}, {3}).weight("w", {1}, {2});
  builder.node("Shape", {"x"}, {"shape"});
  builder.node("Size", {"shape"}, {"rank"});
  builder.node("Equal", {"rank", "three"}, {"has_three"});
  onnx::NodeProto& node = builder.node("If", {"has_three"}, {"chosen"}, "choice");
  for (const char* const name : {"then_branch", "else_branch"}) {
    onnx::GraphProto& graph = inner_graph(node, name);
    add(graph, name[0] == 't' ? op : "Add", {"x", "w"}, "inside");
    graph.add_output()->set_name("inside");
  }
  builder.node("Neg", {"chosen"}, {"y"});
  return builder;
}

TEST(OnnxControl, AConditionThatShapesDecideChoosesAGraph) {
  EXPECT_EQ(run_graph(import_onnx(choosing_model({1, 1, 2}).model()), counting({1, 1, 2})).to_vector<float>(), (Floats{0, -2}));
  const Graph sum = import_onnx(choosing_model({2}, "Unknown").model());  // which is not read
  EXPECT_EQ(run_graph(sum, counting({2})).to_vector<float>(), (Floats{-2, -3}));
  EXPECT_TRUE(sum.find(graph::NodeKind::variable, "w")->trainable);
  EXPECT_EQ(message_of([] {
              import_onnx(choosing_model({1, 1, 2}, "Unknown").model());
            }),
            "test.onnx: not supported:\n  node \"inner\" (Unknown, opset 17): there is no such operator here\n"
            "  node \"choice\" (If, opset 17): what its graph gives is not supported");
}

/// Of each iteration i x[i] into a sequence, as torch.tensor_split and torch.unbind are written, and x[i] + 1 stacked.
ModelBuilder looping_model(std::int64_t times) {
  ModelBuilder builder;
  builder.input("x", {3, 2}).output("y").integers("times", {}, {times}).integers("place", {}, {-1});
  builder.weight("one", {1}, {1}).initializer("on", {}, onnx::TensorProto::BOOL).add_int32_data(1);
  builder.node("SequenceEmpty", {}, {"none"});
  onnx::GraphProto& body = inner_graph(builder.node("Loop", {"times", "on", "none"}, {"rows", "stacked"}, "loop"), "body");
  for (const char* const name : {"i", "runs", "before"}) body.add_input()->set_name(name);
  add(body, "Identity", {"runs"}, "goes_on");
  add(body, "Gather", {"x", "i"}, "row");
  add(body, "SequenceInsert", {"before", "row"}, "after");
  add(body, "Add", {"row", "one"}, "more");
  for (const char* const name : {"goes_on", "after", "more"}) body.add_output()->set_name(name);
  builder.node("SequenceAt", {"rows", "place"}, {"last"});
  builder.node("Add", {"stacked", "last"}, {"y"});
  return builder;
}

TEST(OnnxControl, LoopsRunAsOftenAsIsKnown) {
  EXPECT_EQ(run_graph(import_onnx(looping_model(3).model()), counting({3, 2})).to_vector<float>(), (Floats{5, 7, 7, 9, 9, 11}));
  EXPECT_EQ(run_graph(import_onnx(looping_model(2).model()), counting({3, 2})).to_vector<float>(), (Floats{3, 5, 5, 7}));
  EXPECT_NE(message_of([] { import_onnx(looping_model(4).model()); }).find("node \"inner\" (Gather, opset 17): "), std::string::npos);
  const std::string message = message_of([] { import_onnx(looping_model(1 << 20).model()); });
  EXPECT_NE(message.find("not supported"), std::string::npos) << message;
}

/// y by a sequence's operators from the parts of x that `split` says, or one by one.
Tensor from_parts(const ModelBuilder::Names& split, const std::function<void(ModelBuilder&)>& nodes, std::int64_t keeps_axis = 1) {
  ModelBuilder builder;
  builder.input("x", {4}).output("y").integers("one", {}, {1}).integers("three", {}, {3}).integers("sizes", {2}, {1, 3});
  builder.integers("none", {0}, {});
  ModelBuilder::Names inputs = {"x"};
  inputs.insert(inputs.end(), split.begin(), split.end());
  ModelBuilder::set(builder.node("SplitToSequence", inputs, {"parts"}, "split"), "keepdims", keeps_axis);
  nodes(builder);
  return run_graph(import_onnx(builder.model()), counting({4}));
}

TEST(OnnxControl, SequencesAreSplitAndJoined) {
  const auto second = [](ModelBuilder& builder) { builder.node("SequenceAt", {"parts", "one"}, {"y"}); };
  EXPECT_EQ(from_parts({}, second).shape(), (Shape{1}));
  EXPECT_EQ(from_parts({}, second, 0).shape(), Shape());
  EXPECT_EQ(from_parts({"three"}, second).to_vector<float>(), (Floats{3}));
  EXPECT_EQ(from_parts({"sizes"}, second).to_vector<float>(), (Floats{1, 2, 3}));
  const auto joined = [](ModelBuilder& builder) {
    builder.node("SequenceErase", {"parts", "one"}, {"fewer"});
    builder.node("SequenceInsert", {"fewer", "x", "one"}, {"all"});
    ModelBuilder::set(builder.node("ConcatFromSequence", {"all"}, {"y"}), "axis", std::int64_t{0});
  };
  EXPECT_EQ(from_parts({}, joined).to_vector<float>(), (Floats{0, 0, 1, 2, 3, 2, 3}));
  const auto length = [](ModelBuilder& builder) {
    builder.node("SequenceLength", {"parts"}, {"length"});
    builder.node("CastLike", {"length", "x"}, {"y"});
  };
  EXPECT_EQ(from_parts({"three"}, length).to_vector<float>(), (Floats{2}));
  const auto no_value = [](ModelBuilder& builder) { builder.node("Neg", {"parts"}, {"y"}, "minus"); };
  EXPECT_EQ(message_of([&] { from_parts({}, no_value); }),
            "test.onnx: not supported:\n  node \"minus\" (Neg, opset 17): input 0 is a sequence");
  const auto beyond = [](ModelBuilder& builder) { builder.node("SequenceAt", {"parts", "three"}, {"y"}, "at"); };
  EXPECT_EQ(message_of([&] { from_parts({"three"}, beyond); }),
            "test.onnx: not supported:\n  node \"at\" (SequenceAt, opset 17): its place is not among 2");
  const auto nowhere = [](ModelBuilder& builder) { builder.node("SequenceAt", {"parts", "none"}, {"y"}, "at"); };
  EXPECT_EQ(message_of([&] { from_parts({"three"}, nowhere); }),
            "test.onnx: not supported:\n  node \"at\" (SequenceAt, opset 17): input 1 has 0 numbers, expected one");
}

}  // namespace
}  // namespace frit
