#include "frit/models/nn.h"
#include "frit/models/predictor.h"
#include "frit/ops/elementwise/activation.h"
#include "models/saved_model.h"

namespace frit {
namespace {

struct TinyConfig {
  std::int64_t channels = 2;

  void fields(FieldVisitor& v) { v.field("channels", channels); }
};

Value tiny(const Scope& scope, Value x, const TinyConfig& config) {
  return relu(nn::conv2d(scope / "conv", x, {.out_channels = config.channels, .kernel_size = {3}}));
}

Model describe_tiny(const TinyConfig&) { return {.small_input = {1, 3, 4, 4}, .full_input = {8, 3, 16, 16}}; }

/// Registered once for all tests of the program.
const char* own_model() {
  static const bool added = (add_model("tiny", tiny, describe_tiny), true);
  return added ? "tiny" : "";
}

class OwnModel : public SavedModel {
 protected:
  OwnModel() : SavedModel(make_model(own_model(), R"({"channels": 5})")) {}
};

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(OwnModel, IsKnownByItsName) {
  const std::vector<std::string> names = model_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "tiny"), 1);
  EXPECT_EQ(names.front(), "conv3d-instnorm-max");
  EXPECT_EQ(model_.name, "tiny");
  EXPECT_EQ(model_.config, R"({"channels":5})");
  EXPECT_EQ(model_.in_channels, 3);
  EXPECT_EQ(model_.image_rank, 2);
}

TEST_F(OwnModel, ComesBackFromItsCheckpoint) {
  Predictor predict(path_, {.device = Device::cpu()});
  EXPECT_EQ(predict.model().config, model_.config);
  const Tensor x = input({2, 3, 6, 5}, 1);
  EXPECT_EQ(predict(x).shape(), Shape({2, 5, 4, 3}));
  EXPECT_EQ(predict(x).to_vector<float>(), expected(x));
}

TEST_F(OwnModel, IsRefusedWithWhatDoesNotFit) {
  EXPECT_EQ(refusal([] { make_model("tiny", R"({"colour": 1})"); }), "tiny: unknown field \"colour\"");
  EXPECT_EQ(refusal([] { add_model("tiny", tiny, describe_tiny); }), "add_model: there is a model \"tiny\" already");
  EXPECT_EQ(refusal([] { add_model("resnet", tiny, describe_tiny); }), "add_model: there is a model \"resnet\" already");
  for (const char* name : {"", "a/b", "a.safetensors", "-x", "a b", "@file"}) {
    EXPECT_EQ(refusal([&] { add_model(name, tiny, describe_tiny); }),
              concat("add_model: expected a name without '/', '.', '@' and space, and not '-' first, got \"", name, '"'));
  }
  add_model(
      "shapeless", tiny, +[](const TinyConfig&) { return Model(); });
  EXPECT_EQ(refusal([] { make_model("shapeless"); }),
            "shapeless: a model needs small_input and full_input, (N, C, ...), got scalar and scalar");
}

