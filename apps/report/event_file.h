#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frit::apps {

/// A file of scalars over steps that TensorBoard reads: events.out.tfevents.<time>.<host>. Each event is in the file when the call returns.
class EventFile {
 public:
  /// Makes a new file in the folder. With `first_step` TensorBoard forgets what earlier files of the folder have from that step on, as a
  /// run that goes on there overtakes it. Throws ErrorKind::file_system, as do the others.
  explicit EventFile(const std::string& folder, std::optional<std::int64_t> first_step = {});
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Tags and values, such as "train/loss". A value that is not finite is left out.
  void add(std::int64_t step, const std::vector<std::pair<std::string, double>>& values);
  const std::string& path() const { return path_; }

 private:
  void write(const std::string& event) const;

  std::string path_;
  int descriptor_ = -1;
};

/// One record of a TFRecord file: length, data, and their checksums.
std::string tensorflow_record(std::string_view data);
/// The protocol buffer tensorflow.Event with these scalars.
std::string scalar_event(double wall_time, std::int64_t step, const std::vector<std::pair<std::string, double>>& values);
/// The protocol buffer tensorflow.Event that says: a run starts at this step, and what was written of it and later ones counts no more.
std::string start_event(double wall_time, std::int64_t step);
/// Castagnoli's checksum.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace frit::apps
