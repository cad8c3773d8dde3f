#include "apps/report/memory_picture.h"

#include <algorithm>
#include <cmath>

#include "apps/common/text.h"
#include "apps/report/svg.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

constexpr double left = 76, right = 16, top = 84, height = 330, bottom = 140;
constexpr const char* arena_outline = "fill:#fafafa;stroke:#bbb";

enum Kind { of_input, of_result, of_gradient, of_output, of_scratch };
struct Look {
  const char *name, *color;
};
constexpr Look looks[] = {
    {"inputs", "#9aa5b1"}, {"results", "#5b8fc7"}, {"gradients", "#e39a4a"}, {"outputs", "#55a868"}, {"scratch", "#c0566b"}};

std::string size_text(double bytes) { return bytes_text(static_cast<std::size_t>(bytes)); }

/// One buffer of the plan, and what lies in it one after another.
struct Buffer {
  Kind kind = of_scratch;
  std::string label, tip;
};

class Drawing {
 public:
  Drawing(const Graph& graph, Device device)
      : graph_(graph), buffers_(graph::plan_buffers(graph, device)), plan_(graph::plan_memory(buffers_.lifetimes)) {
    for (int n = 0; n < static_cast<int>(graph.nodes().size()); ++n) {
      const graph::Node& node = graph.nodes()[static_cast<std::size_t>(n)];
      column_.push_back(static_cast<int>(steps_.size()));
      const auto calls = std::count(buffers_.step.begin(), buffers_.step.end(), n);
      if (node.kind != graph::NodeKind::operation || buffers_.view[static_cast<std::size_t>(n)] || calls == 0) continue;
      steps_.push_back(calls == 1 ? node.op->name : concat(node.op->name, " x ", calls));
    }
    column_.push_back(static_cast<int>(steps_.size()));
    for (const graph::Output& output : graph.outputs()) {
      if (output.name == "loss") loss_ = graph.producer_index(output.value);
    }
    describe();
  }

  std::string draw(const std::string& title) {
    step_width_ = std::clamp(900.0 / std::max<double>(1, static_cast<double>(steps_.size())), 12.0, 90.0);
    const double plot = step_width_ * static_cast<double>(steps_.size());
    const double width = std::max(left + plot + right, 560.0);
    Svg svg(width, top + height + bottom);
    svg.rectangle(0, 0, width, top + height + bottom, "fill:white");
    svg.text(left, 20, title, {.size = 14, .color = "#111"});
    svg.text(left, 38,
             concat("arena ", size_text(static_cast<double>(plan_.arena_bytes)), ", least possible ",
                    size_text(static_cast<double>(plan_.lower_bound_bytes)), ", without sharing ",
                    size_text(static_cast<double>(plan_.unplanned_bytes))),
             {.color = "#666"});
    svg.rectangle(left, top, plot, height, arena_outline);
    draw_axis(svg, plot);
    for (std::size_t b = 0; b < buffers_.lifetimes.size(); ++b) draw_buffer(svg, b);
    draw_alive(svg);
    draw_steps(svg);
    draw_legend(svg);
    return svg.finish();
  }

 private:
  double y_of(double bytes) const { return top + height * (1 - bytes / std::max<double>(1, static_cast<double>(plan_.arena_bytes))); }
  double x_of(int node) const {
    return left + step_width_ * column_[static_cast<std::size_t>(std::clamp(node, 0, static_cast<int>(graph_.nodes().size())))];
  }

