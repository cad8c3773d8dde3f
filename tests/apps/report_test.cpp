// What a training run leaves to be looked at: CSV, TensorBoard's event files, the HTML report.

#include <bit>
#include <cmath>

#include "apps/program.h"
#include "apps/report/chart.h"
#include "apps/report/event_file.h"
#include "apps/report/run_data.h"
#include "apps/report/svg.h"

namespace frit::apps {
namespace {

using Report = ProgramTest;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr const char* digits = "0123456789abcdef";
    text += digits[static_cast<unsigned char>(c) >> 4];
    text += digits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

TEST_F(Report, ChecksumsAreCastagnolis) {
  // RFC 3720, appendix B.4.
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

TEST_F(Report, EventsAreTensorFlowsBytes) {
  // As TensorFlow's own writer spells an event of wall time 1, step 300 with "a" = 0.5, and the record of an empty string.
  EXPECT_EQ(hex(scalar_event(1.0, 300, {{"a", 0.5}})), "09000000000000f03f10ac022a0a0a080a0161150000003f");
  EXPECT_EQ(hex(tensorflow_record("")), "000000000000000029039807d8ea82a2");
  EXPECT_EQ(hex(scalar_event(1.0, 1, {{"nan", std::nan("")}})), "09000000000000f03f10012a00") << "left out";
  EXPECT_EQ(hex(start_event(1.0, 301)), "09000000000000f03f10ad023a020801") << "SessionLog.START";
}

TEST_F(Report, AnEventFileIsARowOfRecords) {
  std::string file;
  {
    EventFile events(folder.string());
    const EventFile another(folder.string());
    EXPECT_NE(events.path(), another.path());
    for (int step = 1; step <= 3; ++step) events.add(step, {{"train/loss", 1.0 / step}});
    file = content(events.path().substr(folder.string().size() + 1));
    EXPECT_TRUE(has(events.path(), "/events.out.tfevents."));
  }
  std::vector<std::string> records;
  for (std::size_t at = 0; at < file.size();) {
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < 8; ++i) length |= std::uint64_t{static_cast<unsigned char>(file[at + i])} << (8 * i);
    const std::string data = file.substr(at + 12, length);
    EXPECT_EQ(file.substr(at, length + 16), tensorflow_record(data));
    records.push_back(data);
    at += length + 16;
  }
  ASSERT_EQ(records.size(), 4u);
  EXPECT_TRUE(has(records[0], "brain.Event:2"));
  EXPECT_TRUE(has(records[3], "train/loss"));
  EXPECT_THROW(EventFile(path("nowhere")), Error);
}

TEST_F(Report, CsvReadsBackTheSame) {
  const std::vector<StepMetrics> steps = {{1, 1, 0.25, 2.5, 1e-3, not_measured, 1000}, {2, 1, 0.5, 0.1, 1e-3, 3, not_measured}};
  const std::string text = steps_csv(steps);
  EXPECT_EQ(text,
            "step,epoch,seconds,loss,learning_rate,gradient_norm,examples_per_second\n"
            "1,1,0.25,2.5,0.001,,1000\n"
            "2,1,0.5,0.1,0.001,3,\n");
  std::string damage;
  EXPECT_EQ(steps_csv(parse_steps_csv(text, "steps.csv", damage)), text);
  const std::string epochs = epochs_csv({{.epoch = 1, .step = 9, .seconds = 1.5, .training_loss = 0.5, .validation_accuracy = 0.875}});
  EXPECT_EQ(epochs_csv(parse_epochs_csv(epochs, "epochs.csv", damage)), epochs);
  EXPECT_EQ(damage, "");
  EXPECT_TRUE(has(epochs, "\n1,9,1.5,0.5,,,0.875,,,\n")) << epochs;
  const std::string of_old =
      "epoch,step,seconds,training_loss,training_accuracy,validation_loss,validation_accuracy\n1,9,1.5,0.5,,,0.875\n";
  EXPECT_EQ(epochs_csv(parse_epochs_csv(of_old, "epochs.csv", damage)), epochs) << "of frits that did not measure Dice";
  EXPECT_EQ(damage, "");
}

TEST_F(Report, DamagedLinesOfCsvAreLeftOutAndNamed) {
  const std::string header = steps_csv({}), good = "3,1,0.5,0.1,0.001,3,\n";
  for (const std::string broken : {"step\n", "3,1\n", "x,1,0,,,,\n", "3,1,0,0,0,0,0,0\n", "3,1,inf,0,0,0,0\n", "3,1,,0,0,0,0\n", "\n"}) {
    std::string damage;
    EXPECT_EQ(steps_csv(parse_steps_csv(header + good + broken + good, "steps.csv", damage)), header + good + good) << broken;
    EXPECT_TRUE(has(damage, "steps.csv: line 3: not a line of this file: ")) << broken << damage;
    EXPECT_EQ(steps_csv(parse_steps_csv(broken + good, "steps.csv", damage = "")), header + good) << broken;
    EXPECT_TRUE(has(damage, "steps.csv: line 1: ")) << broken << damage;
  }
}

RunData some_run(int steps) {
  RunData run{.title = "block <B> & more", .facts = {{"data", "a \"folder\""}}};
  for (int s = 1; s <= steps; ++s) {
    run.steps.push_back({s, 1, 0.01 * s, 2.0 / s, 1e-3, 1.0 / s, 500});
    if (s % 10 == 0)
      run.epochs.push_back({.epoch = s / 10, .step = s, .training_loss = 1.0, .validation_loss = 2.0, .validation_accuracy = 0.5});
  }
  run.operators = {{"conv2d", "f32", "", 2, 1000, 20}, {"relu", "f32", "", 1, 100, 10}};
  run.memory_picture = Svg(10, 10).finish();
  return run;
}

TEST_F(Report, ThePageNeedsNothingElse) {
  const std::string html = report_html(some_run(50));
  EXPECT_EQ(html.substr(0, 15), "<!DOCTYPE html>");
  for (const char* const part : {"<h1>block &lt;B&gt; &amp; more</h1>", "a &quot;folder&quot;", ">Loss<", ">Accuracy, %<",
                                 ">Learning rate<", ">Norm of the gradients<", ">Examples a second<", ">conv2d (2 calls)<",
                                 ">20.0 us, 66.7 %<", "Memory over a step", "<h2>Epochs</h2>", "50.00 %"}) {
    EXPECT_TRUE(has(html, part)) << part;
  }
  for (const char* const outside : {"src=", "href=", "@import", "url(", "<script"}) EXPECT_FALSE(has(html, outside)) << outside;
  const auto count = [&](const std::string& tag) {
    int found = 0;
    for (std::size_t at = html.find(tag); at != std::string::npos; at = html.find(tag, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<svg"), 7);
  EXPECT_EQ(count("<svg"), count("</svg>"));
  EXPECT_FALSE(has(html, "nan")) << "a place that is no number";
}

TEST_F(Report, WhatWasNotMeasuredIsLeftOut) {
  RunData run{.title = "short"};
  EXPECT_TRUE(has(report_html(run), "<h1>short</h1>")) << "a run of no steps";
  run.steps = {{1, 1, 0.1, 0.5, not_measured, not_measured, not_measured},
               {2, 1, 0.1, std::nan(""), not_measured, not_measured, not_measured}};
  const std::string html = report_html(run);
  EXPECT_FALSE(has(html, "Learning rate"));
  EXPECT_FALSE(has(html, "nan"));
}

TEST_F(Report, ALongRunStaysSmallAndKeepsItsPeaks) {
  RunData run{.title = "long"};
  for (int s = 1; s <= 100'000; ++s) run.steps.push_back({s, 1, 0, s == 54'321 ? 1e6 : 1.0, not_measured, not_measured, not_measured});
  const std::string html = report_html(run);
  EXPECT_LT(html.size(), 100'000u);
  EXPECT_TRUE(has(html, ">1.0M<") || has(html, ">1M<")) << "the axis reaches the peak";
}

TEST_F(Report, AnyNumbersHaveAnAxisOfAFewMarks) {
  constexpr double largest = 1e308, least = 5e-324;
  constexpr std::int64_t last = std::numeric_limits<std::int64_t>::max();
  for (const auto& [first, second] : {std::pair(-largest, largest), {0.0, least}, {least, 2 * least}, {1e17, 1e17 + 16}, {1e300, 1e300}}) {
    RunData run{.title = "any"};
    run.steps = {{last - 1, 1, 0, first, first, first, first}, {last, 1, 0, second, second, second, second}};
    const std::string html = report_html(run);
    EXPECT_LT(html.size(), 100'000u);
    EXPECT_FALSE(has(html, "nan") || has(html, "inf")) << first << ' ' << second;
  }
}

TEST_F(Report, LongNamesOfBarsHaveRoom) {
  const std::string name(40, 'n');
  EXPECT_TRUE(has(bar_chart("times", {{name, "1 us", 1}}), "<text x=\"280.0\"")) << "7 for a letter, to the left of its end";
  EXPECT_TRUE(has(bar_chart("times", {{"short", "1 us", 1}}), "<text x=\"112.0\""));
}

TEST_F(Report, AxesHaveRoundMarks) {
  EXPECT_EQ(ticks(1000, 6).step, 200);
  EXPECT_EQ(ticks(0.07, 8).step, 0.01);
  EXPECT_EQ(ticks(40 << 20, 6, /*bytes=*/true).step, 8 << 20);
  EXPECT_EQ(ticks(0, 5).count, 1);
}

TEST_F(Report, SmoothingFollowsAndSkipsGaps) {
  const auto curve = smoothed({{1, 4}, {2, std::nan("")}, {3, 8}, {4, 3}, {5, 1}}, 3);
  EXPECT_EQ(curve[0].second, 4) << "an end has nothing on one side";
  EXPECT_EQ(curve[1].second, 6);
  EXPECT_EQ(curve[2].second, 5.5);
  EXPECT_EQ(curve[3].second, 4);
}

}  // namespace
}  // namespace frit::apps
