// What is said of a file whose format this build cannot read, and that nothing is said where it can.

#include "core/io/missing_libraries.h"

#include "core/io/file_testing.h"
#include "frit/core/data/files.h"
#include "frit/core/io/file.h"
#include "frit/core/io/jpeg.h"
#include "frit/core/io/nifti.h"
#include "frit/core/io/npz.h"
#include "frit/core/io/png.h"

namespace frit {
namespace {

/// Of a file that cannot be read: the message names the library where it is missing, and there alone.
template <class Read>
void expect_named(const std::string& library, const std::string& what, const Read& read) {
  const TemporaryFolder folder;
  write_text(folder / "file", std::string(400, 'x'));
  try {
    read(folder / "file");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    const std::string message = folder / "file: " + what + " cannot be read: frit was built without " + library;
    EXPECT_EQ(error.kind(), ErrorKind::format);
    EXPECT_EQ(error.what() == message, is_missing(library)) << error.what() << "\n" << message;
  }
}

TEST(MissingLibraries, AreNamedWhereTheirFilesAreRefused) {
  expect_named("libpng", "PNG images", [](const std::string& path) { read_png(path); });
  expect_named("libpng", "PNG images", [](const std::string& path) { read_image_header(path); });
  expect_named("libjpeg", "JPEG images", [](const std::string& path) { read_jpeg(path); });
  expect_named("libzip", ".npz files", [](const std::string& path) { read_npz(path); });
  expect_named("libnifti2", "NIfTI volumes", [](const std::string& path) { read_nifti(path); });
}

TEST(MissingLibraries, AreNamedWhereAnImageIsNotWritten) {
  const TemporaryFolder folder;
  const auto write = [&] { write_png(folder / "x.png", Tensor::zeros({1, 2, 2})); };
  if (is_missing("libpng"))
    expect_error(ErrorKind::argument, "x.png: PNG images cannot be written: frit was built without libpng", write);
  else
    EXPECT_NO_THROW(write());
}

TEST(MissingLibraries, AreNamedWhereExamplesAreRead) {
  const TemporaryFolder folder;
  const auto message_of = [&](const std::string& name, const std::string& content) -> std::string {
    write_text(folder / name, content);
    try {
      read_examples(folder / name);
      return "no error";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(message_of("a", "\x89PNG and so on").find("without libpng") != std::string::npos, is_missing("libpng"));
  EXPECT_EQ(message_of("a.nii", "text").find("without libnifti2") != std::string::npos, is_missing("libnifti2"));
}

}  // namespace
}  // namespace frit
