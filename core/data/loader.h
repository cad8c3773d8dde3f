#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "frit/core/cuda/stream.h"
#include "frit/core/data/dataset.h"

namespace frit {

/// A few examples: one tensor per field, the first axis counting the examples.
class Batch {
 public:
  std::int64_t size() const { return size_; }  ///< examples
  std::int64_t fields() const { return static_cast<std::int64_t>(tensors_.size()); }
  const std::string& name(std::int64_t field) const;
  /// By position or by name; throws ErrorKind::argument if there is no such field.
  const Tensor& operator[](std::int64_t field) const;
  const Tensor& operator[](std::string_view name) const;

 private:
  friend class DataLoader;

  const std::vector<Dataset::Field>* described_ = nullptr;
  std::int64_t size_ = 0;
  std::vector<Tensor> tensors_;
};

struct DataLoaderOptions {
  std::int64_t batch_size = 32;
  bool shuffle = false;
  std::uint64_t seed = 0;
  bool drop_last = false;     ///< leave out a last batch that is not full
  std::int64_t prefetch = 2;  ///< batches read ahead on a thread of the loader's; 0: none, and no thread
  Device device = {};         ///< where the batches are given; they travel to a GPU while it works on others
  int rank = 0, ranks = 1;    ///< of processes that share the batches, each by a loader of its own
};

/// Runs over a dataset in batches. Each loop is the next epoch:
///   for (const Batch& batch : loader) step(batch["input"], batch["target"]);
/// With `shuffle` the order is permutation(size, seed, epoch), whatever the prefetch; a dataset that crops or flips at random draws from
/// seed and epoch too. A batch is valid until the loop takes the next one:
/// its memory is used again, so that epochs after the first allocate nothing; work that a device was given until then still sees it. What
/// the dataset throws is rethrown by the loop at that batch. One loop at a time; a new one ends the one before.
/// Of several ranks each is given its part of every batch, as many examples as the others; the last batch is what is left, less the fewer
/// than `ranks` examples that do not divide, which are left out in this epoch. Random decisions do not depend on the ranks.
class DataLoader {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    using pointer = const Batch*;
    using reference = const Batch&;

    const Batch& operator*() const { return *batch_; }
    const Batch* operator->() const { return batch_; }
    Iterator& operator++() {
      batch_ = loader_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& iterator, std::default_sentinel_t) { return iterator.batch_ == nullptr; }

   private:
    friend class DataLoader;
    explicit Iterator(DataLoader* loader) : loader_(loader), batch_(loader->next()) {}

    DataLoader* loader_;
    const Batch* batch_;
  };

  /// Throws ErrorKind::argument for a batch size below 1 or that `ranks` does not divide, a negative prefetch, or a rank that is none.
  explicit DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options = {});
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  const Dataset& dataset() const { return *dataset_; }
  std::int64_t batches() const;                  ///< of a whole epoch, the same for every rank
  std::int64_t epoch() const { return epoch_; }  ///< the number of the next loop's epoch, from 0
  /// The next loop runs over this epoch, without its first `skipped` batches: how a training resumes.
  void set_epoch(std::int64_t epoch, std::int64_t skipped = 0);

 private:
  std::int64_t part_of(std::int64_t examples) const { return std::min(options_.batch_size, examples) / options_.ranks; }
  const Batch* next();
  void start(std::int64_t epoch, std::int64_t first);
  void stop();
  void make_buffers();
  void read(std::int64_t number);
  void upload(std::size_t slot);
  void read_ahead();

  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::int64_t epoch_ = 0;
  std::int64_t skipped_ = 0;

  // The running epoch. Batch n lies in slot n modulo their number, which is the reader's until ready_ > n, and the loop's from then until
  // taken_ > n + 1.
  Epoch running_;
  std::vector<std::int64_t> order_;
  std::vector<std::vector<Tensor>> buffers_;  ///< per slot and field, of a full batch's size
  std::vector<Batch> slots_;
  /// The second half of a slot whose batches go to a device.
  struct Upload {
    std::vector<Tensor> buffers;  ///< on the device
    cuda::Event arrived;          ///< of the batch: the host's buffers may be written again
    cuda::Event released;         ///< by the loop's work: the device's buffers may be written again
  };
  std::vector<Upload> uploads_;         ///< by slot; empty if batches stay on the CPU
  std::optional<cuda::Stream> copies_;  ///< goes before the buffers, and waits for the copies
  std::int64_t taken_ = 0;              ///< batches that the loop has been given

  std::thread reader_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t ready_ = 0;  ///< batches that have been read
  bool stopping_ = false;
  std::exception_ptr error_;
};

}  // namespace frit
