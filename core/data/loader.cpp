#include "frit/core/data/loader.h"

#include <algorithm>
#include <numeric>
#include <system_error>
#include <utility>

#include "frit/core/cuda/device.h"
#include "frit/core/cuda/pinned.h"
#include "frit/core/random.h"
#include "frit/core/text.h"

namespace frit {

const std::string& Batch::name(std::int64_t field) const {
  require(field >= 0 && field < fields(), "Batch: no field ", field, ", there are ", fields());
  return (*described_)[static_cast<std::size_t>(field)].name;
}

const Tensor& Batch::operator[](std::int64_t field) const {
  require(field >= 0 && field < fields(), "Batch: no field ", field, ", there are ", fields());
  return tensors_[static_cast<std::size_t>(field)];
}

const Tensor& Batch::operator[](std::string_view wanted) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if ((*described_)[i].name == wanted) return tensors_[i];
    names.push_back((*described_)[i].name);
  }
  fail(ErrorKind::argument, "Batch: no field \"", printable(wanted), '"', did_you_mean(wanted, names));
}

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  require(dataset_ != nullptr, "DataLoader: the dataset is null");
  require(options.batch_size >= 1, "DataLoader: batch_size must be at least 1, got ", options.batch_size);
  require(options.prefetch >= 0, "DataLoader: prefetch must not be negative, got ", options.prefetch);
  require(options.ranks >= 1 && options.rank >= 0 && options.rank < options.ranks, "DataLoader: rank ", options.rank, " of ",
          options.ranks);
  require(options.batch_size % options.ranks == 0, "DataLoader: batch_size ", options.batch_size, " does not divide by ", options.ranks,
          " ranks");
}

DataLoader::~DataLoader() { stop(); }

std::int64_t DataLoader::batches() const {
  const std::int64_t full = dataset_->size() / options_.batch_size;
  return full + (!options_.drop_last && part_of(dataset_->size() % options_.batch_size) > 0);
}

void DataLoader::set_epoch(std::int64_t epoch, std::int64_t skipped) {
  require(epoch >= 0 && skipped >= 0, "DataLoader: epoch and skipped batches must not be negative, got ", epoch, " and ", skipped);
  require(skipped <= batches(), "DataLoader: cannot skip ", skipped, " of ", batches(), " batches");
  epoch_ = epoch;
  skipped_ = skipped;
}

DataLoader::Iterator DataLoader::begin() {
  stop();
  start(epoch_++, std::exchange(skipped_, 0));
  return Iterator(this);
}

void DataLoader::start(std::int64_t epoch, std::int64_t first) {
  running_ = {options_.seed, static_cast<std::uint64_t>(epoch)};
  if (options_.shuffle) {
    order_ = permutation(dataset_->size(), options_.seed, static_cast<std::uint64_t>(epoch));
  } else {
    order_.resize(static_cast<std::size_t>(dataset_->size()));
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
  }
  if (slots_.empty()) make_buffers();
  for (const Upload& upload : uploads_) upload.released.record(cuda::compute_stream(options_.device.index));
  taken_ = ready_ = first;
  stopping_ = false;
  error_ = nullptr;
  if (options_.prefetch == 0) return;
  try {
    reader_ = std::thread([this] { read_ahead(); });
  } catch (const std::system_error&) {
    // The system gives no more threads: the loop reads its batches itself.
  }
}

/// One slot for the loop's batch, and one for each that is read ahead.
void DataLoader::make_buffers() {
  const auto count = static_cast<std::size_t>(options_.prefetch + 1);
  const Device device = options_.device;
  const bool on_device = device.kind == DeviceKind::cuda;
  std::vector<std::vector<Tensor>> buffers(count);
  std::vector<Upload> uploads;
  for (std::vector<Tensor>& tensors : buffers) {
    if (on_device) uploads.push_back({{}, cuda::Event(device.index), cuda::Event(device.index)});
    for (const Dataset::Field& field : dataset_->fields()) {
      Shape shape = field.shape;
      shape.insert(0, part_of(dataset_->size()));
      tensors.push_back(on_device ? cuda::pinned_tensor(shape, field.dtype) : Tensor::empty(shape, field.dtype));
      if (on_device) uploads.back().buffers.push_back(Tensor::empty(shape, field.dtype, device));
    }
  }
  if (on_device) copies_.emplace(device.index);
  uploads_ = std::move(uploads);
  buffers_ = std::move(buffers);
  slots_.resize(count);
}

void DataLoader::stop() {
  if (!reader_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  reader_.join();
}

/// Reads the rank's part of the batch into its slot.
void DataLoader::read(std::int64_t number) {
  const auto slot = static_cast<std::size_t>(number) % slots_.size();
  const std::int64_t whole = number * options_.batch_size, count = part_of(dataset_->size() - whole), begin = whole + options_.rank * count;
  Batch& batch = slots_[slot];
  batch.described_ = &dataset_->fields();
  batch.size_ = count;
  batch.tensors_.clear();
  if (!uploads_.empty()) uploads_[slot].arrived.wait();
  for (const Tensor& buffer : buffers_[slot]) batch.tensors_.push_back(buffer.slice(0, 0, count));
  dataset_->read(std::span(order_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)), batch.tensors_, running_);
  if (!uploads_.empty()) upload(slot);
}

/// Sends the batch that was read into a slot on its way to the device.
void DataLoader::upload(std::size_t slot) {
  const Upload& upload = uploads_[slot];
  cuda::wait(copies_->get(), upload.released);
  for (std::size_t i = 0; i < upload.buffers.size(); ++i) {
    Tensor& tensor = slots_[slot].tensors_[i];
    const Tensor there = upload.buffers[i].slice(0, 0, slots_[slot].size_);
    cuda::copy_async(there, tensor, copies_->get());
    tensor = there;
  }
  upload.arrived.record(copies_->get());
}

/// The reader's thread.
void DataLoader::read_ahead() {
  try {
    for (std::int64_t number = ready_; number < batches(); ++number) {
      {
        // The loop still holds batch taken_ - 1.
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || number - taken_ < options_.prefetch; });
        if (stopping_) return;
      }
      read(number);
      const std::lock_guard lock(mutex_);
      ready_ = number + 1;
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

/// The batch after the one that the loop has; null at the end of the epoch.
const Batch* DataLoader::next() {
  if (taken_ == batches()) return nullptr;
  const std::int64_t number = taken_;
  const auto slot_of = [this](std::int64_t batch) { return static_cast<std::size_t>(batch) % slots_.size(); };
  if (!uploads_.empty() && number > 0) uploads_[slot_of(number - 1)].released.record(cuda::compute_stream(options_.device.index));
  if (!reader_.joinable()) {
    ++taken_;
    read(number);
  } else {
    // Taking this batch gives up the one before.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready_ > number || error_ != nullptr; });
    if (ready_ <= number) std::rethrow_exception(error_);
    ++taken_;
    changed_.notify_all();
  }
  if (!uploads_.empty()) cuda::wait(cuda::compute_stream(options_.device.index), uploads_[slot_of(number)].arrived);
  return &slots_[slot_of(number)];
}

}  // namespace frit
