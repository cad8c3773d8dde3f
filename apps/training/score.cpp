#include "apps/training/score.h"

#include <algorithm>

#include "apps/common/text.h"

namespace frit::apps {
namespace {

/// Rows whose largest value stands at the target's index.
std::int64_t count_correct(const Tensor& logits, const Tensor& target) {
  const std::vector<float> values = logits.to_vector<float>();
  const std::vector<std::int64_t> classes = target.to_vector<std::int64_t>();
  const auto width = static_cast<std::ptrdiff_t>(logits.dim(1));
  std::int64_t correct = 0;
  auto row = values.begin();
  for (const std::int64_t expected : classes) {
    correct += std::max_element(row, row + width) - row == expected;
    row += width;
  }
  return correct;
}

}  // namespace

void Score::add(double loss, std::int64_t examples, std::int64_t correct) {
  loss_sum_ += loss * static_cast<double>(examples);
  examples_ += examples;
  correct_ += correct;
}

double Score::loss() const { return examples_ == 0 ? 0 : loss_sum_ / static_cast<double>(examples_); }

double Score::accuracy() const { return examples_ == 0 ? 0 : 100.0 * static_cast<double>(correct_) / static_cast<double>(examples_); }

std::string Score::text() const {
  const std::string loss_text = "loss " + fixed(loss(), 4);
  return task_ == Model::Task::classification ? loss_text + "  accuracy " + fixed(accuracy(), 2) + " %" : loss_text;
}

void Score::fields(FieldVisitor& v) {
  v.field("loss_sum", loss_sum_);
  v.field("correct", correct_);
  v.field("examples", examples_);
}

void Readings::start(const Tensor& loss, const Tensor* norm, const Tensor& output, const Tensor& target) {
  Reading& reading = readings_[started_++ % readings_.size()];
  reading.examples = target.dim(0);
  reading.loss.start(loss);
  reading.has_norm = norm != nullptr;
  if (reading.has_norm) reading.norm.start(*norm);
  if (!classifies_) return;
  reading.output.start(output);
  reading.target.start(target);
}

Readings::Taken Readings::take(Score& score) {
  const Reading& reading = readings_[taken_++ % readings_.size()];
  const Taken taken{reading.loss.get().item(), reading.has_norm ? reading.norm.get().item() : 0};
  score.add(taken.loss, reading.examples, classifies_ ? count_correct(reading.output.get(), reading.target.get()) : 0);
  return taken;
}

}  // namespace frit::apps
