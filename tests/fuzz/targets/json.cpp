#include "apps/training/train_settings.h"
#include "frit/models/model.h"
#include "frit/ops/operator/operator.h"
#include "fuzz/fuzzing.h"

namespace frit {
namespace {

/// Its configuration makes the same model again.
void read_model(const std::string& name, const std::string& json) {
  const Model model = make_model(name, json);
  FRIT_CHECK(make_model(name, model.config).config == model.config);
}

template <class Fields>
void read_fields(const std::string& json) {
  const std::string written = fields_to_json(fields_from_json<Fields>(json, {}, "input"));
  FRIT_CHECK(fields_to_json(fields_from_json<Fields>(written, {}, "input")) == written);
}

}  // namespace

/// What stands as JSON in files and on the command line. The first line says what it is of.
FRIT_FUZZ_TARGET(json) {
  const std::size_t end = bytes.find('\n');
  if (end == std::string::npos) return;
  const std::string name = bytes.substr(0, end), json = bytes.substr(end + 1);
  if (name == "normalization") {
    (void)with_normalization(make_model("conv3d-instnorm-max"), json);
  } else if (name == "settings") {
    read_fields<apps::TrainSettings>(json);
  } else if (name == "position") {
    read_fields<TrainPosition>(json);
  } else if (ops::registry().contains(name)) {
    const ops::Operator& op = ops::registry().find(name);
    const ops::Attributes attributes = op.attributes_from_json(json);
    FRIT_CHECK(op.attributes_from_json(attributes.json()) == attributes);
  } else {
    read_model(name, json);
  }
}

}  // namespace frit
