#include "frit/core/io/nifti.h"

#ifdef FRIT_HAVE_NIFTI
#include <nifti2_io.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "frit/core/convert.h"
#include "frit/core/io/byte_order.h"
#include "frit/core/io/content.h"

namespace frit {
namespace {

Shape with_channels(Shape shape) {
  if (shape.rank() == 3) shape.insert(0, 1);
  return shape;
}

}  // namespace

#ifdef FRIT_HAVE_NIFTI
namespace {

struct Free {
  void operator()(nifti_image* image) const { ::nifti_image_free(image); }
};
using Image = std::unique_ptr<nifti_image, Free>;

/// Calls run.operator()<T>() for the C++ type of the file's elements; false for complex numbers, colours and 128-bit floats.
template <class Run>
bool dispatch_element(int type, const Run& run) {
  switch (type) {
    case DT_UINT8: return run.template operator()<std::uint8_t>(), true;
    case DT_INT8: return run.template operator()<std::int8_t>(), true;
    case DT_INT16: return run.template operator()<std::int16_t>(), true;
    case DT_UINT16: return run.template operator()<std::uint16_t>(), true;
    case DT_INT32: return run.template operator()<std::int32_t>(), true;
    case DT_UINT32: return run.template operator()<std::uint32_t>(), true;
    case DT_INT64: return run.template operator()<std::int64_t>(), true;
    case DT_UINT64: return run.template operator()<std::uint64_t>(), true;
    case DT_FLOAT32: return run.template operator()<float>(), true;
    case DT_FLOAT64: return run.template operator()<double>(), true;
    default: return false;
  }
}

/// What libnifti2 would refuse with lines of its own on stderr.
template <class Header>
void check(const Input& input, const Header& header) {
  if (header.dim[0] < 1 || header.dim[0] > 7) input.bad("NIfTI header: expected 1 to 7 dimensions, got ", header.dim[0]);
  for (int axis = 1; axis <= header.dim[0]; ++axis) {
    if (header.dim[axis] < 1) input.bad("NIfTI header: dimension ", axis, " must be at least 1, got ", header.dim[axis]);
  }
  if (!dispatch_element(header.datatype, []<class>() {})) {
    input.bad("NIfTI element type ", header.datatype, " (", ::nifti_datatype_string(header.datatype),
              ") not supported; supported: integers of 8 to 64 bits, FLOAT32, FLOAT64");
  }
}

/// The header through libnifti2. `convert` makes the library's image of it, and `swap` turns its bytes around.
template <class Header, class Convert, class Swap>
Image parse(const Input& input, std::span<const std::byte> bytes, const Convert& convert, const Swap& swap) {
  if (bytes.size() < sizeof(Header)) input.bad("too short for a NIfTI header: ", bytes.size(), " bytes");
  Header header, native;
  std::memcpy(&header, bytes.data(), sizeof(Header));
  native = header;
  if (static_cast<std::size_t>(native.sizeof_hdr) != sizeof(Header)) swap(&native);
  if (native.magic[1] != '+') input.bad("a NIfTI header whose voxels lie in a second file (.hdr and .img); expected both in one .nii file");
  check(input, native);
  Image image(convert(header, nullptr));
  if (image == nullptr) input.bad("libnifti2 refuses the NIfTI header");
  return image;
}

Image read_header(const Input& input, std::span<const std::byte> bytes) {
  ::nifti_set_debug_level(0);
  const auto text = reinterpret_cast<const char*>(bytes.data());
  switch (bytes.size() < sizeof(nifti_1_header) ? -1 : ::nifti_header_version(text, bytes.size())) {
    case 1: return parse<nifti_1_header>(input, bytes, ::nifti_convert_n1hdr2nim, ::nifti_swap_as_nifti1);
    case 2: return parse<nifti_2_header>(input, bytes, ::nifti_convert_n2hdr2nim, ::nifti_swap_as_nifti2);
    default: input.bad("not a NIfTI file: expected a header of 348 or 540 bytes with the magic \"n+1\" or \"n+2\"");
  }
}

/// (z, y, x), and before them the further axes down to the last that is longer than 1.
Shape shape_of(const Input& input, const nifti_image& image) {
  int rank = static_cast<int>(image.dim[0]);
  while (rank > 3 && image.dim[rank] == 1) --rank;
  Shape shape;
  for (int axis = std::max(rank, 3); axis >= 1; --axis) shape.push_back(axis <= rank ? image.dim[axis] : 1);
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(elements, size, &elements) || elements > std::int64_t{1} << 59) {
      input.bad("NIfTI header: shape ", shape, " overflows");
    }
  }
  return shape;
}

