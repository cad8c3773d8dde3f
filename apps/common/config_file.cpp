#include "apps/common/config_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

#include "apps/common/options.h"
#include "frit/core/io/file.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

constexpr std::uint64_t file_limit = 1 << 20;

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

/// A string between double quotes; all bytes but control characters, quotes and backslashes stand for themselves.
std::string quoted_value(const std::string& text) {
  constexpr const char* digits = "0123456789ABCDEF";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (byte < 0x20 || byte == 0x7F)
      result += std::string("\\u00") + digits[byte >> 4] + digits[byte & 15];
    else
      result += c;
  }
  return result + '"';
}

/// Numbers and truth values stand as they are, all else between quotes.
std::string spelled(const std::string& value) {
  const bool plain = value == "true" || value == "false" || parse_number<double>(value);
  return plain ? value : quoted_value(value);
}

/// Takes apart what follows "=" on a line. Throws ErrorKind::format, without the place.
class ConfigValues {
 public:
  explicit ConfigValues(std::string_view rest) : rest_(rest) {}

  std::vector<std::string> take() {
    if (!rest_.starts_with('[')) {
      std::vector<std::string> one = {value("#")};
      end();
      return one;
    }
    std::vector<std::string> values;
    do {
      rest_ = trimmed(rest_.substr(1));
      if (!rest_.starts_with(']')) values.push_back(value(",]#"));
      rest_ = trimmed(rest_);
    } while (rest_.starts_with(','));
    if (!rest_.starts_with(']')) fail(ErrorKind::format, "a list ends with ] on the same line");
    rest_ = trimmed(rest_.substr(1));
    end();
    return values;
  }

 private:
  std::string value(const char* ends) {
    if (rest_.starts_with('"')) return in_double_quotes();
    if (rest_.starts_with('\'')) {
      const std::size_t close = rest_.find('\'', 1);
      if (close == std::string_view::npos) fail(ErrorKind::format, "a string ends with ' on the same line");
      const std::string text(rest_.substr(1, close - 1));
      rest_ = trimmed(rest_.substr(close + 1));
      return text;
    }
    const std::size_t stop = std::min(rest_.find_first_of(ends), rest_.size());
    const std::string text(trimmed(rest_.substr(0, stop)));
    if (text.empty()) fail(ErrorKind::format, "a value is missing");
    rest_ = rest_.substr(stop);
    return text;
  }

  std::string in_double_quotes() {
    std::string text;
    for (std::size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == '"') {
        rest_ = trimmed(rest_.substr(i + 1));
        return text;
      }
      text += rest_[i] == '\\' ? escaped(i) : rest_[i];
    }
    fail(ErrorKind::format, "a string ends with \" on the same line");
  }

  /// The character after the backslash at `i`, which moves on to the last of it.
  char escaped(std::size_t& i) const {
    constexpr std::string_view names = "\"\\nrtbf", characters = "\"\\\n\r\t\b\f";
    const char name = ++i < rest_.size() ? rest_[i] : ' ';
    if (const std::size_t place = names.find(name); place != std::string_view::npos) return characters[place];
    unsigned code = 0;
    const std::string_view digits = rest_.substr(std::min(i + 1, rest_.size()), 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (name != 'u' || error != std::errc() || end != digits.data() + 4 || code > 0x7F) {
      fail(ErrorKind::format,
           "a backslash in a string is followed by one of \" \\ n r t b f, or u and the four digits of an ASCII character");
    }
    i += 4;
    return static_cast<char>(code);
  }

  void end() const {
    if (!rest_.empty() && rest_.front() != '#') fail(ErrorKind::format, "unexpected \"", printable(rest_), "\" after the value");
  }

  std::string_view rest_;
};

/// What a file calls an option: "batch-size"; "model" for MODEL|CHECKPOINT.
std::string key_of(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return option.get_lnames().front();
  const std::string name = option.get_name(/*positional=*/true);
  return CLI::detail::to_lower(name.substr(0, name.find('|')));
}

std::vector<const CLI::Option*> configurable(const CLI::App& command) {
  std::vector<const CLI::Option*> options;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_configurable() && option != command.get_help_ptr()) options.push_back(option);
  }
  std::stable_partition(options.begin(), options.end(), [](const CLI::Option* option) { return option->get_positional(); });
  return options;
}

}  // namespace

