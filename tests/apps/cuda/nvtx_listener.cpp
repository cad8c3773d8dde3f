// A tool for NVTX that writes the name of each range to stderr. NVTX_INJECTION64_PATH says where a program finds it.

#include <nvtx3/nvToolsExt.h>

#include <cstdio>

namespace {

nvtxDomainHandle_t create_domain(const char* name) {
  static char domain;
  std::fprintf(stderr, "domain %s\n", name);
  return reinterpret_cast<nvtxDomainHandle_t>(&domain);
}

int push_range(nvtxDomainHandle_t, const nvtxEventAttributes_t* attributes) {
  std::fprintf(stderr, "range %s\n", attributes->message.ascii);
  return 0;
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, nullptr) == 0) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(create_domain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push_range);
  return 1;
}