/// Moves the content to the first voxel; `position` is where it stands.
void skip_to(const Input& input, Content& content, std::uint64_t position, std::int64_t first) {
  if (first < static_cast<std::int64_t>(position)) input.bad("NIfTI header: the voxels begin at byte ", first, ", within the header");
  std::vector<std::byte> passed(4096);
  for (auto left = static_cast<std::uint64_t>(first) - position; left > 0;) {
    const std::size_t count = content.read(std::span(passed).first(static_cast<std::size_t>(std::min<std::uint64_t>(left, passed.size()))));
    if (count == 0) input.bad("NIfTI header: the voxels begin at byte ", first, ", beyond the end of the file");
    left -= count;
  }
}

/// The voxels of a file as f32, a block at a time.
template <class T>
void read_voxels(const Input& input, Content& content, const nifti_image& image, const Tensor& voxels) {
  const bool scaled = image.scl_slope != 0 && std::isfinite(image.scl_slope) && std::isfinite(image.scl_inter);
  const bool swapped = image.byteorder != ::nifti_short_order();
  std::vector<T> block(1 << 16);
  const std::span<float> to = voxels.span<float>();
  for (std::size_t done = 0; done < to.size();) {
    const std::size_t count = std::min(block.size(), to.size() - done);
    const auto bytes = std::as_writable_bytes(std::span(block).first(count));
    const std::size_t found = content.read(bytes);
    if (found != bytes.size()) {
      input.bad("expected ", to.size() * sizeof(T), " bytes of voxels for ", voxels.shape(), ", found ", done * sizeof(T) + found);
    }
    if (swapped) swap_bytes(bytes, sizeof(T));
    for (std::size_t i = 0; i < count; ++i) {
      to[done + i] =
          scaled ? static_cast<float>(static_cast<double>(block[i]) * image.scl_slope + image.scl_inter) : convert<float>(block[i]);
    }
    done += count;
  }
}

}  // namespace

NiftiVolume read_nifti(const Input& input, const ShapeCheck& check) {
  const std::unique_ptr<Content> content = open_content(input);
  std::vector<std::byte> bytes(sizeof(nifti_1_header));
  bytes.resize(content->read(bytes));
  if (bytes.size() == sizeof(nifti_1_header) && ::nifti_header_version(reinterpret_cast<const char*>(bytes.data()), bytes.size()) == 2) {
    bytes.resize(sizeof(nifti_2_header));
    bytes.resize(sizeof(nifti_1_header) + content->read(std::span(bytes).subspan(sizeof(nifti_1_header))));
  }
  const Image image = read_header(input, bytes);
  const Shape shape = shape_of(input, *image);
  const auto element_size = static_cast<std::uint64_t>(image->nbyper);
  if (static_cast<std::uint64_t>(element_count(shape)) > content->limit() / element_size) {
    input.bad("header declares ", ::nifti_datatype_string(image->datatype), ' ', shape, ", more than a file of ", input.size(),
              " bytes can hold: truncated?");
  }
  if (check) check(with_channels(shape));
  skip_to(input, *content, bytes.size(), image->iname_offset);
  NiftiVolume volume{Tensor::empty(shape), {std::fabs(image->dz), std::fabs(image->dy), std::fabs(image->dx)}};
  dispatch_element(image->datatype, [&]<class T>() { read_voxels<T>(input, *content, *image, volume.voxels); });
  std::byte after;
  content->read({&after, 1});  // whereupon gzip's checksum is compared
  return volume;
}

#else

NiftiVolume read_nifti(const Input& input, const ShapeCheck&) {
  input.bad("NIfTI volumes cannot be read: frit was built without libnifti2");
}

#endif

Tensor NiftiVolume::channels() const { return voxels.reshape(with_channels(voxels.shape())); }

NiftiVolume read_nifti(const std::string& path, const ShapeCheck& check) {
  return read_nifti(FileInput(path, "a .nii or .nii.gz file"), check);
}

}  // namespace frit
