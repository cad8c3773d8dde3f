#ifndef FRIT_C_H
#define FRIT_C_H

/// @file
/// Inference for programs in C, and for languages that call C: opaque handles, status codes, no exceptions.
///
/// Every function may be called from any thread. Calls on one model wait for each other; different models run side by side.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A model with the parameters of a checkpoint, ready to run on a device.
typedef struct frit_model frit_model;

/// The numbers are the exit codes of the program `frit`.
typedef enum frit_status {
  FRIT_OK = 0,
  FRIT_BUG = 1,           ///< frit's own fault
  FRIT_BAD_ARGUMENT = 2,  ///< the caller's: a null pointer, a shape that does not fit the model
  FRIT_BAD_FILE = 3,      ///< what the checkpoint holds
  FRIT_FILE_SYSTEM = 4,   ///< the checkpoint cannot be read
  FRIT_NO_DEVICE = 5,     ///< the device is missing or failed
  FRIT_OUT_OF_MEMORY = 6
} frit_status;

typedef enum frit_dtype { FRIT_F32 = 0, FRIT_F64 = 1 } frit_dtype;

enum { FRIT_MAX_RANK = 8 };

/// What a buffer holds: elements of `dtype`, the last axis varying fastest.
typedef struct frit_type {
  frit_dtype dtype;
  int32_t rank;
  int64_t sizes[FRIT_MAX_RANK];  ///< those below `rank` count; -1: any size, as the first axis, of a batch, has
} frit_type;

/// "0.1.0".
const char* frit_version(void);

/// What went wrong in this thread's last call that did not give FRIT_OK; "" if there was none. Good until that thread's next such call.
const char* frit_last_error(void);

/// Threads that the CPU computes with, of the whole process; the default is one for each core.
frit_status frit_set_threads(int32_t count);

/// Reads a checkpoint that frit wrote, of a model that reads an image and nothing else; of several outputs the first one counts. `device`
/// is "auto", "cpu", "cuda" or "cuda:N"; a null pointer means "auto". `precision` is "f32", "f64", or "f16" or "bf16", in which activations
/// are then stored; a null pointer means "f32". The result is given back to frit_model_free.
frit_status frit_model_load(const char* path, const char* device, const char* precision, frit_model** model);
/// A null pointer is left alone.
void frit_model_free(frit_model* model);

/// The registered name of the model; good as long as the model.
const char* frit_model_name(const frit_model* model);
/// Its configuration, as a JSON object; good as long as the model.
const char* frit_model_config(const frit_model* model);

/// What the model takes, sizes that are free being -1: [-1, 3, -1, -1, -1] are volumes of three channels.
frit_status frit_model_input(const frit_model* model, frit_type* input);
/// What the model gives for an input of these sizes.
frit_status frit_model_output(const frit_model* model, const int64_t* sizes, int32_t rank, frit_type* output);

/// Runs the model forward on an input of these sizes, in host memory, and writes the output to host memory; `output_bytes` is the size of
/// that buffer, which must be the output's. The first run for other sizes than before takes longer, and memory until the model is freed.
frit_status frit_model_run(frit_model* model, const void* input, const int64_t* sizes, int32_t rank, void* output, size_t output_bytes);

#ifdef __cplusplus
}
#endif

#endif
