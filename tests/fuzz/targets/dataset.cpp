#include "frit/core/data/files.h"
#include "frit/core/data/loader.h"
#include "frit/core/data/transform.h"
#include "fuzz/fuzzing.h"

namespace frit {

/// What `frit train` is given as one file: .safetensors or .npz.
FRIT_FUZZ_TARGET(dataset, fuzzing::mutate_safetensors) {
  const std::shared_ptr<const Dataset> data = read_dataset(fuzzing::path_of(bytes));
  DataLoader loader(data, {.batch_size = 3, .shuffle = true, .prefetch = 0});
  std::int64_t examples = 0;
  for (const Batch& batch : loader) examples += batch["input"].dim(0);
  FRIT_CHECK(examples == data->size());
  channel_statistics(TransformDataset(data, {.padding = {1, 0}, .crop = {2, 2}, .flip = {1}}));
}

}  // namespace frit