  void describe() {
    what_.resize(buffers_.lifetimes.size());
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) {
      const graph::Node& node = graph_.nodes()[n];
      for (const int id : node.outputs) {
        const int buffer = buffers_.buffer[static_cast<std::size_t>(id)];
        if (buffer < 0) continue;
        Buffer& what = what_[static_cast<std::size_t>(buffer)];
        const std::string name = node.kind == graph::NodeKind::operation ? node.op->name : node.name;
        if (what.tip.empty()) {
          what.label = name;
          what.kind = node.kind == graph::NodeKind::input ? of_input : loss_ >= 0 && static_cast<int>(n) > loss_ ? of_gradient : of_result;
        }
        what.tip += concat(what.tip.empty() ? "" : "\nthen ", '%', id, " = ", name, ": ", graph_.type(id));
      }
      if (const int scratch = buffers_.scratch[n]; scratch >= 0) {
        what_[static_cast<std::size_t>(scratch)] = {of_scratch, "scratch", "scratch memory of " + node.op->name};
      }
    }
    for (const graph::Output& output : graph_.outputs()) {
      const int buffer = buffers_.buffer[static_cast<std::size_t>(output.value)];
      if (buffer < 0) continue;
      Buffer& what = what_[static_cast<std::size_t>(buffer)];
      what.kind = of_output;
      what.tip += concat("\noutput \"", output.name, '"');
    }
  }

  void draw_axis(Svg& svg, double plot) const {
    const Ticks marks = ticks(static_cast<double>(plan_.arena_bytes), 7, /*bytes=*/true);
    for (int i = 0; i < marks.count; ++i) {
      const double y = y_of(marks.step * i);
      svg.line(left, y, left + plot, y, "stroke:#e4e4e4");
      svg.text(left - 6, y + 4, size_text(marks.step * i), {.anchor = Svg::Anchor::end, .color = "#666"});
    }
  }

  void draw_buffer(Svg& svg, std::size_t b) const {
    const graph::Lifetime& lifetime = buffers_.lifetimes[b];
    const auto offset = static_cast<double>(plan_.offsets[b]), bytes = static_cast<double>(lifetime.bytes);
    const double x = lifetime.first < 0 ? left : x_of(lifetime.first), x2 = x_of(lifetime.last + 1);
    const double y = y_of(offset + bytes), h = y_of(offset) - y;
    if (bytes == 0 || x2 <= x) return;
    const Buffer& what = what_[b];
    svg.rectangle(x + 0.5, y, x2 - x - 1, std::max(h - 0.5, 0.4), concat("fill:", looks[what.kind].color, ";stroke:white;stroke-width:0.5"),
                  concat(what.tip, '\n', size_text(bytes), " at ", size_text(offset)));
    const std::string label = concat(what.label, "  ", size_text(bytes));
    constexpr double letter = 5.6;
    if (h >= 13 && x2 - x >= letter * static_cast<double>(label.size()))
      svg.text(x + 5, y + h / 2 + 4, label, {.size = 10.5, .color = "white"});
    else if (h >= 13 && x2 - x >= letter * static_cast<double>(what.label.size()))
      svg.text(x + 5, y + h / 2 + 4, what.label, {.size = 10.5, .color = "white"});
  }

  /// The sum of what is alive, as steps.
  void draw_alive(Svg& svg) const {
    std::string points;
    double most = -1;
    int most_at = 0;
    const std::vector<std::int64_t> bytes = graph::alive_bytes(graph_, buffers_);
    for (int step = 0; step < static_cast<int>(steps_.size()); ++step) {
      const auto alive = static_cast<double>(bytes[static_cast<std::size_t>(step)]);
      if (alive > most) {
        most = alive;
        most_at = step;
      }
      const double x = left + step_width_ * step, y = y_of(alive);
      points += concat(points.empty() ? 'M' : 'L', fixed(x, 1), ',', fixed(y, 1), 'L', fixed(x + step_width_, 1), ',', fixed(y, 1));
    }
    if (most < 0) return;
    svg.path(points, "fill:none;stroke:#222;stroke-width:1.6");
    svg.line(left + step_width_ * most_at, y_of(most), left + step_width_ * (most_at + 1), y_of(most), "stroke:#d62728;stroke-width:3");
  }

  void draw_steps(Svg& svg) const {
    const double size = std::clamp(step_width_ - 2, 8.0, 11.0);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const double x = left + step_width_ * (static_cast<double>(i) + 0.5);
      std::string name = steps_[i];
      if (name.size() > 26) name = name.substr(0, 24) + "..";
      svg.text(x + 3, top + height + 12, name, {.size = size, .anchor = Svg::Anchor::end, .angle = -50});
    }
    const auto prepared = std::find(buffers_.prepared.rbegin(), buffers_.prepared.rend(), true);
    const double run = x_of(static_cast<int>(buffers_.prepared.rend() - prepared));
    if (run > left) divide(svg, run, "once", "in every run");
    if (loss_ >= 0) divide(svg, x_of(loss_ + 1), "forward", "backward and update");
  }

  static void divide(Svg& svg, double x, const char* before, const char* after) {
    svg.line(x, top - 6, x, top + height, "stroke:#888;stroke-dasharray:4 3");
    svg.text(x - 4, top - 4, before, {.size = 10, .anchor = Svg::Anchor::end, .color = "#666"});
    svg.text(x + 4, top - 4, after, {.size = 10, .color = "#666"});
  }

  void draw_legend(Svg& svg) const {
    double x = left;
    const double y = 58;
    for (const Kind kind : {of_input, of_result, of_gradient, of_output, of_scratch}) {
      const bool there =
          std::any_of(what_.begin(), what_.end(), [&](const Buffer& what) { return what.kind == kind && !what.tip.empty(); });
      if (!there) continue;
      svg.rectangle(x, y - 9, 10, 10, concat("fill:", looks[kind].color));
      svg.text(x + 14, y, looks[kind].name, {.size = 10.5});
      x += 22 + 6.2 * static_cast<double>(std::string(looks[kind].name).size()) + 12;
    }
    svg.line(x, y - 4, x + 18, y - 4, "stroke:#222;stroke-width:1.6");
    svg.text(x + 22, y, "alive at this step, the most in red", {.size = 10.5});
  }

  const Graph& graph_;
  graph::BufferPlan buffers_;
  graph::MemoryPlan plan_;
  std::vector<std::string> steps_;
  std::vector<int> column_;  // by node: how many steps ran before it
  std::vector<Buffer> what_;
  int loss_ = -1;
  double step_width_ = 0;
};

}  // namespace

std::string memory_picture(const Graph& graph, const std::string& title, Device device) { return Drawing(graph, device).draw(title); }

}  // namespace frit::apps