TEST(MakeModel, NamesWhatIsWrong) {
  const auto message = [](std::string_view name, std::string_view config) -> std::string {
    try {
      make_model(name, config);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string unknown = message("clasifier", "{}");  // other tests add models
  EXPECT_TRUE(unknown.starts_with(
      "unknown model \"clasifier\"; models: conv3d-instnorm-max conv2d-groupnorm-pool convt3d-logsumexp classifier resnet "
      "mobilenet_v2 convnext_tiny unet2d unet3d"))
      << unknown;
  EXPECT_TRUE(unknown.ends_with("; did you mean \"classifier\"?")) << unknown;
  EXPECT_EQ(message("classifier", R"({"colour": 1})"), "classifier: unknown field \"colour\"");
  EXPECT_EQ(message("classifier", concat("{\"", std::string(1000, 'x'), "\\u001b[2J\": 1}")),
            concat("classifier: unknown field \"", std::string(200, 'x'), "...\""));
  EXPECT_EQ(message("classifier", "{\"\\u001b[2J\": 1}"), R"(classifier: unknown field "\x1b[2J")");
  EXPECT_EQ(message("classifier", R"({"num_classes": 0})"), "classifier: num_classes is 0, expected 1 or more");
  EXPECT_EQ(message("classifier", R"({"num_groups": 7})"),
            "classifier: group_norm: the number of channels must be divisible by num_groups, got input 1x64x26x26 and num_groups 7");
  EXPECT_EQ(message("resnet", R"({"blocks": [1, 1000000000]})"),
            "resnet: blocks: expected at least 1 a stage and at most 1000 in all, got 1x1000000000");
  EXPECT_EQ(message("resnet", R"({"width": 4611686018427387904})"), "resnet: width: expected 1 to 1048576, got 4611686018427387904");
  EXPECT_EQ(message("mobilenet_v2", R"({"width": 0})"), "mobilenet_v2: width: expected above 0 and at most 1000, got 0");
  EXPECT_EQ(message("mobilenet_v2", R"({"blocks": [1, 1, 1, 1, 1, 1, 1, 1]})"),
            "mobilenet_v2: blocks: expected at most 7 stages, got 1x1x1x1x1x1x1x1");
  EXPECT_EQ(message("convnext_tiny", R"({"blocks": [1, 0]})"), "convnext_tiny: blocks: expected 1 to 1000 a stage, got 1x0");
  EXPECT_EQ(message("unet2d", R"({"base": 4611686018427387904})"), "unet2d: base: expected 8 to 1048576, got 4611686018427387904");
  EXPECT_EQ(message("unet2d", R"({"image_size": [64]})"), "unet2d: image_size: expected 2 sizes, got 64");
  EXPECT_EQ(message("unet2d", R"({"image_size": [6, 8]})"),
            "unet2d: the image's height and width: expected multiples of 4, got an input of shape 1x3x6x8");
  EXPECT_EQ(
      message("convt3d-logsumexp", R"({"kernel_size": 9223372036854775807})"),
      "convt3d-logsumexp: shape 16x9223372036854775807x9223372036854775807x9223372036854775807 has more elements or bytes than 2^63 - 1");
  EXPECT_EQ(message("classifier", R"({"num_groups": "16"})"), "classifier: field \"num_groups\": expected an integer, got \"16\"");
}

TEST(CheckInput, SaysWhatTheImageNeedsAtLeast) {
  const auto message = [](const char* name, std::string_view config, const Shape& shape) -> std::string {
    try {
      make_model(name, config).check_input(shape);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message("conv2d-groupnorm-pool", "{}", {1, 8, 6, 6}), "no error");
  EXPECT_EQ(message("conv2d-groupnorm-pool", "{}", {0, 8, 6, 6}), "no error");
  EXPECT_EQ(
      message("conv2d-groupnorm-pool", "{}", {1, 8, 5, 9}),
      "input of model \"conv2d-groupnorm-pool\": the image needs at least 6x6, got 5x9: max_pool2d: output size 0x1 is too small (input "
      "1x64x3x7, kernel_size 4x4, stride 4x4, padding 0x0, dilation 1x1)");
  // One value a group is enough where the batch has more of them.
  const char* const groups_of_one = R"({"out_channels": 2, "num_groups": 2, "pool_kernel_size": 1})";
  EXPECT_EQ(message("conv2d-groupnorm-pool", groups_of_one, {2, 8, 3, 3}), "no error");
  EXPECT_NE(message("conv2d-groupnorm-pool", groups_of_one, {1, 8, 3, 3}), "no error");
  EXPECT_EQ(message("conv3d-instnorm-max", R"({"kernel_size": 5})", {2, 3, 5, 4, 9}).substr(0, 79),
            "input of model \"conv3d-instnorm-max\": the image needs at least 5x5x5, got 5x4x9");
  EXPECT_EQ(message("conv3d-instnorm-max", "{}", {2, 3, 3, 3, 3}),
            "input of model \"conv3d-instnorm-max\": instance_norm: expected more than 1 spatial element, got input 2x16x1x1x1");
}

}  // namespace
}  // namespace frit