std::shared_ptr<ConfigFile> ConfigFile::add_to(CLI::App& app) {
  const std::shared_ptr<ConfigFile> file(new ConfigFile(app));
  app.config_formatter(file);
  CLI::Option* const option =
      app.set_config("--config", "", "Take options from a file, as --print-config writes it; options next to it win");
  // The parser looks at the value before it opens the file, whatever that is and however large.
  option->type_name("FILE")->check([each = file.get()](const std::string& path) { return each->read(path); }, "");
  app.add_flag("--print-config", file->print_, "Print the command's options as a file for --config, and do nothing else")
      ->configurable(false);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) command->fallthrough();
  return file;
}

std::string ConfigFile::read(const std::string& path) {
  if (path.empty()) return empty_value;
  text_ = read_text(path, file_limit);
  path_ = path;
  return {};
}

std::vector<CLI::ConfigItem> ConfigFile::from_config(std::istream&) const {
  const auto chosen = app_.get_subcommands();
  if (chosen.empty()) return {};
  std::istringstream lines(text_);
  std::vector<CLI::ConfigItem> found;
  bool ours = true;
  std::size_t number = 0;
  for (std::string whole; std::getline(lines, whole);) {
    const std::string place = concat(printable(path_), ": line ", ++number);
    const std::string_view line = trimmed(whole);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    try {
      if (line.front() == '[')
        ours = section_of(line) == chosen.front()->get_name();
      else if (ours)
        found.push_back(item_of(line, *chosen.front(), found, place));
    } catch (const Error& error) {
      fail(ErrorKind::format, place, ": ", error.what());
    }
  }
  return found;
}

std::string ConfigFile::section_of(std::string_view line) const {
  std::vector<std::string> commands;
  for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; })) commands.push_back(command->get_name());
  const std::string section(line.substr(1, line.find(']') - 1));
  const bool known = line.find(']') != std::string_view::npos && std::find(commands.begin(), commands.end(), section) != commands.end();
  require(known, "expected the section of a command, got \"", printable(line), '"', did_you_mean(section, commands));
  return section;
}

CLI::ConfigItem ConfigFile::item_of(std::string_view line, const CLI::App& command, const std::vector<CLI::ConfigItem>& before,
                                    const std::string& place) const {
  const std::size_t equals = line.find('=');
  require(equals != std::string_view::npos, "expected OPTION = VALUE, got \"", printable(line), '"');
  const std::string key(trimmed(line.substr(0, equals)));
  const std::vector<const CLI::Option*> options = configurable(command);
  std::vector<std::string> keys;
  for (const CLI::Option* option : options) keys.push_back(key_of(*option));
  const auto found = std::find(keys.begin(), keys.end(), key);
  require(found != keys.end(), "unknown option \"", printable(key), "\" of ", command.get_name(), did_you_mean(key, keys));
  const CLI::Option* const option = options[static_cast<std::size_t>(found - keys.begin())];
  const std::string name = option->get_positional() ? option->get_name(/*positional=*/true) : key;
  const CLI::ConfigItem item = {{command.get_name()}, name, ConfigValues(trimmed(line.substr(equals + 1))).take()};
  require(item.inputs.size() == 1 || option->get_items_expected_max() > 1, '"', key, "\" takes one value");
  const bool again = std::any_of(before.begin(), before.end(), [&](const CLI::ConfigItem& other) { return other.name == name; });
  require(!again, '"', key, "\" stands here a second time");
  if (option->empty()) origins_[option] = place;
  return item;
}

std::string ConfigFile::text() const {
  const CLI::App& command = *app_.get_subcommands().front();
  std::string text = '[' + command.get_name() + "]\n";
  for (const CLI::Option* option : configurable(command)) {
    std::vector<std::string> values = option->reduced_results();
    // The default of one that excludes others would stand in their way.
    if (values.empty() && option->get_excludes().empty() && !option->get_default_str().empty()) values = {option->get_default_str()};
    if (values.empty()) continue;
    std::string spelling;
    for (const std::string& value : values) spelling += (spelling.empty() ? "" : ", ") + spelled(value);
    const bool list = option->get_items_expected_max() > 1;
    text += key_of(*option) + " = " + (list ? '[' + spelling + ']' : spelling) + '\n';
  }
  return text;
}

std::string ConfigFile::origin(const CLI::Option& option) const {
  const auto place = origins_.find(&option);
  return place == origins_.end() ? "" : place->second;
}

}  // namespace frit::apps
