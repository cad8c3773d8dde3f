// A build without CUDA: this file stands in for the others of this folder.

#include "frit/core/cuda/captured_work.h"
#include "frit/core/cuda/device.h"
#include "frit/core/cuda/nccl.h"
#include "frit/core/cuda/noise.h"
#include "frit/core/cuda/pinned.h"
#include "frit/core/cuda/range.h"
#include "frit/core/cuda/stream.h"
#include "frit/core/cuda/timer.h"

namespace frit::cuda {
namespace {

[[noreturn]] void no_cuda() { fail(ErrorKind::device, "this build has no CUDA devices"); }

}  // namespace

int device_count() { return 0; }
std::string description(int) { no_cuda(); }
std::string model(int) { no_cuda(); }
int capability(int) { no_cuda(); }
std::string version() { return {}; }
std::size_t free_memory(int) { no_cuda(); }
Allocator& allocator(int) { no_cuda(); }
Tensor pinned_tensor(const Shape&, DType) { no_cuda(); }
void copy_async(const Tensor&, const Tensor&, CUstream_st*) { no_cuda(); }
Event::Event(int, bool) : index_(0) { no_cuda(); }
void Event::record(CUstream_st*) const { no_cuda(); }
void Event::wait() const { no_cuda(); }
Stream::Stream(int) { no_cuda(); }
void wait(CUstream_st*, const Event&) { no_cuda(); }
void copy(const Tensor&, const Tensor&) { no_cuda(); }
CUstream_st* compute_stream(int) { no_cuda(); }
void synchronize(int) { no_cuda(); }
void fill_with_noise(const Tensor&) { no_cuda(); }
void CapturedWork::record(int, const std::vector<std::vector<int>>&, const std::function<void(int)>&) { no_cuda(); }
void CapturedWork::launch() const { no_cuda(); }
struct NcclGroup::Handle {};
NcclGroup::NcclGroup(Transport&, int, double) { no_cuda(); }
NcclGroup::~NcclGroup() = default;
void NcclGroup::mean(std::span<const Tensor>, std::span<const Tensor>, CUstream_st*) { no_cuda(); }
void NcclGroup::reduce_scatter(std::span<const Tensor>, std::span<const Tensor>, CUstream_st*) { no_cuda(); }
void NcclGroup::all_gather(std::span<const Tensor>, std::span<const Tensor>, CUstream_st*) { no_cuda(); }
void NcclGroup::broadcast(const Tensor&, int) { no_cuda(); }
std::string NcclGroup::version() const { no_cuda(); }
EventTimer::EventTimer(int) { no_cuda(); }
void EventTimer::time(const std::function<void()>&) { no_cuda(); }
std::vector<double> EventTimer::take() { no_cuda(); }
EventMarks::EventMarks(int) { no_cuda(); }
void EventMarks::mark() { no_cuda(); }
std::vector<double> EventMarks::take() { no_cuda(); }
bool Range::is_shown() { return false; }
Range::Range(const char*) {}
Range::~Range() = default;

}  // namespace frit::cuda
