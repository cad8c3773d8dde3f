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

}  // namespace
}  // namespace frit
