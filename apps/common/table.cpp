#include "apps/common/table.h"

#include <algorithm>
#include <ostream>

#include "frit/core/error.h"

namespace frit::apps {

void Table::add(std::vector<std::string> row) {
  FRIT_CHECK(row.size() == columns_.size());
  rows_.push_back(std::move(row));
}

void Table::print(std::ostream& out) const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.emplace_back(column.title);
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = titles[c].size();
    for (const auto& row : rows_) width = std::max(width, row[c].size());
    widths.push_back(width);
  }
  const auto print_row = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - row[c].size(), ' ');
      line += (c == 0 ? "" : "  ") + (columns_[c].align == Column::right ? padding + row[c] : row[c] + padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  };
  print_row(titles);
  for (const auto& row : rows_) print_row(row);
}

}  // namespace frit::apps
