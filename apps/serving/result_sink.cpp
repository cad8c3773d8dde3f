#include "apps/serving/result_sink.h"

#include <algorithm>
#include <utility>

#include "apps/serving/array_stream.h"
#include "frit/core/data/files.h"
#include "frit/core/io/nifti.h"
#include "frit/core/io/npy.h"
#include "frit/core/io/png.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

Tensor as_batch(const Tensor& mask) {
  Shape shape = mask.shape();
  shape.insert(0, 1);
  return mask.reshape(shape);
}

/// What a reference says of each output: a mask's numbers are classes, not the brightness of an image.
TensorMap read_reference(const std::string& path, bool of_classes) {
  if (of_classes && is_image_name(path)) return {{output_name, as_batch(read_png_classes(path))}};
  if (of_classes && is_volume_name(path)) return {{output_name, as_batch(read_nifti(path).voxels)}};
  if (std::optional<TensorMap> arrays = read_named_arrays(path)) {
    if (arrays->empty()) fail(ErrorKind::format, printable(path), ": has no arrays");
    return std::move(*arrays);
  }
  return {{output_name, read_examples(path)}};
}

}  // namespace

ResultSink::ResultSink(const InferenceFiles& files, const Model& model, const Options& options)
    : files_(files), model_(model), options_(options), score_(model.task) {}

void ResultSink::take(const Job& job) {
  const Tensor& output = job.outputs.at(output_name);
  nan_.note(output);
  if (!files_.output.empty()) write(job);
  if (!files_.reference.empty()) compare_with_reference(job);
  shape_ = output.shape();
  dtype_ = output.dtype();
}

void ResultSink::write(const Job& job) {
  const std::string path = partner(files_, files_.output, job.name);
  if (path.ends_with(".safetensors")) return write_safetensors(path, {job.outputs.begin(), job.outputs.end()});
  if (job.outputs.size() > 1 && !std::exchange(warned_, true))
    print_warning(
        concat("of ", job.outputs.size(), " outputs only \"output\" is written; a .safetensors file for --output has all of them"));
  const Tensor& output = job.outputs.at(output_name);
  files_.output == standard_stream ? write_array(output) : write_npy(path, output);
}

std::string ResultSink::text() const {
  const bool file = !files_.output.empty() && files_.output != standard_stream;
  return concat(dtype_, ' ', shape_, file ? " in " + printable(files_.output) : "");
}

void ResultSink::compare_with_reference(const Job& job) {
  const std::string path = reference_of(files_, files_.reference, job.name);
  const bool mask = is_image_name(path) || is_volume_name(path);
  bool differs = false;
  for (const auto& [name, reference] : read_reference(path, model_.has_classes())) {
    const auto place = job.outputs.find(name);
    if (place == job.outputs.end()) fail(ErrorKind::format, printable(path), ": there is no output \"", printable(name), '"');
    if (name == output_name && model_.has_classes() && (mask || !is_floating(reference.dtype()))) {
      with_content_of(printable(path), [&, &classes = reference] { count(place->second, classes); });
      continue;
    }
    const Comparison found = compare(place->second, reference, options_.tolerance);
    comparison_.elements += found.elements;
    comparison_.differing += found.differing;
    comparison_.largest_error = std::max(comparison_.largest_error, found.largest_error);
    if (found.difference.empty()) continue;
    differs = true;
    const std::string which = name == output_name ? "" : concat('"', name, "\": ");
    if (comparison_.difference.empty()) comparison_.difference = concat(printable(path), ": ", which, found.difference);
  }
  differing_files_ += differs ? 1 : 0;
}

void ResultSink::count(const Tensor& logits, const Tensor& classes) {
  if (!confusion_) confusion_.emplace(logits.dim(1), options_.ignore_index);
  confusion_->add(logits, classes);
  score_.add(0, logits.dim(0), count_answers(model_.task, logits, classes, options_.ignore_index));
  score_.measure(*confusion_);
}

}  // namespace frit::apps
