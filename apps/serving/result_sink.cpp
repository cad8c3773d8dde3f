#include "apps/serving/result_sink.h"

#include <algorithm>

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

/// What a reference says: a mask's numbers are classes, not the brightness of an image.
Tensor read_reference(const std::string& path, bool of_classes) {
  if (of_classes && is_image_name(path)) return as_batch(read_png_classes(path));
  if (of_classes && is_volume_name(path)) return as_batch(read_nifti(path).voxels);
  return read_examples(path);
}

}  // namespace

ResultSink::ResultSink(const InferenceFiles& files, const Model& model, const Options& options)
    : files_(files), model_(model), options_(options), score_(model.task) {}

void ResultSink::take(const Job& job) {
  nan_.note(job.output);
  if (files_.output == standard_stream)
    write_array(job.output);
  else if (!files_.output.empty())
    write_npy(partner(files_, files_.output, job.name), job.output);
  if (!files_.reference.empty()) compare_with_reference(job);
  shape_ = job.output.shape();
  dtype_ = job.output.dtype();
}

std::string ResultSink::text() const {
  const bool file = !files_.output.empty() && files_.output != standard_stream;
  return concat(dtype_, ' ', shape_, file ? " in " + printable(files_.output) : "");
}

void ResultSink::compare_with_reference(const Job& job) {
  const std::string path = reference_of(files_, files_.reference, job.name);
  const Tensor reference = read_reference(path, model_.has_classes());
  const bool mask = is_image_name(path) || is_volume_name(path);
  if (model_.has_classes() && (mask || !is_floating(reference.dtype()))) {
    return with_content_of(printable(path), [&] { count(job.output, reference); });
  }
  const Comparison found = compare(job.output, reference, options_.tolerance);
  comparison_.elements += found.elements;
  comparison_.differing += found.differing;
  comparison_.largest_error = std::max(comparison_.largest_error, found.largest_error);
  if (found.difference.empty()) return;
  if (differing_files_++ == 0) comparison_.difference = concat(printable(path), ": ", found.difference);
}

void ResultSink::count(const Tensor& logits, const Tensor& classes) {
  if (!confusion_) confusion_.emplace(logits.dim(1), options_.ignore_index);
  confusion_->add(logits, classes);
  score_.add(0, logits.dim(0), count_answers(model_.task, logits, classes, options_.ignore_index));
  score_.measure(*confusion_);
}

}  // namespace frit::apps
