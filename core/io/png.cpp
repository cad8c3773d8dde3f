#include "frit/core/io/png.h"

#ifdef FRIT_HAVE_PNG
#include <png.h>
#endif

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>
#include <exception>
#include <vector>

#include "frit/core/io/content.h"
#include "frit/core/io/file.h"
#include "frit/core/text.h"

namespace frit {

#ifdef FRIT_HAVE_PNG
namespace {

constexpr const char* truncated = "the file ends early: truncated?";
constexpr std::int64_t most_interlaced = std::int64_t{1} << 26;  // pixels

/// One reading or writing of libpng's. The library reports an error by a jump, so that the functions which set one up hold nothing that
/// would have to be destroyed: all of it lives here.
struct Session {
  explicit Session(const Input* from = nullptr) : input(from) {}
  ~Session() {
    if (input != nullptr) ::png_destroy_read_struct(&png, &info, nullptr);
    if (input == nullptr) ::png_destroy_write_struct(&png, &info);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Input* input;  ///< that is read; none where an image is written
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::uint64_t position = 0;    ///< of the next byte to be read
  std::uint64_t begin = 0;       ///< of `bytes` in the file
  std::vector<std::byte> bytes;  ///< the part of the file that was read last, or what was written
  std::vector<png_byte> row;     ///< (W, channels)
  std::exception_ptr failure;    ///< what the input threw: nothing may be thrown through the library
  char message[160] = "";
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto& session = *static_cast<Session*>(::png_get_error_ptr(png));
  std::strncpy(session.message, message, sizeof session.message - 1);
  ::png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void copy_bytes(Session& s, std::span<std::byte> into) {
  if (s.position < s.begin || s.position + into.size() > s.begin + s.bytes.size()) {
    const std::uint64_t ahead = std::max<std::uint64_t>(into.size(), 1 << 16);
    s.bytes.resize(static_cast<std::size_t>(std::min(ahead, s.input->size() - s.position)));
    s.input->read(s.position, s.bytes);
    s.begin = s.position;
  }
  std::copy_n(s.bytes.begin() + static_cast<std::ptrdiff_t>(s.position - s.begin), into.size(), into.begin());
  s.position += into.size();
}

void take_bytes(png_structp png, png_bytep into, std::size_t count) {
  auto& session = *static_cast<Session*>(::png_get_io_ptr(png));
  if (count > session.input->size() - session.position) ::png_error(png, truncated);
  try {
    copy_bytes(session, {reinterpret_cast<std::byte*>(into), count});
  } catch (...) {
    session.failure = std::current_exception();
  }
  if (session.failure) ::png_error(png, "cannot be read");
}

void give_bytes(png_structp png, png_bytep from, std::size_t count) {
  auto& bytes = static_cast<Session*>(::png_get_io_ptr(png))->bytes;
  bool full = false;
  try {
    bytes.insert(bytes.end(), reinterpret_cast<std::byte*>(from), reinterpret_cast<std::byte*>(from) + count);
  } catch (const std::bad_alloc&) {
    full = true;
  }
  if (full) ::png_error(png, "no memory");
}

void give_no_bytes(png_structp) {}

/// What stands before the pixels. Chunks that say nothing of them are passed over, as what they hold may be compressed, and large. False:
/// see the message.
bool read_header(Session& session) {
  session.png = ::png_create_read_struct(PNG_LIBPNG_VER_STRING, &session, on_error, on_warning);
  session.info = session.png == nullptr ? nullptr : ::png_create_info_struct(session.png);
  if (session.info == nullptr) fail(ErrorKind::out_of_memory, "no memory to read a PNG image");
  if (setjmp(png_jmpbuf(session.png)) != 0) return false;
  ::png_set_keep_unknown_chunks(session.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  ::png_set_read_fn(session.png, &session, take_bytes);
  ::png_read_info(session.png, session.info);
  return true;
}

/// What the samples of a row are to be: parts of the largest, grey or red, green, blue; or the numbers that are stored, a palette's too.
enum class Samples { parts, numbers };

/// Asks for samples of 8 or 16 bits; of an interlaced image in the rows of its passes.
bool start_rows(Session& session, Samples samples) {
  if (setjmp(png_jmpbuf(session.png)) != 0) return false;
  if (samples == Samples::numbers) {
    ::png_set_packing(session.png);
  } else {
    ::png_set_expand(session.png);
    ::png_set_strip_alpha(session.png);
  }
  if (::png_get_bit_depth(session.png, session.info) == 16) ::png_set_swap(session.png);
  ::png_read_update_info(session.png, session.info);
  return true;
}

bool read_row(Session& session) {
  if (setjmp(png_jmpbuf(session.png)) != 0) return false;
  ::png_read_row(session.png, session.row.data(), nullptr);
  return true;
}

bool finish_reading(Session& session) {
  if (setjmp(png_jmpbuf(session.png)) != 0) return false;
  ::png_read_end(session.png, nullptr);
  return true;
}

/// Throws unless a step of the reading went well.
void check(const Session& session, bool well) {
  if (session.failure) std::rethrow_exception(session.failure);
  if (!well) session.input->bad("PNG image: ", session.message);
}

/// Bytes of compressed pixels. Throws if a chunk is not all there, before anything is unfolded.
std::uint64_t compressed_bytes(const Input& input) {
  constexpr std::uint64_t signature = 8, around = 12;  // a chunk's length, name and checksum
  std::uint64_t bytes = 0;
  for (std::uint64_t at = signature;;) {
    std::array<std::byte, 8> head{};
    if (input.size() - at < around) input.bad("PNG image: ", truncated);
    input.read(at, head);
    const std::uint32_t length = png_get_uint_32(reinterpret_cast<png_const_bytep>(head.data()));
    if (length > input.size() - at - around) input.bad("PNG image: ", truncated);
    const std::string_view name(reinterpret_cast<const char*>(head.data()) + 4, 4);
    if (name == "IDAT") bytes += length;
    if (name == "IEND") return bytes;
    at += around + length;
  }
}

/// An open image: its header was read, and what it declares can be in the file.
struct Image {
  explicit Image(const Input& input, Samples kind = Samples::parts) : session(&input), samples(kind) {
    std::array<std::byte, 8> first{};
    if (input.size() >= first.size()) input.read(0, first);
    if (::png_sig_cmp(reinterpret_cast<png_const_bytep>(first.data()), 0, first.size()) != 0) {
      input.bad("not a PNG image: expected \\x89PNG at the start");
    }
    check(session, read_header(session));
    stored_row_bytes = ::png_get_rowbytes(session.png, session.info);
    const int colours = ::png_get_color_type(session.png, session.info);
    if (samples == Samples::numbers && colours != PNG_COLOR_TYPE_GRAY && colours != PNG_COLOR_TYPE_PALETTE) {
      input.bad("PNG image: expected a class a pixel, grey or of a palette, got ",
                colours == PNG_COLOR_TYPE_GRAY_ALPHA ? "grey and alpha" : "colours");
    }
    check(session, start_rows(session, samples));
    header = {::png_get_image_height(session.png, session.info), ::png_get_image_width(session.png, session.info),
              ::png_get_channels(session.png, session.info)};
    interlaced = ::png_get_interlace_type(session.png, session.info) != PNG_INTERLACE_NONE;
  }

  void check_size() const {
    const Input& input = *session.input;
    const auto height = static_cast<std::uint64_t>(header.height);
    if (stored_row_bytes * height > compressed_bytes(input) * deflate_limit) {
      input.bad("PNG image: header declares ", header.width, 'x', header.height, " pixels, more than a file of ", input.size(),
                " bytes can hold: truncated?");
    }
    if (interlaced && header.width * header.height > most_interlaced) {
      input.bad("PNG image: an interlaced image of ", header.width, 'x', header.height, " pixels, limit ", most_interlaced);
    }
  }

  Session session;
  Samples samples;
  ImageHeader header;
  std::uint64_t stored_row_bytes = 0;
  bool interlaced = false;
};

/// A row of `count` pixels as every `step`th of `to` (channels, W), from `first` on.
template <class Sample>
void spread(const Image& image, std::size_t count, std::size_t first, std::size_t step, float* to) {
  const float largest = image.samples == Samples::parts ? static_cast<float>(static_cast<Sample>(-1)) : 1.0F;
  const auto channels = static_cast<std::size_t>(image.header.channels), width = static_cast<std::size_t>(image.header.width);
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = 0; i < count; ++i) {
      Sample sample;
      std::memcpy(&sample, image.session.row.data() + (i * channels + c) * sizeof(Sample), sizeof(Sample));
      to[c * width + first + i * step] = static_cast<float>(sample) / largest;
    }
  }
}

void decode_row(Image& image, std::size_t count, std::size_t first, std::size_t step, float* to) {
  check(image.session, read_row(image.session));
  const bool wide = ::png_get_bit_depth(image.session.png, image.session.info) == 16;
  (wide ? spread<std::uint16_t> : spread<std::uint8_t>)(image, count, first, step, to);
}

/// The passes of an interlaced image, each of some of its rows and columns, as rows (channels, W).
std::vector<float> decode_interlaced(Image& image, std::size_t row_elements) {
  const auto height = static_cast<png_uint_32>(image.header.height), width = static_cast<png_uint_32>(image.header.width);
  std::vector<float> rows(row_elements * height);
  for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
    const std::size_t count = PNG_PASS_COLS(width, pass);
    const png_uint_32 pass_rows = count == 0 ? 0 : PNG_PASS_ROWS(height, pass);
    for (png_uint_32 row = 0; row < pass_rows; ++row) {
      const std::size_t y = PNG_ROW_FROM_PASS_ROW(row, pass);
      decode_row(image, count, PNG_PASS_START_COL(pass), std::size_t{1} << PNG_PASS_COL_SHIFT(pass), rows.data() + y * row_elements);
    }
  }
  return rows;
}

void read_rows(Image&& image, const ImageBegin& begin, const ImageRow& take) {
  const ImageHeader header = image.header;
  image.check_size();
  begin(header);
  image.session.row.resize(::png_get_rowbytes(image.session.png, image.session.info));
  const auto width = static_cast<std::size_t>(header.width), row_elements = width * static_cast<std::size_t>(header.channels);
  std::vector<float> rows = image.interlaced ? decode_interlaced(image, row_elements) : std::vector<float>(row_elements);
  for (std::int64_t y = 0; y < header.height; ++y) {
    if (!image.interlaced) decode_row(image, width, 0, 1, rows.data());
    take(y, std::span(rows).subspan(image.interlaced ? static_cast<std::size_t>(y) * row_elements : 0, row_elements));
  }
  check(image.session, finish_reading(image.session));
}

/// `samples` (H, W, channels).
bool write_image(Session& session, const ImageHeader& header, const png_byte* samples) {
  session.png = ::png_create_write_struct(PNG_LIBPNG_VER_STRING, &session, on_error, on_warning);
  session.info = session.png == nullptr ? nullptr : ::png_create_info_struct(session.png);
  if (session.info == nullptr) fail(ErrorKind::out_of_memory, "no memory to write a PNG image");
  if (setjmp(png_jmpbuf(session.png)) != 0) return false;
  ::png_set_write_fn(session.png, &session, give_bytes, give_no_bytes);
  ::png_set_IHDR(session.png, session.info, static_cast<png_uint_32>(header.width), static_cast<png_uint_32>(header.height), 8,
                 header.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
  ::png_write_info(session.png, session.info);
  for (std::int64_t y = 0; y < header.height; ++y) ::png_write_row(session.png, samples + y * header.width * header.channels);
  ::png_write_end(session.png, nullptr);
  return true;
}

}  // namespace

ImageHeader read_png_header(const Input& input) { return Image(input).header; }

void read_png_rows(const Input& input, const ImageBegin& begin, const ImageRow& take) { read_rows(Image(input), begin, take); }

Tensor read_png_classes(const std::string& path, const ShapeCheck& check) {
  const FileInput input(path, "a PNG image");
  Tensor classes;
  const auto begin = [&](const ImageHeader& header) {
    const Shape shape{header.height, header.width};
    if (check) check(shape);
    classes = Tensor::empty(shape, DType::i64);
  };
  read_rows(Image(input, Samples::numbers), begin, [&](std::int64_t y, std::span<const float> row) {
    std::transform(row.begin(), row.end(), classes.data<std::int64_t>() + y * classes.dim(1),
                   [](float number) { return static_cast<std::int64_t>(number); });
  });
  return classes;
}

void write_png(const std::string& path, const Tensor& image) {
  require(image.defined() && image.rank() == 3 && (image.dim(0) == 1 || image.dim(0) == 3) && image.elements() > 0 &&
              is_floating(image.dtype()),
          "write_png: needs a floating tensor (1 or 3, H, W)");
  const ImageHeader header{image.dim(1), image.dim(2), image.dim(0)};
  require(header.height <= PNG_USER_HEIGHT_MAX && header.width <= PNG_USER_WIDTH_MAX, "write_png: an image of ", header.width, 'x',
          header.height, " is too large");
  const std::vector<float> values = image.permute({1, 2, 0}).to_vector<float>();
  Session session;
  std::vector<png_byte> samples;
  for (const float value : values) samples.push_back(static_cast<png_byte>(value > 0 ? std::min(value, 1.0f) * 255 + 0.5f : 0));
  if (!write_image(session, header, samples.data())) fail(ErrorKind::bug, "libpng cannot write an image: ", session.message);
  AtomicFile file(path, session.bytes.size());
  file.write(session.bytes);
  file.commit();
}

#else

namespace {
[[noreturn]] void missing(const Input& input) { input.bad("PNG images cannot be read: frit was built without libpng"); }
}  // namespace

ImageHeader read_png_header(const Input& input) { missing(input); }
void read_png_rows(const Input& input, const ImageBegin&, const ImageRow&) { missing(input); }
Tensor read_png_classes(const std::string& path, const ShapeCheck&) { missing(FileInput(path, "a PNG image")); }
void write_png(const std::string& path, const Tensor&) {
  fail(ErrorKind::argument, printable(path), ": PNG images cannot be written: frit was built without libpng");
}

#endif

Tensor read_png(const Input& input, const ShapeCheck& check) { return gather_image(read_png_rows, input, check); }

Tensor read_png(const std::string& path, const ShapeCheck& check) { return read_png(FileInput(path, "a PNG image"), check); }

}  // namespace frit
