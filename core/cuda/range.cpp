#include "frit/core/cuda/range.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define FRIT_HAS_NVTX 1
#else
#define FRIT_HAS_NVTX 0
#endif

namespace frit::cuda {

#if FRIT_HAS_NVTX
namespace {

/// Null where no tool is attached.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("frit");
  return domain;
}

}  // namespace

bool Range::is_shown() { return domain() != nullptr; }
Range::Range(const char* name) {
  if (!is_shown()) return;
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
  attributes.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &attributes);
}
Range::~Range() {
  if (is_shown()) nvtxDomainRangePop(domain());
}
#else
bool Range::is_shown() { return false; }
Range::Range(const char*) {}
Range::~Range() = default;
#endif

}  // namespace frit::cuda
