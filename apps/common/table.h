#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace frit::apps {

/// Rows of text, printed in columns that are as wide as they need to be.
class Table {
 public:
  struct Column {
    const char* title;
    enum { left, right } align = left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<std::string> row);
  void print(std::ostream& out) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace frit::apps
