#include "frit/core/io/jpeg.h"

#ifdef FRIT_HAVE_JPEG
#include <cstddef>
#include <cstdio>  // jpeglib.h needs both
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
#endif

#include <algorithm>
#include <array>
#include <csetjmp>
#include <exception>
#include <vector>

#include "frit/core/io/file.h"

namespace frit {

#ifdef FRIT_HAVE_JPEG
namespace {

constexpr std::int64_t most_in_scans = std::int64_t{1} << 26;  // pixels
constexpr int most_scans = 100;

/// One reading of libjpeg's. The library reports an error by a jump, so that the functions which set one up hold nothing that would have to
/// be destroyed: all of it lives here.
struct Session {
  explicit Session(const Input& from) : input(from), bytes(1 << 16) {}
  ~Session() { ::jpeg_destroy_decompress(&jpeg); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Input& input;
  ::jpeg_decompress_struct jpeg = {};
  ::jpeg_error_mgr errors = {};
  ::jpeg_source_mgr source = {};
  ::jpeg_progress_mgr progress = {};
  std::jmp_buf jump;
  std::uint64_t position = 0;  ///< after what was taken from the input
  std::vector<std::byte> bytes;
  std::vector<JSAMPLE> row;    ///< (W, channels)
  std::exception_ptr failure;  ///< what the input threw: nothing may be thrown through the library
  char message[JMSG_LENGTH_MAX] = "";
};

Session& session_of(::j_common_ptr jpeg) { return *static_cast<Session*>(jpeg->client_data); }
Session& session_of(::j_decompress_ptr jpeg) { return *static_cast<Session*>(jpeg->client_data); }

[[noreturn]] void give_up(Session& session, const char* message) {
  if (message != nullptr) std::snprintf(session.message, sizeof session.message, "%s", message);
  std::longjmp(session.jump, 1);
}

[[noreturn]] void on_error(::j_common_ptr jpeg) {
  Session& session = session_of(jpeg);
  jpeg->err->format_message(jpeg, session.message);
  give_up(session, nullptr);
}

/// Warnings say what is damaged, and that the library made something up in its place; all else is chat.
void on_message(::j_common_ptr jpeg, int level) {
  if (level < 0) on_error(jpeg);
}

void start_source(::j_decompress_ptr) {}

::boolean fill_source(::j_decompress_ptr jpeg) {
  Session& s = session_of(jpeg);
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(s.bytes.size(), s.input.size() - s.position));
  if (count == 0) give_up(s, "the file ends early: truncated?");
  try {
    s.input.read(s.position, std::span(s.bytes).first(count));
  } catch (...) {
    s.failure = std::current_exception();
  }
  if (s.failure) give_up(s, "cannot be read");
  s.position += count;
  s.source.next_input_byte = reinterpret_cast<const JOCTET*>(s.bytes.data());
  s.source.bytes_in_buffer = count;
  return TRUE;
}

void skip_source(::j_decompress_ptr jpeg, long count) {
  Session& s = session_of(jpeg);
  const std::uint64_t wanted = count > 0 ? static_cast<std::uint64_t>(count) : 0;
  const auto held = static_cast<std::size_t>(std::min<std::uint64_t>(wanted, s.source.bytes_in_buffer));
  s.source.next_input_byte += held;
  s.source.bytes_in_buffer -= held;
  if (wanted - held > s.input.size() - s.position) give_up(s, "the file ends early: truncated?");
  s.position += wanted - held;
}

void end_source(::j_decompress_ptr) {}

/// A scan may be a few bytes that cost as much time as the whole image.
void on_progress(::j_common_ptr jpeg) {
  if (reinterpret_cast<::j_decompress_ptr>(jpeg)->input_scan_number > most_scans) give_up(session_of(jpeg), "more than 100 scans");
}

/// What stands before the pixels. False: see the message.
bool read_header(Session& s) {
  s.jpeg.err = ::jpeg_std_error(&s.errors);
  s.errors.error_exit = on_error;
  s.errors.emit_message = on_message;
  s.jpeg.client_data = &s;
  if (setjmp(s.jump) != 0) return false;
  ::jpeg_create_decompress(&s.jpeg);
  s.source = {nullptr, 0, start_source, fill_source, skip_source, ::jpeg_resync_to_restart, end_source};
  s.jpeg.src = &s.source;
  s.progress.progress_monitor = on_progress;
  s.jpeg.progress = &s.progress;
  ::jpeg_read_header(&s.jpeg, TRUE);
  return true;
}

bool start_rows(Session& s) {
  if (setjmp(s.jump) != 0) return false;
  s.jpeg.out_color_space = s.jpeg.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
  s.jpeg.dct_method = JDCT_ISLOW;  // the same bits on every processor
  return ::jpeg_start_decompress(&s.jpeg) != FALSE;
}

bool read_row(Session& s) {
  if (setjmp(s.jump) != 0) return false;
  JSAMPROW row = s.row.data();
  return ::jpeg_read_scanlines(&s.jpeg, &row, 1) == 1;
}

bool finish_reading(Session& s) {
  if (setjmp(s.jump) != 0) return false;
  return ::jpeg_finish_decompress(&s.jpeg) != FALSE;
}

/// Throws unless a step of the reading went well.
void check(const Session& s, bool well) {
  if (s.failure) std::rethrow_exception(s.failure);
  if (well) return;
  if (s.errors.msg_code == JERR_OUT_OF_MEMORY) fail(ErrorKind::out_of_memory, s.input.name(), ": no memory to read a JPEG image");
  s.input.bad("JPEG image: ", s.message);
}

/// Throws for what is not read: libjpeg has no red, green, blue for it.
void check_kind(const Session& s) {
  const ::jpeg_decompress_struct& j = s.jpeg;
  const bool grey = j.num_components == 1 && j.jpeg_color_space == JCS_GRAYSCALE;
  if (!grey && !(j.num_components == 3 && (j.jpeg_color_space == JCS_YCbCr || j.jpeg_color_space == JCS_RGB))) {
    s.input.bad("JPEG image: expected grey or colour, of 1 or 3 components, got ", j.num_components,
                j.num_components == 4 ? " (CMYK)" : "");
  }
  if (j.arith_code != FALSE) s.input.bad("JPEG image: arithmetic coding, expected Huffman's");
}

/// Throws if the header declares more than the file can hold: every block of 8x8 samples takes a bit at least.
void check_size(Session& s, const ImageHeader& header) {
  std::uint64_t blocks = 0;  // of as many pixels as the coarsest component's block covers
  for (int c = 0; c < s.jpeg.num_components; ++c) {
    blocks += static_cast<std::uint64_t>(s.jpeg.comp_info[c].h_samp_factor * s.jpeg.comp_info[c].v_samp_factor);
  }
  const auto units = [](std::int64_t pixels, int samples) {
    return static_cast<std::uint64_t>((pixels + 8 * samples - 1) / (8 * samples));
  };
  const std::uint64_t least = units(header.height, s.jpeg.max_v_samp_factor) * units(header.width, s.jpeg.max_h_samp_factor) * blocks / 8;
  if (least > s.input.size()) {
    s.input.bad("JPEG image: header declares ", header.width, 'x', header.height, " pixels, more than a file of ", s.input.size(),
                " bytes can hold: truncated?");
  }
  if (::jpeg_has_multiple_scans(&s.jpeg) != FALSE && header.width * header.height > most_in_scans) {
    s.input.bad("JPEG image: an image in several scans of ", header.width, 'x', header.height, " pixels, limit ", most_in_scans);
  }
}

ImageHeader open_image(Session& s) {
  std::array<std::byte, 2> first{};
  if (s.input.size() >= first.size()) s.input.read(0, first);
  if (first != std::array{std::byte{0xff}, std::byte{0xd8}}) s.input.bad("not a JPEG image: expected \\xff\\xd8 at the start");
  check(s, read_header(s));
  check_kind(s);
  return {s.jpeg.image_height, s.jpeg.image_width, s.jpeg.num_components};
}

}  // namespace

ImageHeader read_jpeg_header(const Input& input) {
  Session session(input);
  return open_image(session);
}

void read_jpeg_rows(const Input& input, const ImageBegin& begin, const ImageRow& take) {
  Session session(input);
  const ImageHeader header = open_image(session);
  check_size(session, header);
  begin(header);
  check(session, start_rows(session));
  const auto width = static_cast<std::size_t>(header.width), channels = static_cast<std::size_t>(header.channels);
  session.row.resize(width * channels);
  std::vector<float> samples(width * channels);
  for (std::int64_t y = 0; y < header.height; ++y) {
    check(session, read_row(session));
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t x = 0; x < width; ++x) samples[c * width + x] = static_cast<float>(session.row[x * channels + c]) / 255.0F;
    }
    take(y, samples);
  }
  check(session, finish_reading(session));
}

#else

namespace {
[[noreturn]] void missing(const Input& input) { input.bad("JPEG images cannot be read: frit was built without libjpeg"); }
}  // namespace

ImageHeader read_jpeg_header(const Input& input) { missing(input); }
void read_jpeg_rows(const Input& input, const ImageBegin&, const ImageRow&) { missing(input); }

#endif

Tensor read_jpeg(const Input& input, const ShapeCheck& check) { return gather_image(read_jpeg_rows, input, check); }

Tensor read_jpeg(const std::string& path, const ShapeCheck& check) { return read_jpeg(FileInput(path, "a JPEG image"), check); }

}  // namespace frit
