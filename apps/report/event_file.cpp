#include "apps/report/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "frit/core/error.h"
#include "frit/core/text.h"

namespace frit::apps {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

template <class T>
std::string little_endian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// Protocol buffers: each field is its number and wire type, then its value.
std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string key(unsigned field, unsigned wire_type) { return varint(field << 3 | wire_type); }
std::string double_field(unsigned field, double value) { return key(field, 1) + little_endian(std::bit_cast<std::uint64_t>(value)); }
std::string float_field(unsigned field, float value) { return key(field, 5) + little_endian(std::bit_cast<std::uint32_t>(value)); }
std::string integer_field(unsigned field, std::int64_t value) { return key(field, 0) + varint(static_cast<std::uint64_t>(value)); }
std::string bytes_field(unsigned field, std::string_view value) { return key(field, 2) + varint(value.size()) + std::string(value); }

// Of tensorflow.Event, Summary, Summary.Value and SessionLog.
constexpr unsigned event_wall_time = 1, event_step = 2, event_file_version = 3, event_summary = 5, event_session_log = 7, summary_value = 1,
                   value_tag = 1, value_simple = 2, session_status = 1;
constexpr std::int64_t status_start = 1;

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> entries{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t entry = i;
      for (int bit = 0; bit < 8; ++bit) entry = entry >> 1 ^ ((entry & 1) != 0 ? 0x82F63B78u : 0);
      entries[i] = entry;
    }
    return entries;
  }();
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

std::string tensorflow_record(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked_crc(length)) + std::string(data) + little_endian(masked_crc(data));
}

std::string scalar_event(double wall_time, std::int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, value] : values) {
    if (!std::isfinite(value)) continue;
    summary += bytes_field(summary_value, bytes_field(value_tag, tag) + float_field(value_simple, static_cast<float>(value)));
  }
  return double_field(event_wall_time, wall_time) + integer_field(event_step, step) + bytes_field(event_summary, summary);
}

std::string start_event(double wall_time, std::int64_t step) {
  return double_field(event_wall_time, wall_time) + integer_field(event_step, step) +
         bytes_field(event_session_log, integer_field(session_status, status_start));
}

EventFile::EventFile(const std::string& folder, std::optional<std::int64_t> first_step) {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) std::strcpy(host.data(), "localhost");
  const auto seconds = static_cast<std::int64_t>(now());
  // A second file of the same second takes another number.
  for (int number = 0; descriptor_ < 0; ++number) {
    path_ = concat(folder, "/events.out.tfevents.", seconds, '.', host.data(), '.', ::getpid(), '.', number);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail(ErrorKind::file_system, printable(path_), ": ", std::strerror(errno));
  }
  write(double_field(event_wall_time, now()) + bytes_field(event_file_version, "brain.Event:2"));
  if (first_step) write(start_event(now(), *first_step));
}

EventFile::~EventFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void EventFile::add(std::int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  write(scalar_event(now(), step, values));
}

void EventFile::write(const std::string& event) const {
  const std::string record = tensorflow_record(event);
  std::string_view rest = record;
  while (!rest.empty()) {
    const ssize_t count = ::write(descriptor_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(ErrorKind::file_system, printable(path_), ": ", std::strerror(count < 0 ? errno : ENOSPC));
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace frit::apps
