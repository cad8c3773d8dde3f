#include "frit/core/communication/communicator.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

#include "frit/core/communication/mpi/module.h"
#include "frit/core/cuda/device.h"
#include "frit/core/dtype.h"
#include "frit/core/error.h"
#include "frit/core/text.h"
#include "frit/core/thread_pool.h"

namespace frit {
namespace {

constexpr std::size_t piece_alignment = mpi::unit_bytes;

std::mutex registry_mutex;
std::map<std::int64_t, Communicator*> registry;
std::int64_t last_id = Communicator::no_id;

std::int64_t enter(Communicator* communicator) {
  const std::lock_guard lock(registry_mutex);
  registry[++last_id] = communicator;
  return last_id;
}

/// Goes through the places at which a process's parts of tensors lie, one after the other, in a piece: body(i, the part's first element,
/// place, bytes). With a dtype, of the tensors that have it.
template <class Body>
void each_part(std::span<const Tensor> wholes, std::optional<DType> dtype, int rank, int processes, std::byte* piece, const Body& body) {
  for (std::size_t i = 0; i < wholes.size(); ++i) {
    if (dtype && wholes[i].dtype() != *dtype) continue;
    const Parts parts(wholes[i].elements(), processes);
    const std::size_t bytes = static_cast<std::size_t>(parts.size(rank)) * size_of(wholes[i].dtype());
    if (bytes > 0) body(i, parts.begin(rank), piece, bytes);
    piece += bytes;
  }
}

/// piece[i] becomes the mean of pieces[r * stride + i] over the processes r, added up in their order.
template <class T>
void mean_of_pieces(T* piece, const T* pieces, std::int64_t elements, std::int64_t stride, int processes) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Wide share = Wide{1} / static_cast<Wide>(processes);
  constexpr std::int64_t block = 1024;
  parallel_for(elements, 16 * block, [&](std::int64_t begin, std::int64_t end) {
    Wide sums[block];
    for (std::int64_t first = begin; first < end; first += block) {
      const std::int64_t count = std::min(block, end - first);
      for (std::int64_t i = 0; i < count; ++i) sums[i] = static_cast<Wide>(pieces[first + i]);
      for (int r = 1; r < processes; ++r) {
        const T* const other = pieces + r * stride + first;
        for (std::int64_t i = 0; i < count; ++i) sums[i] += static_cast<Wide>(other[i]);
      }
      for (std::int64_t i = 0; i < count; ++i) piece[first + i] = static_cast<T>(sums[i] * share);
    }
  });
}

/// The only process's part of a tensor is all of it.
void copy_each(std::span<const Tensor> tensors, std::span<const Tensor> results) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& result = results[i];
    if (result.raw() != tensors[i].raw())
      copy(result, Tensor::over(tensors[i].raw(), result.shape(), result.dtype(), result.device(), nullptr));
  }
}

class NoTransport final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string description() const override { return "alone"; }
  void all_gather(const void* own, void* all, std::size_t bytes) override { std::memcpy(all, own, bytes); }
  void all_to_all(const void* sent, void* received, std::size_t bytes) override { std::memcpy(received, sent, bytes); }
  void broadcast(void*, std::size_t, int) override {}
  [[noreturn]] void abort() override { std::abort(); }
};

}  // namespace

std::shared_ptr<Communicator> Communicator::from_environment(Device device) {
  const std::optional<Launch> launch = Launch::from_environment();
  if (!launch) return nullptr;
  // GPUs need MPI only to meet.
  const bool over_mpi = launch->mpi && (device.kind == DeviceKind::cpu || launch->address.empty());
  require(over_mpi || device.kind == DeviceKind::cuda, "gradients of CPUs are reduced by MPI: start the ", launch->size,
          " processes with mpirun, not as torchrun does");
  std::unique_ptr<Transport> transport = over_mpi ? mpi_transport() : tcp_transport(*launch);
  require(transport->rank() == launch->rank && transport->size() == launch->size, transport->description(), " says that this is process ",
          transport->rank(), " of ", transport->size(), ", its launcher that it is process ", launch->rank, " of ", launch->size,
          ": expected the mpirun of the MPI that libfrit-mpi.so was built with, or an srun that speaks to it (--mpi=pmix for Open MPI, "
          "--mpi=pmi2 for MPICH)");
  return std::make_shared<Communicator>(std::move(transport), device);
}

