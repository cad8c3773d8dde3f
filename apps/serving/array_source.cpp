#include "apps/serving/array_source.h"

#include <utility>

#include "frit/core/data/files.h"
#include "frit/core/text.h"

namespace frit::apps {

ArraySource::ArraySource(const InferenceFiles& files, const Model& model, DType dtype, InputCheck check)
    : files_(input_files(files)), dtype_(dtype), model_(model), check_(std::move(check)) {
  if (streams(files)) stream_.emplace();
}

std::optional<Job> ArraySource::next() {
  std::optional<Job> job = read();
  if (!job) return job;
  const Tensor& input = job->inputs.at(main_input);
  if (input.dtype() != dtype_ && !std::exchange(converted_, true)) {
    print_warning(concat("the input was converted from ", input.dtype(), " to ", dtype_));
  }
  nan_.note(input);
  return job;
}

void ArraySource::stop() {
  if (stream_) stream_->stop();
}

ShapeCheck ArraySource::check_of(const std::string& name) const {
  return [this, name](const Shape& shape) { with_content_of(printable(name), [&] { check_({{main_input, {dtype_, shape}}}); }); };
}

std::optional<Job> ArraySource::read() {
  if (stream_) {
    const std::string name = concat("standard input: array ", ++taken_);
    std::optional<Tensor> input = stream_->next(check_of(name));
    if (!input) return std::nullopt;
    return Job{.name = name, .inputs = {{main_input, std::move(*input)}}};
  }
  if (taken_ == files_.size()) return std::nullopt;
  return read(files_[taken_++]);
}

/// Of a file of named arrays those that the model reads: it may hold the targets as well.
Job ArraySource::read(const std::string& file) const {
  const std::optional<TensorMap> arrays = read_named_arrays(file);
  if (!arrays) return {.name = file, .inputs = {{main_input, read_examples(file, check_of(file))}}};
  const Bindings given(arrays->begin(), arrays->end());
  with_content_of(printable(file), [&] { check_(tensor_types(given)); });
  Job job{.name = file, .inputs = {{main_input, given.at(main_input)}}};
  for (const Model::SideInput& side : model_.side_inputs) job.inputs[side.name] = given.at(side.name);
  return job;
}

}  // namespace frit::apps
