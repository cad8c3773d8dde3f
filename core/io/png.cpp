#include "frit/core/io/png.h"

#ifdef FRIT_HAVE_PNG
#include <png.h>
#endif

#include <algorithm>
#include <csetjmp>
#include <cstring>
#include <vector>

#include "frit/core/io/file.h"
#include "frit/core/text.h"

namespace frit {

#ifdef FRIT_HAVE_PNG
namespace {

/// One reading or writing of libpng's. The library reports an error by a jump, so that the functions which set one up hold nothing that
/// would have to be destroyed: all of it lives here.
struct Session {
  ~Session() {
    if (reading) ::png_destroy_read_struct(&png, &info, nullptr);
    if (!reading) ::png_destroy_write_struct(&png, &info);
  }

  bool reading = true;
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::vector<std::byte> bytes;  ///< the file
  std::size_t position = 0;      ///< of the next byte to be read
  std::vector<png_byte> samples;
  std::vector<png_bytep> rows;
  char message[160] = "";
};

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto& session = *static_cast<Session*>(::png_get_error_ptr(png));
  std::strncpy(session.message, message, sizeof session.message - 1);
  ::png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void take_bytes(png_structp png, png_bytep into, std::size_t count) {
  auto& session = *static_cast<Session*>(::png_get_io_ptr(png));
  if (count > session.bytes.size() - session.position) ::png_error(png, "the file ends early: truncated?");
  std::memcpy(into, session.bytes.data() + session.position, count);
  session.position += count;
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

/// Reads what stands before the pixels, and asks for them as grey or red, green, blue of 8 or 16 bits. False: see the message.
bool start_reading(Session& session) {
  session.png = ::png_create_read_struct(PNG_LIBPNG_VER_STRING, &session, on_error, on_warning);
  session.info = session.png == nullptr ? nullptr : ::png_create_info_struct(session.png);
  if (session.info == nullptr) fail(ErrorKind::out_of_memory, "no memory to read a PNG image");
  if (setjmp(png_jmpbuf(session.png)) != 0) return false;
  ::png_set_read_fn(session.png, &session, take_bytes);
  ::png_read_info(session.png, session.info);
  ::png_set_expand(session.png);
  ::png_set_strip_alpha(session.png);
  ::png_set_interlace_handling(session.png);
  if (::png_get_bit_depth(session.png, session.info) == 16) ::png_set_swap(session.png);
  ::png_read_update_info(session.png, session.info);
  return true;
}

bool read_rows(Session& session) {
  if (setjmp(png_jmpbuf(session.png)) != 0) return false;
  ::png_read_image(session.png, session.rows.data());
  ::png_read_end(session.png, nullptr);
  return true;
}

void open(const Input& input, Session& session) {
  session.bytes.resize(static_cast<std::size_t>(input.size()));
  input.read(0, session.bytes);
  if (session.bytes.size() < 8 || ::png_sig_cmp(reinterpret_cast<png_const_bytep>(session.bytes.data()), 0, 8) != 0) {
    input.bad("not a PNG image: expected \\x89PNG at the start");
  }
  if (!start_reading(session)) input.bad("PNG image: ", session.message);
}

PngHeader header_of(const Session& session) {
  return {::png_get_image_height(session.png, session.info), ::png_get_image_width(session.png, session.info),
          ::png_get_channels(session.png, session.info)};
}

void set_rows(Session& session, std::size_t row_bytes, std::size_t height) {
  session.rows.resize(height);
  for (std::size_t y = 0; y < height; ++y) session.rows[y] = session.samples.data() + y * row_bytes;
}

/// (H, W, channels) samples to (channels, H, W) in [0, 1].
template <class Sample>
void spread(const Session& session, const Tensor& image) {
  const std::int64_t channels = image.dim(0), pixels = image.dim(1) * image.dim(2);
  float* to = image.data<float>();
  const png_byte* const from = session.samples.data();
  constexpr auto largest = static_cast<float>(static_cast<Sample>(-1));
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t i = 0; i < pixels; ++i) {
      Sample sample;
      std::memcpy(&sample, from + static_cast<std::size_t>(i * channels + c) * sizeof(Sample), sizeof(Sample));
      *to++ = static_cast<float>(sample) / largest;
    }
  }
}

bool write_image(Session& session, const PngHeader& header) {
  session.png = ::png_create_write_struct(PNG_LIBPNG_VER_STRING, &session, on_error, on_warning);
  session.info = session.png == nullptr ? nullptr : ::png_create_info_struct(session.png);
  if (session.info == nullptr) fail(ErrorKind::out_of_memory, "no memory to write a PNG image");
  if (setjmp(png_jmpbuf(session.png)) != 0) return false;
  ::png_set_write_fn(session.png, &session, give_bytes, give_no_bytes);
  ::png_set_IHDR(session.png, session.info, static_cast<png_uint_32>(header.width), static_cast<png_uint_32>(header.height), 8,
                 header.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
  ::png_write_info(session.png, session.info);
  ::png_write_image(session.png, session.rows.data());
  ::png_write_end(session.png, nullptr);
  return true;
}

}  // namespace

PngHeader read_png_header(const std::string& path) {
  const FileInput input(path, "a PNG image");
  Session session;
  open(input, session);
  return header_of(session);
}

Tensor read_png(const Input& input) {
  Session session;
  open(input, session);
  const PngHeader header = header_of(session);
  const std::size_t row_bytes = ::png_get_rowbytes(session.png, session.info);
  // Deflate makes at most 1032 bytes of one; samples of less than 8 bits and palettes give up to 24 times as many.
  const auto height = static_cast<std::size_t>(header.height);
  if (row_bytes / 24 * height / 1032 > session.bytes.size()) {
    input.bad("PNG image: header declares ", header.width, 'x', header.height, " pixels, more than a file of ", input.size(),
              " bytes can hold: truncated?");
  }
  session.samples.resize(row_bytes * height);
  set_rows(session, row_bytes, height);
  if (!read_rows(session)) input.bad("PNG image: ", session.message);
  const Tensor image = Tensor::empty({header.channels, header.height, header.width});
  if (::png_get_bit_depth(session.png, session.info) == 16)
    spread<std::uint16_t>(session, image);
  else
    spread<std::uint8_t>(session, image);
  return image;
}

void write_png(const std::string& path, const Tensor& image) {
  require(image.defined() && image.rank() == 3 && (image.dim(0) == 1 || image.dim(0) == 3) && image.elements() > 0 &&
              is_floating(image.dtype()),
          "write_png: needs a floating tensor (1 or 3, H, W)");
  const PngHeader header{image.dim(1), image.dim(2), image.dim(0)};
  require(header.height <= PNG_USER_HEIGHT_MAX && header.width <= PNG_USER_WIDTH_MAX, "write_png: an image of ", header.width, 'x',
          header.height, " is too large");
  const std::vector<float> values = image.permute({1, 2, 0}).to_vector<float>();
  Session session;
  session.reading = false;
  for (const float value : values) session.samples.push_back(static_cast<png_byte>(value > 0 ? std::min(value, 1.0f) * 255 + 0.5f : 0));
  set_rows(session, static_cast<std::size_t>(header.width * header.channels), static_cast<std::size_t>(header.height));
  if (!write_image(session, header)) fail(ErrorKind::bug, "libpng cannot write an image: ", session.message);
  AtomicFile file(path, session.bytes.size());
  file.write(session.bytes);
  file.commit();
}

#else

namespace {
[[noreturn]] void missing(const std::string& path) {
  FileInput(path, "a PNG image").bad("PNG images cannot be read: frit was built without libpng");
}
}  // namespace

PngHeader read_png_header(const std::string& path) { missing(path); }
Tensor read_png(const Input& input) { input.bad("PNG images cannot be read: frit was built without libpng"); }
void write_png(const std::string& path, const Tensor&) {
  fail(ErrorKind::argument, printable(path), ": PNG images cannot be written: frit was built without libpng");
}

#endif

Tensor read_png(const std::string& path) { return read_png(FileInput(path, "a PNG image")); }

}  // namespace frit