std::shared_ptr<Communicator> Communicator::alone(Device device) {
  return std::make_shared<Communicator>(std::make_unique<NoTransport>(), device);
}

int Communicator::machines() const {
  const std::set<std::string> hosts(transport_->hosts().begin(), transport_->hosts().end());
  return std::max(1, static_cast<int>(hosts.size()));  // nobody asks for the name of a process's own
}

Device Communicator::local_device(Device device) {
  const std::optional<Launch> launch = Launch::from_environment();
  if (!launch || device.kind == DeviceKind::cpu) return device;
  const int devices = cuda::device_count();
  if (devices == 1) return device;  // each process of a machine may see its own alone
  require(launch->local_rank < devices, "process ", launch->rank, " is number ", launch->local_rank, " of its machine, which has ", devices,
          " GPUs: expected a GPU for each process");
  device.index = launch->local_rank;
  return device;
}

Communicator::Communicator(std::unique_ptr<Transport> transport, Device device)
    : transport_(std::move(transport)), device_(device), id_(enter(this)) {
  if (size() == 1) return;
  transport_->learn_hosts();
  if (device.kind == DeviceKind::cuda) nccl_ = std::make_unique<cuda::NcclGroup>(*transport_, device.index);
}

Communicator::~Communicator() {
  const std::lock_guard lock(registry_mutex);
  registry.erase(id_);
}

Communicator& Communicator::of(std::int64_t id) {
  const std::lock_guard lock(registry_mutex);
  const auto found = registry.find(id);
  require(found != registry.end(), "communicator ", id, " is not there any more: whoever made it must keep it as long as graphs use it");
  return *found->second;
}

std::string Communicator::description() const {
  return concat(nccl_ ? nccl_->version() + ", " : "", transport_->description(), ", ", size(), " processes");
}

/// Twice the bytes travel, whatever the number of processes.
void Communicator::mean(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream) {
  FRIT_CHECK(tensors.size() == results.size());
  if (size() == 1) return copy_each(tensors, results);
  if (nccl_) return nccl_->mean(tensors, results, stream);
  std::vector<Tensor> own;
  for (const Tensor& result : results) {
    const Parts dealt = parts(result.elements());
    own.push_back(Tensor::over(address_of(result, dealt.begin(rank())), {dealt.size(rank())}, result.dtype(), device_, nullptr));
  }
  reduce_scatter(tensors, own);
  all_gather(own, results);
}

void Communicator::reduce_scatter(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream) {
  FRIT_CHECK(tensors.size() == results.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    FRIT_CHECK(results[i].elements() == parts(tensors[i].elements()).size(rank()) && results[i].dtype() == tensors[i].dtype());
  }
  if (size() == 1) return copy_each(tensors, results);
  if (nccl_) return nccl_->reduce_scatter(tensors, results, stream);
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) reduce_scatter_of(dtype, tensors, results);
}

/// The bytes of a piece that holds any process's parts; there is room for one of each.
std::size_t Communicator::buffers_for(std::span<const Tensor> wholes, std::optional<DType> dtype) {
  std::size_t piece = 0;
  for (const Tensor& whole : wholes) {  // the last process's parts are the largest
    if (!dtype || whole.dtype() == *dtype)
      piece += static_cast<std::size_t>(parts(whole.elements()).size(size() - 1)) * size_of(whole.dtype());
  }
  piece = (piece + piece_alignment - 1) / piece_alignment * piece_alignment;
  const std::size_t bytes = piece * static_cast<std::size_t>(size());
  if (sent_.size() < bytes) sent_.resize(bytes), received_.resize(bytes);
  return piece;
}

