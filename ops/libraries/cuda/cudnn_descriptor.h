#pragma once

// What all of cuDNN's objects are in its C form. For the files cudnn*.cpp alone.

#include <cudnn.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "frit/core/dtype.h"
#include "frit/core/error.h"
#include "frit/core/shape.h"
#include "frit/ops/libraries/cuda/counted_library.h"

/// Throws with the expression, file and line unless a cuDNN call succeeds.
#define FRIT_CUDNN_CALL(call)                                                                           \
  do {                                                                                                  \
    if (const cudnnStatus_t frit_status = (call); frit_status != CUDNN_STATUS_SUCCESS) {                \
      ::frit::cudnn::fail_call(frit_status, ::frit::concat(#call, " (", __FILE__, ":", __LINE__, ")")); \
    }                                                                                                   \
  } while (false)

namespace frit::cudnn {

inline constexpr cuda::CountedLibrary shared_library{{FRIT_CUDNN_PATH, "libcudnn.so.9"}};
FRIT_LIBRARY_FUNCTION(shared_library, cudnnBackendCreateDescriptor);
FRIT_LIBRARY_FUNCTION(shared_library, cudnnBackendDestroyDescriptor);
FRIT_LIBRARY_FUNCTION(shared_library, cudnnBackendExecute);
FRIT_LIBRARY_FUNCTION(shared_library, cudnnBackendFinalize);
FRIT_LIBRARY_FUNCTION(shared_library, cudnnBackendGetAttribute);
FRIT_LIBRARY_FUNCTION(shared_library, cudnnBackendSetAttribute);
FRIT_LIBRARY_FUNCTION(shared_library, cudnnCreate);
FRIT_LIBRARY_FUNCTION(shared_library, cudnnGetErrorString);
FRIT_LIBRARY_FUNCTION(shared_library, cudnnGetLastErrorString);
FRIT_LIBRARY_FUNCTION(shared_library, cudnnGetVersion);
FRIT_LIBRARY_FUNCTION(shared_library, cudnnSetStream);

/// A problem or a plan that cuDNN does not take.
class Refused : public Error {
 public:
  using Error::Error;
};

[[noreturn]] inline void fail_call(cudnnStatus_t status, const std::string& call) {
  char reason[512] = "";
  cudnnGetLastErrorString(reason, sizeof(reason));
  const std::string message = concat("cuDNN: ", cudnnGetErrorString(status), ": ", call, ": ", reason);
  const int category = CUDNN_STATUS_CATEGORY(status);
  if (category == CUDNN_STATUS_NOT_SUPPORTED || category == CUDNN_STATUS_BAD_PARAM) throw Refused(ErrorKind::device, message);
  fail(ErrorKind::device, message);
}

/// The name that cuDNN has for a dtype.
inline cudnnDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return CUDNN_DATA_DOUBLE;
    case DType::f32: return CUDNN_DATA_FLOAT;
    case DType::f16: return CUDNN_DATA_HALF;
    case DType::bf16: return CUDNN_DATA_BFLOAT16;
    default: fail(ErrorKind::bug, "no convolution of dtype ", name_of(dtype));
  }
}

// The name that cuDNN has for the type of an attribute.
constexpr cudnnBackendAttributeType_t type_name(std::int64_t) { return CUDNN_TYPE_INT64; }
constexpr cudnnBackendAttributeType_t type_name(float) { return CUDNN_TYPE_FLOAT; }
constexpr cudnnBackendAttributeType_t type_name(double) { return CUDNN_TYPE_DOUBLE; }
constexpr cudnnBackendAttributeType_t type_name(bool) { return CUDNN_TYPE_BOOLEAN; }
constexpr cudnnBackendAttributeType_t type_name(void*) { return CUDNN_TYPE_VOID_PTR; }
constexpr cudnnBackendAttributeType_t type_name(cudnnHandle_t) { return CUDNN_TYPE_HANDLE; }
constexpr cudnnBackendAttributeType_t type_name(cudnnDataType_t) { return CUDNN_TYPE_DATA_TYPE; }
constexpr cudnnBackendAttributeType_t type_name(cudnnConvolutionMode_t) { return CUDNN_TYPE_CONVOLUTION_MODE; }
constexpr cudnnBackendAttributeType_t type_name(cudnnPointwiseMode_t) { return CUDNN_TYPE_POINTWISE_MODE; }
constexpr cudnnBackendAttributeType_t type_name(cudnnNanPropagation_t) { return CUDNN_TYPE_NAN_PROPOGATION; }
constexpr cudnnBackendAttributeType_t type_name(cudnnBackendHeurMode_t) { return CUDNN_TYPE_HEUR_MODE; }
constexpr cudnnBackendAttributeType_t type_name(cudnnBackendKnobType_t) { return CUDNN_TYPE_KNOB_TYPE; }
constexpr cudnnBackendAttributeType_t type_name(cudnnBackendBehaviorNote_t) { return CUDNN_TYPE_BEHAVIOR_NOTE; }
constexpr cudnnBackendAttributeType_t type_name(cudnnBackendNumericalNote_t) { return CUDNN_TYPE_NUMERICAL_NOTE; }

/// What all of cuDNN's objects are: attributes are set, it is finalised, and others refer to it.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    FRIT_CUDNN_CALL(cudnnBackendCreateDescriptor(type, &made));
    owned_.reset(made);
  }

  cudnnBackendDescriptor_t raw() const { return owned_.get(); }

  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const T> values) {
    FRIT_CUDNN_CALL(cudnnBackendSetAttribute(raw(), name, type_name(T{}), std::ssize(values), values.data()));
    return *this;
  }
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, std::span<const T>(&value, 1));
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Dims& values) {
    return set(name, std::span<const std::int64_t>(values.begin(), values.end()));
  }
  Descriptor& set(cudnnBackendAttributeName_t name, std::span<const Descriptor> others) {
    std::vector<cudnnBackendDescriptor_t> referred;
    for (const Descriptor& other : others) referred.push_back(other.raw());
    FRIT_CUDNN_CALL(cudnnBackendSetAttribute(raw(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(referred), referred.data()));
    return *this;
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& other) { return set(name, std::span<const Descriptor>(&other, 1)); }
  Descriptor& finalize() {
    FRIT_CUDNN_CALL(cudnnBackendFinalize(raw()));
    return *this;
  }

  /// At most `most` values.
  template <class T>
  std::vector<T> get(cudnnBackendAttributeName_t name, std::int64_t most) const {
    std::vector<T> values(static_cast<std::size_t>(most));
    std::int64_t count = 0;
    FRIT_CUDNN_CALL(cudnnBackendGetAttribute(raw(), name, type_name(T{}), most, &count, values.data()));
    values.resize(static_cast<std::size_t>(std::min(count, most)));
    return values;
  }
  template <class T>
  T get(cudnnBackendAttributeName_t name) const {
    return get<T>(name, 1).at(0);
  }
  /// At most `most` descriptors of the type.
  std::vector<Descriptor> get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type, std::int64_t most) const {
    std::vector<Descriptor> results;
    std::vector<cudnnBackendDescriptor_t> to_fill;
    for (std::int64_t i = 0; i < most; ++i) to_fill.push_back(results.emplace_back(type).raw());
    std::int64_t count = 0;
    FRIT_CUDNN_CALL(cudnnBackendGetAttribute(raw(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, to_fill.data()));
    results.erase(results.begin() + std::min(count, most), results.end());
    return results;
  }
  std::int64_t count(cudnnBackendAttributeName_t name) const {
    std::int64_t count = 0;
    FRIT_CUDNN_CALL(cudnnBackendGetAttribute(raw(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
    return count;
  }

 private:
  struct Destroy {
    void operator()(void* descriptor) const { (void)cudnnBackendDestroyDescriptor(descriptor); }
  };
  std::unique_ptr<void, Destroy> owned_;
};

}  // namespace frit::cudnn
