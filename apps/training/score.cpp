#include "apps/training/score.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "apps/common/json.h"
#include "apps/common/text.h"

namespace frit::apps {
namespace {

constexpr std::int64_t five = 5;

double per_cent(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::int64_t count_of(std::int64_t value, const Tensor& tensor) {
  const std::vector<double> values = tensor.to_vector<double>();
  return std::count(values.begin(), values.end(), static_cast<double>(value));
}

}  // namespace

Answers count_answers(Model::Task task, const Tensor& logits, const Tensor& target, std::optional<std::int64_t> ignore_index) {
  if (task == Model::Task::regression) return {};
  Answers answers{.given = target.elements(), .correct = count_among_largest(logits, target, 1, ignore_index)};
  if (ignore_index) answers.given -= count_of(*ignore_index, target);
  if (task == Model::Task::segmentation || logits.dim(1) <= five) return answers;
  answers.with_five = answers.given;
  answers.among_five = count_among_largest(logits, target, five);
  return answers;
}

void Score::add(double loss, std::int64_t examples, const Answers& answers) {
  loss_sum_ += loss * static_cast<double>(examples);
  examples_ += examples;
  answers_.given += answers.given;
  answers_.correct += answers.correct;
  answers_.with_five += answers.with_five;
  answers_.among_five += answers.among_five;
}

void Score::gather(const ProcessGroup& group, bool shared_loss) {
  const auto number = [](std::int64_t count) { return static_cast<double>(count); };
  const std::vector<double> sums = group.sum({number(answers_.given), number(answers_.correct), number(answers_.with_five),
                                              number(answers_.among_five), loss_sum_, number(examples_)});
  const auto count = [&](std::size_t i) { return static_cast<std::int64_t>(sums[i]); };
  answers_ = {.given = count(0), .correct = count(1), .with_five = count(2), .among_five = count(3)};
  if (shared_loss) return;
  loss_sum_ = sums[4];
  examples_ = count(5);
}

void Score::leave_answers_to_first(const ProcessGroup& group) {
  if (!group.is_first()) answers_ = {};
}

void Score::measure(const ConfusionMatrix& confusion) {
  const double dice = confusion.mean_dice(), iou = confusion.mean_iou();
  if (task_ != Model::Task::segmentation || std::isnan(dice)) return;
  dice_ = dice;
  iou_ = iou;
}

double Score::loss() const { return examples_ == 0 ? 0 : loss_sum_ / static_cast<double>(examples_); }

double Score::accuracy() const { return per_cent(answers_.correct, given()); }

std::optional<double> Score::top5() const {
  return answers_.with_five == 0 ? std::nullopt : std::optional(per_cent(answers_.among_five, answers_.with_five));
}

std::string Score::text() const {
  const std::string answers = answers_text();
  return "loss " + fixed(loss(), 4) + (answers.empty() ? "" : "  " + answers);
}

std::string Score::answers_text() const {
  if (task_ == Model::Task::regression) return "";
  std::string text = "accuracy " + fixed(accuracy(), 2) + " %";
  if (const std::optional<double> five_largest = top5()) text += "  top-5 " + fixed(*five_largest, 2) + " %";
  if (dice_) text += "  Dice " + fixed(*dice_, 4) + "  IoU " + fixed(*iou_, 4);
  return text;
}

void Score::fields(FieldVisitor& v) {
  v.field("loss_sum", loss_sum_);
  v.field("correct", answers_.correct);
  v.field("examples", examples_);
  v.field("given", answers_.given);
  v.field("among_five", answers_.among_five);
  v.field("with_five", answers_.with_five);
  v.field("dice", dice_);
  v.field("iou", iou_);
}

bool Score::plausible() const {
  const auto share = [](const std::optional<double>& part) { return !part || (*part >= 0 && *part <= 1); };
  return std::isfinite(loss_sum_) && answers_.correct >= 0 && answers_.correct <= given() && answers_.among_five >= 0 &&
         answers_.among_five <= answers_.with_five && share(dice_) && share(iou_) && dice_.has_value() == iou_.has_value();
}

void Readings::start(const Tensor& loss, const Tensor* norm, const Tensor& output, const Tensor& target) {
  Reading& reading = readings_[started_++ % readings_.size()];
  reading.examples = target.dim(0) * processes_.value_or(1);
  reading.loss.start(loss);
  reading.has_norm = norm != nullptr;
  if (reading.has_norm) reading.norm.start(*norm);
  if (task_ == Model::Task::regression) return;
  reading.output.start(output);
  reading.target.start(target);
}

Readings::Taken Readings::take(Score& score, ConfusionMatrix* confusion) {
  const Reading& reading = readings_[taken_++ % readings_.size()];
  const Taken taken{reading.loss.get().item(), reading.has_norm ? reading.norm.get().item() : 0};
  const bool classes = task_ != Model::Task::regression;
  const Answers answers = classes ? count_answers(task_, reading.output.get(), reading.target.get(), ignore_index_) : Answers();
  score.add(taken.loss, classes && !processes_ ? answers.given : reading.examples, answers);
  if (classes && confusion != nullptr) confusion->add(reading.output.get(), reading.target.get());
  return taken;
}

void print_score(const Model& model, const std::string& what, const Score& score, const RunSummary& run, bool json) {
  if (json) {
    Json object = {{"model", model.name}, {"examples", what}, {"loss", score.loss()}};
    if (model.has_classes()) object["accuracy"] = score.accuracy() / 100;
    if (score.top5()) object["top5"] = *score.top5() / 100;
    if (score.dice()) object["dice"] = *score.dice(), object["iou"] = *score.iou();
    object["peak_memory_bytes"] = run.memory;
    if (!run.run_directory.empty()) object["run_directory"] = run.run_directory;
    return print(std::cout, object);
  }
  std::cout << what << " loss " << fixed(score.loss(), 4) << '\n';
  if (model.has_classes()) std::cout << what << " accuracy " << fixed(score.accuracy(), 2) << " %\n";
  if (score.top5()) std::cout << what << " top-5 " << fixed(*score.top5(), 2) << " %\n";
  if (score.dice()) std::cout << what << " Dice " << fixed(*score.dice(), 4) << ", IoU " << fixed(*score.iou(), 4) << '\n';
}

}  // namespace frit::apps
