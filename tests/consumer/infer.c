/* infer CHECKPOINT INPUT OUTPUT: runs the model through the C interface on the floats of INPUT and compares with those of OUTPUT. */

#include <frit/frit_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float* read_floats(const char* path, size_t count) {
  float* const values = malloc(count * sizeof(float));
  FILE* const file = fopen(path, "rb");
  if (values == NULL || file == NULL || fread(values, sizeof(float), count, file) != count) exit(1);
  fclose(file);
  return values;
}

static void check(frit_status status) {
  if (status == FRIT_OK) return;
  fprintf(stderr, "status %d: %s\n", (int)status, frit_last_error());
  exit(1);
}

static size_t elements(const frit_type* type) {
  size_t count = 1;
  for (int axis = 0; axis < type->rank; ++axis) count *= (size_t)type->sizes[axis];
  return count;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  frit_model* model = NULL;
  if (frit_model_load("nothing.safetensors", NULL, NULL, &model) != FRIT_FILE_SYSTEM || strlen(frit_last_error()) == 0) return 1;
  check(frit_model_load(argv[1], "cpu", NULL, &model));

  frit_type input, output;
  check(frit_model_input(model, &input));
  if (input.rank != 4 || input.sizes[1] != 8 || input.sizes[2] != -1) return 1;
  input.sizes[0] = 2;
  input.sizes[2] = 10;
  input.sizes[3] = 11;
  check(frit_model_output(model, input.sizes, input.rank, &output));

  const size_t count = elements(&output);
  float* const given = read_floats(argv[2], elements(&input));
  float* const expected = read_floats(argv[3], count);
  float* const result = malloc(count * sizeof(float));
  check(frit_model_run(model, given, input.sizes, input.rank, result, count * sizeof(float)));
  const int same = memcmp(result, expected, count * sizeof(float)) == 0;
  printf("frit %s, %s from C: %lu floats, %s\n", frit_version(), frit_model_name(model), (unsigned long)count,
         same ? "equal" : "DIFFERENT");
  frit_model_free(model);
  free(given);
  free(expected);
  free(result);
  return same ? 0 : 1;
}
