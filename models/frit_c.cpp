#include "frit/frit_c.h"

#include <memory>
#include <mutex>
#include <new>

#include "frit/core/text.h"
#include "frit/core/thread_pool.h"
#include "frit/models/predictor.h"

using namespace frit;

struct frit_model {
  Predictor predict;
  std::mutex mutex = {};
};

static_assert(static_cast<int>(FRIT_MAX_RANK) == Dims::max_rank);

namespace {

thread_local std::string last_error;

frit_status failed(frit_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {  // there is no memory for the message
    last_error.clear();
  }
  return status;
}

frit_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::argument: return FRIT_BAD_ARGUMENT;
    case ErrorKind::format: return FRIT_BAD_FILE;
    case ErrorKind::file_system: return FRIT_FILE_SYSTEM;
    case ErrorKind::device: return FRIT_NO_DEVICE;
    case ErrorKind::out_of_memory: return FRIT_OUT_OF_MEMORY;
    case ErrorKind::diverged:
    case ErrorKind::interrupted:
    case ErrorKind::bug: break;
  }
  return FRIT_BUG;
}

/// No exception passes.
template <class Body>
frit_status guarded(const Body& body) noexcept {
  try {
    body();
    return FRIT_OK;
  } catch (const Error& error) {
    return failed(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(FRIT_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(FRIT_BUG, error.what());
  } catch (...) {
    return failed(FRIT_BUG, "an exception of an unknown type");
  }
}

Shape shape_of(const std::int64_t* sizes, std::int32_t rank) {
  require(sizes != nullptr, "the sizes of the input are a null pointer");
  require(rank >= 0 && rank <= FRIT_MAX_RANK, "the rank of the input: expected 0 to ", static_cast<int>(FRIT_MAX_RANK), ", got ", rank);
  const Shape shape(std::span(sizes, static_cast<std::size_t>(rank)));
  for (const std::int64_t size : shape) require(size >= 0, "the input has a negative size: ", shape);
  return shape;
}

void set_type(frit_type& type, DType dtype, const Shape& shape) {
  type = {};
  type.dtype = dtype == DType::f64 ? FRIT_F64 : FRIT_F32;
  type.rank = shape.rank();
  std::copy(shape.begin(), shape.end(), type.sizes);
}

std::unique_ptr<frit_model> load(const char* path, std::string_view device, std::string_view precision) {
  const bool known = precision == "f32" || precision == "f64" || precision == "f16" || precision == "bf16";
  require(known, "precision: expected f32, f64, f16 or bf16, got \"", printable(precision), '"');
  auto model = std::unique_ptr<frit_model>(new frit_model{Predictor(path, {Device::parse(device), parse_dtype(precision)})});
  const Model& of = model->predict.model();
  std::string others;
  for (const Model::SideInput& side : of.side_inputs) others += concat(others.empty() ? "\"" : ", \"", printable(side.name), '"');
  require(others.empty(), of.name, " reads ", others, " besides its image: the C interface is for models that read an image alone");
  return model;
}

}  // namespace

const char* frit_version() { return FRIT_VERSION; }

const char* frit_last_error() { return last_error.c_str(); }

frit_status frit_set_threads(std::int32_t count) {
  return guarded([&] { set_thread_count(count); });
}

frit_status frit_model_load(const char* path, const char* device, const char* precision, frit_model** model) {
  return guarded([&] {
    require(path != nullptr && model != nullptr, "frit_model_load: a null pointer");
    *model = nullptr;
    *model = load(path, device == nullptr ? "auto" : device, precision == nullptr ? "f32" : precision).release();
  });
}

void frit_model_free(frit_model* model) { delete model; }

const char* frit_model_name(const frit_model* model) { return model == nullptr ? "" : model->predict.model().name.c_str(); }

const char* frit_model_config(const frit_model* model) { return model == nullptr ? "" : model->predict.model().config.c_str(); }

frit_status frit_model_input(const frit_model* model, frit_type* input) {
  return guarded([&] {
    require(model != nullptr && input != nullptr, "frit_model_input: a null pointer");
    const Model& of = model->predict.model();
    Shape shape = {-1, of.in_channels};
    for (int axis = 0; axis < of.image_rank; ++axis) shape.push_back(of.image_size.empty() ? -1 : of.image_size[axis]);
    set_type(*input, model->predict.dtype(), shape);
  });
}

frit_status frit_model_output(const frit_model* model, const std::int64_t* sizes, std::int32_t rank, frit_type* output) {
  return guarded([&] {
    require(model != nullptr && output != nullptr, "frit_model_output: a null pointer");
    auto& asked = const_cast<frit_model&>(*model);  // what is remembered does not change the model
    const std::scoped_lock lock(asked.mutex);
    set_type(*output, asked.predict.dtype(), asked.predict.output_shape(shape_of(sizes, rank)));
  });
}

frit_status frit_model_run(frit_model* model, const void* input, const std::int64_t* sizes, std::int32_t rank, void* output,
                           std::size_t output_bytes) {
  return guarded([&] {
    require(model != nullptr, "frit_model_run: a null pointer");
    const Shape shape = shape_of(sizes, rank);
    const std::scoped_lock lock(model->mutex);
    const Shape output_shape = model->predict.output_shape(shape);
    const DType dtype = model->predict.dtype();
    const std::size_t expected = static_cast<std::size_t>(element_count(output_shape)) * size_of(dtype);
    require(output_bytes == expected, "the output: expected room for ", expected, " bytes, got ", output_bytes, " (", dtype, ' ',
            output_shape, ')');
    if (expected == 0) return;
    require(input != nullptr && output != nullptr, "frit_model_run: a null pointer");
    const Tensor given = Tensor::over(const_cast<void*>(input), shape, dtype, Device::cpu(), nullptr);  // only read
    copy(Tensor::over(output, output_shape, dtype, Device::cpu(), nullptr), model->predict(given));
  });
}
