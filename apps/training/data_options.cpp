#include "apps/training/data_options.h"

#include "apps/common/model_source.h"
#include "apps/common/options.h"
#include "frit/core/data/transform.h"
#include "frit/core/random.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

constexpr std::string_view axis_letters = "dhw";

/// The image axes that "w" or "hw" stand for: of an image of `rank` axes the last is w.
Dims axes_of(const std::string& letters, int rank) {
  Dims axes;
  for (const char letter : letters) {
    const int axis = static_cast<int>(axis_letters.find(letter)) - 3 + rank;
    require(axis >= 0, "--flip ", letters, ": an image of ", rank, " axes has no axis ", letter);
    axes.push_back(axis);
  }
  return axes;
}

}  // namespace

void DataOptions::fields(FieldVisitor& v) {
  v.field("image-size", read.image_size);
  v.field("patch", read.patches.size);
  v.field("patch-stride", read.patches.stride);
  v.field("patches", read.patches.random);
  v.field("crop", crop);
  v.field("pad", padding);
  v.field("flip", flip);
  v.field("normalize", normalize);
}

void DataOptions::add_to(CLI::App& command) {
  add_shape(command, "--image-size", read.image_size, "PNG and JPEG images: bring them all to this height and width").type_name("H,W");
  add_shape(command, "--patch", read.patches.size, "NIfTI volumes: learn patches of this size").type_name("D,H,W");
  add_shape(command, "--patch-stride", read.patches.stride, "From one patch to the next; the default is the patch's size")
      .type_name("D,H,W");
  add_number<std::int64_t>(command, "--patches", read.patches.random, 0, std::int64_t{1} << 40,
                           "So many patches an epoch at random places of each volume; 0: all of them, side by side");
  add_shape(command, "--crop", crop, "Learn a part of this size, at a random place, of each image, and measure on its middle")
      .type_name("[D,]H,W");
  add_shape(command, "--pad", padding, "Zeros around each image before it is cropped; one number, or one an axis").type_name("N");
  const auto take_flip = [this](const std::string& text) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (axis_letters.find(text[i]) == std::string_view::npos || text.find(text[i], i + 1) != std::string::npos) {
        refuse("--flip", "expected some of the letters d, h and w, got \"" + text + '"');
      }
    }
    flip = text;
  };
  add_option(command, "--flip", take_flip, "Turn half of the images around: w from left to right, h, d").type_name("AXES");
  add_choice(
      command, "--normalize", normalize, {"none", "mean-std", "min-max"},
      "Bring each channel of the input to mean 0 and deviation 1, or from 0 to 1, by what the training data are; kept in checkpoints");
}

std::shared_ptr<const Dataset> DataOptions::training(const Model& model, const std::string& path) const {
  ReadOptions all = read;
  all.fields = model.data_fields();
  return transformed(model, read_dataset(path, Split::train, all), path, true);
}

std::shared_ptr<const Dataset> DataOptions::validation(const Model& model, const std::string& path,
                                                       const std::string& training_path) const {
  ReadOptions all = read;
  all.fields = model.data_fields();
  all.classes = class_names(training_path);
  all.patches.random = 0;
  return transformed(model, read_dataset(path, Split::test, all), path, false);
}

std::shared_ptr<const Dataset> DataOptions::transformed(const Model& model, std::shared_ptr<const Dataset> data, const std::string& path,
                                                        bool random) const {
  if (crop.empty() && padding.empty() && flip.empty()) return data;
  return with_content_of(printable(path), [&] {
    const int rank = data->fields()[0].shape.rank() - 1;
    TransformOptions options{.padding = padding, .crop = crop, .flip = axes_of(flip, rank), .random = random};
    for (const Model::SideInput& side : model.side_inputs) {
      if (side.is_fixed()) options.still.push_back(side.name);
    }
    return std::make_shared<TransformDataset>(data, options);
  });
}

Model DataOptions::normalized(const Model& model, const Dataset& examples, const std::string& path) const {
  if (normalize == "none") return model;
  return with_content_of(printable(path), [&] {
    const ChannelStatistics s = channel_statistics(examples);
    InputNormalization n{normalize == "mean-std" ? s.mean : s.least, s.deviation};
    for (std::size_t c = 0; c < n.divide.size(); ++c) {
      if (normalize == "min-max") n.divide[c] = s.largest[c] - s.least[c];
      require(n.divide[c] > 0, "--normalize ", normalize, ": channel ", c, " of the input is ", s.mean[c], " everywhere");
    }
    return with_normalization(model, n);
  });
}

std::shared_ptr<const Dataset> one_batch(const std::shared_ptr<const Dataset>& data, const TrainSettings& settings) {
  const std::int64_t size = std::min(settings.batch_size, data->size());
  std::vector<std::int64_t> chosen = permutation(data->size(), settings.seed, 0);
  chosen.resize(static_cast<std::size_t>(size));
  std::vector<std::int64_t> indices;
  for (std::int64_t done = 0; done < data->size(); done += size) indices.insert(indices.end(), chosen.begin(), chosen.end());
  return subset(data, std::move(indices));
}

}  // namespace frit::apps