void Communicator::reduce_scatter_of(DType dtype, std::span<const Tensor> tensors, std::span<const Tensor> results) {
  const std::size_t piece = buffers_for(tensors, dtype);
  if (piece == 0) return;
  for (int r = 0; r < size(); ++r) {
    each_part(tensors, dtype, r, size(), sent_.data() + piece * static_cast<std::size_t>(r),
              [&](std::size_t i, std::int64_t first, std::byte* place, std::size_t bytes) {
                std::copy_n(address_of(tensors[i], first), bytes, place);
              });
  }
  transport_->all_to_all(sent_.data(), received_.data(), piece);
  dispatch_all(dtype, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) {
      auto* const pieces = reinterpret_cast<T*>(received_.data());
      const auto elements = static_cast<std::int64_t>(piece / sizeof(T));
      mean_of_pieces(pieces, pieces, elements, elements, size());
    }
  });
  each_part(tensors, dtype, rank(), size(), received_.data(), [&](std::size_t i, std::int64_t, const std::byte* place, std::size_t bytes) {
    std::copy_n(place, bytes, address_of(results[i], 0));
  });
}

void Communicator::all_gather(std::span<const Tensor> tensors, std::span<const Tensor> results, CUstream_st* stream) {
  FRIT_CHECK(tensors.size() == results.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    FRIT_CHECK(tensors[i].elements() == parts(results[i].elements()).size(rank()) && results[i].dtype() == tensors[i].dtype());
  }
  if (size() == 1) return copy_each(tensors, results);
  if (nccl_) return nccl_->all_gather(tensors, results, stream);
  const std::size_t piece = buffers_for(results, {});
  if (piece == 0) return;
  each_part(results, {}, rank(), size(), sent_.data(), [&](std::size_t i, std::int64_t, std::byte* place, std::size_t bytes) {
    std::copy_n(address_of(tensors[i], 0), bytes, place);
  });
  transport_->all_gather(sent_.data(), received_.data(), piece);
  for (int r = 0; r < size(); ++r) {
    each_part(results, {}, r, size(), received_.data() + piece * static_cast<std::size_t>(r),
              [&](std::size_t i, std::int64_t first, const std::byte* place, std::size_t bytes) {
                std::copy_n(place, bytes, address_of(results[i], first));
              });
  }
}

void Communicator::broadcast(const Tensor& tensor, int root) {
  FRIT_CHECK(tensor.is_contiguous(tensor.layout()));
  if (tensor.elements() == 0 || size() == 1) return;
  if (tensor.device().kind == DeviceKind::cuda) {
    FRIT_CHECK(nccl_ != nullptr);
    return nccl_->broadcast(tensor, root);
  }
  transport_->broadcast(tensor.raw(), static_cast<std::size_t>(tensor.bytes()), root);
}

std::vector<std::string> Communicator::all_gather(const std::string& own) {
  const std::size_t count = static_cast<std::size_t>(size());
  std::vector<std::uint64_t> lengths(count);
  const std::uint64_t length = own.size();
  transport_->all_gather(&length, lengths.data(), sizeof length);
  const std::size_t most = *std::max_element(lengths.begin(), lengths.end());
  std::string padded = own, all(most * count, '\0');
  padded.resize(most);
  if (most > 0) transport_->all_gather(padded.data(), all.data(), most);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < count; ++r) texts.push_back(all.substr(r * most, lengths[r]));
  return texts;
}

std::vector<double> Communicator::sum(const std::vector<double>& own) {
  std::vector<double> all(own.size() * static_cast<std::size_t>(size())), sums(own.size(), 0);
  if (own.empty()) return sums;
  transport_->all_gather(own.data(), all.data(), own.size() * sizeof(double));
  for (std::size_t i = 0; i < all.size(); ++i) sums[i % own.size()] += all[i];
  return sums;
}

void Communicator::require_same(const std::string& what, const std::string& own) {
  const std::vector<std::string> texts = all_gather(own);
  for (std::size_t r = 1; r < texts.size(); ++r) {
    require(texts[r] == texts[0], what, ": process ", r, " has ", printable(texts[r]), ", process 0 has ", printable(texts[0]));
  }
}

}  // namespace frit
