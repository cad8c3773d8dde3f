#include "frit/core/cuda/range.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define FRIT_HAS_NVTX 1
#else
#define FRIT_HAS_NVTX 0
#endif

namespace frit::cuda {

#if FRIT_HAS_NVTX
Range::Range(const char* name) { nvtxRangePushA(name); }
Range::~Range() { nvtxRangePop(); }
#else
Range::Range(const char*) {}
Range::~Range() = default;
#endif

}  // namespace frit::cuda
