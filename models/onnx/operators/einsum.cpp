#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>

#include "frit/models/onnx/operators/helpers.h"

// Einsum as sums and matrix products: operands are joined from the left, and an axis that neither the result nor an operand still to come
// has is summed on the way. Axes have letters for names; those of "..." have the numbers 1, 2, ... from the last one on.

namespace frit::onnx {
namespace {

/// A value with the names of its axes.
struct Term {
  Value value;
  std::string axes;
};

std::string axes_where(const std::string& axes, const auto& holds) {
  std::string kept;
  std::copy_if(axes.begin(), axes.end(), std::back_inserter(kept), holds);
  return kept;
}

class Einsum {
 public:
  explicit Einsum(const Call& call) : call_(call) { parse(call.text("equation", "")); }

  Value run() {
    Term result = terms_[0];
    for (std::size_t i = 1; i < terms_.size(); ++i) {
      std::string wanted = output_;
      for (std::size_t later = i + 1; later < terms_.size(); ++later) wanted += terms_[later].axes;
      result = joined(result, terms_[i], wanted);
    }
    return ordered(summed(result, output_), output_);
  }

 private:
  void parse(const std::string& equation) {
    const std::size_t arrow = equation.find("->");
    const std::string left = equation.substr(0, arrow);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < call_.inputs(); ++i) {
      const std::size_t end = std::min(left.find(',', begin), left.size());
      call_.require_support(begin <= left.size() && (i + 1 < call_.inputs() || end == left.size()), "its equation is not of ",
                            call_.inputs(), " operands");
      add_term(as_floating(call_[i]), left.substr(begin, end - begin));
      begin = end + 1;
    }
    call_.require_support(!terms_.empty(), "it has no operands");
    output_ = arrow == std::string::npos ? implied_output() : named(equation.substr(arrow + 2), ellipsis_);
    for (const char axis : output_) {
      const bool once = std::count(output_.begin(), output_.end(), axis) == 1 && sizes_.contains(axis);
      call_.require_support(once, "its result has an axis twice, or one that no operand has");
    }
  }

  std::string named(const std::string& subscript, int ellipsis) const {
    std::string axes;
    for (std::size_t i = 0; i < subscript.size(); ++i) {
      if (subscript[i] == ' ') continue;
      const bool dots = subscript.compare(i, 3, "...") == 0;
      call_.require_support(dots || std::isalpha(static_cast<unsigned char>(subscript[i])) != 0, "its equation has \"", subscript[i], '"');
      for (int axis = ellipsis; dots && axis > 0; --axis) axes += static_cast<char>(axis);
      if (dots) i += 2;
      if (!dots) axes += subscript[i];
    }
    return axes;
  }

  void add_term(Value x, const std::string& subscript) {
    const bool dots = subscript.find('.') != std::string::npos;
    const int ellipsis = dots ? x.rank() - static_cast<int>(named(subscript, 0).size()) : 0;
    Term term{x, named(subscript, ellipsis)};
    call_.require_support(ellipsis >= 0 && static_cast<int>(term.axes.size()) == x.rank(), "its equation is not of an operand of rank ",
                          x.rank());
    ellipsis_ = std::max(ellipsis_, ellipsis);
    for (int axis = 0; axis < x.rank(); ++axis) {
      std::int64_t& size = sizes_.try_emplace(term.axes[static_cast<std::size_t>(axis)], 1).first->second;
      const std::int64_t own = x.dim(axis);
      call_.require_support(own == 1 || size == 1 || own == size, "an axis has sizes ", size, " and ", own);
      if (own != 1) size = own;
      ++counts_[term.axes[static_cast<std::size_t>(axis)]];
    }
    terms_.push_back(diagonal(std::move(term)));
  }

  /// Without an axis that is named twice.
  Term diagonal(Term term) const {
    for (std::size_t last = term.axes.size(); last-- > 1;) {
      const std::size_t first = term.axes.find(term.axes[last]);
      if (first == last) continue;
      const std::int64_t size = term.value.dim(static_cast<int>(last));
      call_.require_support(size == term.value.dim(static_cast<int>(first)), "the diagonal of axes of different sizes");
      const auto along = [&](std::size_t axis) { return positions(call_, size, static_cast<int>(axis), term.value.rank(), DType::i64); };
      const Value on_it = where(equal(along(first), along(last)), term.value, 0.0);
      term = {sum(on_it, {static_cast<std::int64_t>(last)}), term.axes.erase(last, 1)};
    }
    return term;
  }

  /// The axes that the operands have once in all, in alphabetical order.
  std::string implied_output() const {
    std::string axes = named("...", ellipsis_);
    for (const auto& [axis, count] : counts_) {
      if (axis > ellipsis_ && count == 1) axes += axis;
    }
    return axes;
  }

  /// Without the axes that are not wanted.
  static Term summed(const Term& term, const std::string& wanted) {
    Dims axes;
    for (std::size_t i = 0; i < term.axes.size(); ++i) {
      if (wanted.find(term.axes[i]) == std::string::npos) axes.push_back(static_cast<std::int64_t>(i));
    }
    const auto is_wanted = [&](char axis) { return wanted.find(axis) != std::string::npos; };
    return axes.empty() ? term : Term{sum(term.value, axes), axes_where(term.axes, is_wanted)};
  }

  Shape sizes_of(const std::string& axes) const {
    Sizes sizes;
    for (const char axis : axes) sizes.push_back(sizes_.at(axis));
    return to_shape(call_, sizes);
  }

  /// With its axes in this order, each of its full size.
  Value ordered(const Term& term, const std::string& order) const {
    Dims axes;
    for (const char axis : order) axes.push_back(static_cast<std::int64_t>(term.axes.find(axis)));
    return expand(permute(term.value, axes), sizes_of(order));
  }

  /// As (batch, rows, inner) times (batch, inner, columns).
  Term joined(const Term& a, const Term& b, const std::string& wanted) const {
    const Term left = summed(a, wanted + b.axes), right = summed(b, wanted + a.axes);
    const auto in = [](const std::string& axes, char axis) { return axes.find(axis) != std::string::npos; };
    const std::string batch = axes_where(left.axes, [&](char axis) { return in(right.axes, axis) && in(wanted, axis); });
    const std::string inner = axes_where(left.axes, [&](char axis) { return in(right.axes, axis) && !in(wanted, axis); });
    const std::string rows = axes_where(left.axes, [&](char axis) { return !in(right.axes, axis); });
    const std::string columns = axes_where(right.axes, [&](char axis) { return !in(left.axes, axis); });
    const auto count = [&](const std::string& axes) { return element_count(sizes_of(axes)); };
    const Value x = reshape(ordered(left, batch + rows + inner), {count(batch), count(rows), count(inner)});
    const Value y = reshape(ordered(right, batch + inner + columns), {count(batch), count(inner), count(columns)});
    const std::string axes = batch + rows + columns;
    return {reshape(inner.empty() ? x * y : matmul(x, y), sizes_of(axes)), axes};
  }

  const Call& call_;
  std::vector<Term> terms_;
  std::map<char, std::int64_t> sizes_;
  std::map<char, int> counts_;  ///< how often operands name an axis
  std::string output_;
  int ellipsis_ = 0;  ///< the most axes that "..." stands for
};

}  // namespace

void add_einsum(OperatorTable& table) {
  table["Einsum"] = [](const Call& call) -> Values { return {cast(Einsum(call).run(), call[0].dtype())}; };
}

}  // namespace frit::onnx
