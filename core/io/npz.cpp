#include "frit/core/io/npz.h"

#ifdef FRIT_HAVE_ZIP
#include <zip.h>
#endif

#include <array>
#include <memory>

#include "frit/core/io/content.h"
#include "frit/core/io/file.h"
#include "frit/core/io/npy.h"
#include "frit/core/text.h"

namespace frit {

#ifdef FRIT_HAVE_ZIP
namespace {

/// An input as libzip reads it.
struct Source {
  const Input& input;
  zip_uint64_t position = 0;
  ::zip_error_t error{};
  std::string failure = {};  ///< what the input threw: nothing may be thrown through the library
  ErrorKind kind = ErrorKind::file_system;
};

zip_int64_t read_source(Source& source, void* into, zip_uint64_t wanted) {
  const std::uint64_t count = std::min<std::uint64_t>(wanted, source.input.size() - source.position);
  try {
    source.input.read(source.position, {static_cast<std::byte*>(into), static_cast<std::size_t>(count)});
  } catch (const Error& error) {
    source.failure = error.what();
    source.kind = error.kind();
    ::zip_error_set(&source.error, ZIP_ER_READ, 0);
    return -1;
  }
  source.position += count;
  return static_cast<zip_int64_t>(count);
}

zip_int64_t serve(void* state, void* data, zip_uint64_t length, ::zip_source_cmd_t command) {
  Source& source = *static_cast<Source*>(state);
  switch (command) {
    case ZIP_SOURCE_OPEN: source.position = 0; return 0;
    case ZIP_SOURCE_READ: return read_source(source, data, length);
    case ZIP_SOURCE_TELL: return static_cast<zip_int64_t>(source.position);
    case ZIP_SOURCE_SEEK: {
      const zip_int64_t position = ::zip_source_seek_compute_offset(source.position, source.input.size(), data, length, &source.error);
      if (position < 0) return -1;
      source.position = static_cast<zip_uint64_t>(position);
      return 0;
    }
    case ZIP_SOURCE_STAT: {
      auto* const status = static_cast<::zip_stat_t*>(data);
      ::zip_stat_init(status);
      status->size = source.input.size();
      status->valid |= ZIP_STAT_SIZE;
      return sizeof *status;
    }
    case ZIP_SOURCE_ERROR: return ::zip_error_to_data(&source.error, data, length);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE: return 0;
    case ZIP_SOURCE_SUPPORTS:
      return ::zip_source_make_command_bitmap(ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
                                              ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS, -1);
    default: ::zip_error_set(&source.error, ZIP_ER_OPNOTSUPP, 0); return -1;
  }
}

struct Discard {
  void operator()(::zip_t* archive) const { ::zip_discard(archive); }
  void operator()(::zip_file_t* file) const { ::zip_fclose(file); }
};

class Archive {
 public:
  explicit Archive(const Input& input) : source_{input} {
    ::zip_error_t error;
    ::zip_error_init(&error);
    ::zip_source_t* const source = ::zip_source_function_create(serve, &source_, &error);
    if (source == nullptr) fail(ErrorKind::out_of_memory, input.name(), ": no memory to read a zip file");
    archive_.reset(::zip_open_from_source(source, ZIP_RDONLY, &error));
    if (archive_ == nullptr) {
      const std::string reason = ::zip_error_strerror(&error);
      ::zip_error_fini(&error);
      ::zip_source_free(source);
      bad("not a good .npz file: ", reason);
    }
  }

  std::int64_t entries() const { return ::zip_get_num_entries(archive_.get(), 0); }

  ::zip_stat_t entry(std::int64_t index) {
    ::zip_stat_t status;
    if (::zip_stat_index(archive_.get(), static_cast<zip_uint64_t>(index), ZIP_FL_ENC_RAW, &status) != 0)
      bad(::zip_strerror(archive_.get()));
    constexpr zip_uint64_t wanted = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    if ((status.valid & wanted) != wanted) bad("entry ", index, " lacks a name or a size");
    const std::string name = printable(status.name);
    if ((status.valid & ZIP_STAT_ENCRYPTION_METHOD) != 0 && status.encryption_method != ZIP_EM_NONE) bad('"', name, "\" is encrypted");
    if (status.comp_method != ZIP_CM_STORE && status.comp_method != ZIP_CM_DEFLATE) {
      bad('"', name, "\" is compressed by method ", status.comp_method, "; supported: stored and deflated");
    }
    // No two entries share bytes of the file: so a small file cannot claim all memory.
    compressed_ += status.comp_size;
    if (status.comp_size > source_.input.size() || compressed_ > source_.input.size()) bad("entries are larger than the file");
    const zip_uint64_t most = status.comp_method == ZIP_CM_STORE ? status.comp_size : status.comp_size * deflate_limit;
    if (status.size > most) bad('"', name, "\" claims ", status.size, " bytes from ", status.comp_size);
    return status;
  }

  /// The whole of an entry; libzip compares its checksum.
  std::vector<std::byte> read(const ::zip_stat_t& status) {
    const std::string name = printable(status.name);
    const std::unique_ptr<::zip_file_t, Discard> file(::zip_fopen_index(archive_.get(), status.index, 0));
    if (file == nullptr) bad('"', name, "\": ", ::zip_strerror(archive_.get()));
    std::vector<std::byte> bytes(static_cast<std::size_t>(status.size) + 1);  // one more shows an entry that is longer than it says
    std::size_t done = 0;
    while (done < bytes.size()) {
      const zip_int64_t count = ::zip_fread(file.get(), bytes.data() + done, bytes.size() - done);
      if (count < 0) bad('"', name, "\": ", ::zip_file_strerror(file.get()));
      if (count == 0) break;
      done += static_cast<std::size_t>(count);
    }
    if (done != status.size)
      bad('"', name, "\": expected ", status.size, " bytes, found ", done > status.size ? "more" : std::to_string(done));
    bytes.pop_back();
    return bytes;
  }

 private:
  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    if (!source_.failure.empty()) fail(source_.kind, source_.failure);
    source_.input.bad(parts...);
  }

  Source source_;
  std::unique_ptr<::zip_t, Discard> archive_;
  std::uint64_t compressed_ = 0;
};

}  // namespace

TensorMap read_npz(const Input& input) {
  if (input.size() == 0) input.bad("not a good .npz file: it is empty");  // which libzip takes for an archive of nothing
  TensorMap tensors;
  Archive archive(input);
  for (std::int64_t i = 0; i < archive.entries(); ++i) {
    const ::zip_stat_t status = archive.entry(i);
    std::string name = status.name;
    if (!name.ends_with(".npy")) input.bad('"', printable(name), "\" is not an array: expected a name that ends in .npy");
    const std::vector<std::byte> bytes = archive.read(status);
    const Tensor tensor = parse_npy(bytes, input.name() + ", " + name);
    name.resize(name.size() - 4);
    if (!tensors.emplace(name, tensor).second) input.bad("array \"", printable(name), "\" stands twice");
  }
  return tensors;
}

#else

TensorMap read_npz(const Input& input) { input.bad(".npz files cannot be read: frit was built without libzip"); }

#endif

TensorMap read_npz(const std::string& path) { return read_npz(FileInput(path, "a .npz file")); }

bool is_zip(const Input& input) {
  std::array<std::byte, 2> first{};
  if (input.size() >= first.size()) input.read(0, first);
  return first == std::array{std::byte{'P'}, std::byte{'K'}};
}

}  // namespace frit
