#include "apps/serving/array_source.h"

#include <utility>

#include "frit/core/data/files.h"
#include "frit/core/text.h"

namespace frit::apps {

ArraySource::ArraySource(const InferenceFiles& files, DType dtype, ShapeCheck check)
    : files_(input_files(files)), dtype_(dtype), check_(std::move(check)) {
  if (streams(files)) stream_.emplace();
}

std::optional<Job> ArraySource::next() {
  std::optional<Job> job = read();
  if (!job) return job;
  if (job->input.dtype() != dtype_ && !std::exchange(converted_, true)) {
    print_warning(concat("the input was converted from ", job->input.dtype(), " to ", dtype_));
  }
  nan_.note(job->input);
  return job;
}

void ArraySource::stop() {
  if (stream_) stream_->stop();
}

ShapeCheck ArraySource::check_of(const std::string& name) const {
  return [this, name](const Shape& shape) { with_content_of(printable(name), [&] { check_(shape); }); };
}

std::optional<Job> ArraySource::read() {
  if (stream_) {
    const std::string name = concat("standard input: array ", ++taken_);
    std::optional<Tensor> input = stream_->next(check_of(name));
    if (!input) return std::nullopt;
    return Job{.name = name, .input = std::move(*input)};
  }
  if (taken_ == files_.size()) return std::nullopt;
  const std::string& file = files_[taken_++];
  return Job{.name = file, .input = read_examples(file, check_of(file))};
}

}  // namespace frit::apps
