// Models of several inputs and outputs.

#include <gtest/gtest.h>

#include "frit/frit_c.h"
#include "frit/models/nn.h"
#include "frit/models/predictor.h"
#include "frit/ops/elementwise/arithmetic.h"
#include "frit/ops/shape/shape_ops.h"
#include "models/saved_model.h"

namespace frit {
namespace {

struct Settings {
  void fields(FieldVisitor&) {}
};

/// "output" is the image and the earlier image times a parameter, plus a number; "class" are logits of which the scanner chooses a row.
NamedValues network(const Scope& scope, const NamedValues& inputs, const Settings&) {
  const Value factor = scope.parameter("factor", {1}, init::constant(3));
  const Value table = nn::embedding(scope / "table", inputs.at("scanner"), {.num_embeddings = 4, .embedding_dim = 2});
  const Value image = inputs.at("input");
  return {{"output", (image + inputs.at("before")) * factor + reshape(inputs.at("age"), {-1, 1, 1, 1})},
          {"class", table},
          {"aside", inputs.at("age")}};
}

Model describe(const Settings&) {
  return {.small_input = {2, 1, 3, 4},
          .full_input = {4, 1, 6, 5},
          .side_inputs = {{"age", {1}}, {"scanner", {}, DType::i64}, {"before", {1, -1, -1}}},
          .heads = {{"class", Model::Task::classification, 0.25}, {.name = "aside", .weight = 0}}};
}

/// Registered once for all tests of the program.
Model several() {
  static const bool added = (add_model("several", network, describe), true);
  return added ? make_model("several") : Model();
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SeveralInputs, HaveTheirNamesAndSizesInTheGraph) {
  const Model model = several();
  EXPECT_EQ(model.data_fields(), (std::vector<std::string>{"input", "target", "age", "scanner", "before", "target.class"}));
  const Graph graph = forward_graph(model, {5, 1, 6, 7}, DType::f64);
  const auto type = [&](const char* name) { return graph.type(graph.find(graph::NodeKind::input, name)->outputs[0]); };
  EXPECT_EQ(type("input"), (TensorType{DType::f64, {5, 1, 6, 7}}));
  EXPECT_EQ(type("before"), (TensorType{DType::f64, {5, 1, 6, 7}})) << "as large as the image";
  EXPECT_EQ(type("age"), (TensorType{DType::f64, {5, 1}}));
  EXPECT_EQ(type("scanner"), (TensorType{DType::i64, {5}}));
  std::vector<std::string> outputs;
  for (const graph::Output& output : graph.outputs()) outputs.push_back(output.name);
  EXPECT_EQ(outputs, (std::vector<std::string>{"output", "class", "aside"}));
}

TEST(SeveralInputs, AreRefusedTogetherWhereTheyDoNotFit) {
  const Model model = several();
  std::map<std::string, TensorType> given = {{"input", {DType::u8, {2, 1, 3, 4}}},
                                             {"age", {DType::i64, {2, 1}}},
                                             {"scanner", {DType::u8, {2}}},
                                             {"before", {DType::f32, {2, 1, 3, 4}}},
                                             {"target", {DType::f32, {2, 1, 3, 4}}}};
  EXPECT_EQ(error_of([&] { model.check_side_inputs(given); }), "") << "numbers are converted, and targets may be there";
  given["scanner"] = {DType::f32, {2}};
  given["age"].shape = {2};
  EXPECT_EQ(error_of([&] { model.check_side_inputs(given); }),
            "inputs of model \"several\": \"age\": expected f32 2x1, got i64 2; \"scanner\": expected i64 2, got f32 2");
  EXPECT_EQ(error_of([&] {
              model.check_side_inputs({{"age", {DType::f32, {2, 1}}}, {"sex", {}}});
            }),
            "inputs of model \"several\": missing: \"input\", \"scanner\", \"before\"; not expected: \"sex\"");
  given["scanner"].dtype = DType::i32;
  given["age"].shape = {2, 1};
  given["before"].shape = {2, 1, 4, 3};
  EXPECT_EQ(error_of([&] { model.check_side_inputs(given); }),
            "inputs of model \"several\": \"before\": expected f32 2x1x3x4, got f32 2x1x4x3");
}

TEST(SeveralInputs, NeedNamesOfTheirOwn) {
  several();
  int number = 0;
  const auto message = [&](Model (*describe_it)(const Settings&)) {
    const std::string name = concat("misnamed", ++number);
    add_model(name, network, describe_it);
    return error_of([&] { make_model(name); }).substr(name.size());
  };
  const auto named = [](const char* name) {
    return concat(": an input or output cannot be called \"", name, "\": the name is another's, or has another meaning, or is empty");
  };
  EXPECT_EQ(message([](const Settings& s) {
              Model model = describe(s);
              model.side_inputs[0].name = "class";
              return model;
            }),
            named("class"));
  EXPECT_EQ(message([](const Settings& s) {
              Model model = describe(s);
              model.side_inputs[0].name = "target.age";
              return model;
            }),
            named("target.age"));
  EXPECT_EQ(message([](const Settings& s) {
              Model model = describe(s);
              model.side_inputs[0].name = "inputs";
              return model;
            }),
            named("inputs"))
      << "whose file is the image's";
  EXPECT_EQ(message([](const Settings& s) {
              Model model = describe(s);
              model.heads[0].name = "output";
              return model;
            }),
            named("output"));
  EXPECT_EQ(message([](const Settings& s) {
              Model model = describe(s);
              model.heads[0].weight = -1;
              return model;
            }),
            ": the weight of \"class\": expected 0 or more, got -1");
  EXPECT_EQ(message([](const Settings& s) {
              Model model = describe(s);
              model.heads = {{"other"}, {"class"}};
              return model;
            }),
            concat(": the outputs of misnamed6: missing: \"other\"; not expected: \"aside\""));
  EXPECT_EQ(message([](const Settings& s) {
              Model model = describe(s);
              model.side_inputs[2].shape = {-1, 1, 1};
              return model;
            }),
            ": misnamed7: the image has no axis for that of the side input \"before\", of -1x1x1");
}

class SeveralPredictor : public SavedModel {
 protected:
  SeveralPredictor() : SavedModel(several()) {}
};

TEST_F(SeveralPredictor, TakesAndGivesTensorsByName) {
  Predictor predict(path_, {.device = Device::cpu()});
  const Tensor image = input({3, 1, 2, 2}, 1), before = input({3, 1, 2, 2}, 2);
  const Bindings inputs = {{"input", image},
                           {"before", before.to(DType::f64)},
                           {"age", Tensor::from<std::int64_t>({10, 20, 30}, {3, 1})},
                           {"scanner", Tensor::from<std::int32_t>({3, 0, 3}, {3})}};
  const Bindings outputs = predict(inputs);
  ASSERT_EQ(outputs.size(), 3u);
  const std::vector<float> output = outputs.at("output").to_vector<float>(), a = image.to_vector<float>(), b = before.to_vector<float>();
  for (std::size_t i = 0; i < output.size(); ++i) {
    EXPECT_FLOAT_EQ(output[i], (a[i] + b[i]) * 3 + 10 * static_cast<float>(i / 4 + 1)) << i;
  }
  const std::vector<float> logits = outputs.at("class").to_vector<float>();
  EXPECT_EQ(outputs.at("class").shape(), (Shape{3, 2}));
  EXPECT_EQ(logits[0], logits[4]) << "the same row of the table";
  EXPECT_NE(logits[0], logits[2]);
  EXPECT_EQ(predict.output_shape({7, 1, 5, 6}), (Shape{7, 1, 5, 6}));
  Bindings none;
  for (const auto& [name, tensor] : inputs) none[name] = tensor.slice(0, 0, 0);
  EXPECT_EQ(predict(none).at("class").shape(), (Shape{0, 2}));

  EXPECT_EQ(error_of([&] { predict(image); }), "inputs of model \"several\": missing: \"age\", \"scanner\", \"before\"");
  Bindings more = inputs;
  more["weight"] = image;
  EXPECT_EQ(error_of([&] { predict(more); }), "inputs of model \"several\": not expected: \"weight\"");
}

TEST_F(SeveralPredictor, IsRefusedByTheCInterface) {
  frit_model* model = nullptr;
  EXPECT_EQ(frit_model_load(path_.c_str(), "cpu", nullptr, &model), FRIT_BAD_ARGUMENT);
  EXPECT_EQ(model, nullptr);
  EXPECT_STREQ(frit_last_error(),
               "several reads \"age\", \"scanner\", \"before\" besides its image: the C interface is for models that read an image alone");
}

}  // namespace
}  // namespace frit
