#pragma once

#include <frit/frit.h>

struct Swish {
  double beta = 1;

  void fields(frit::FieldVisitor& v) { v.field("beta", beta); }
};

/// x * sigmoid(beta * x).
inline frit::Value swish(frit::Value x, const Swish& attributes = {}) { return frit::ops::emit_one("swish", {x}, attributes); }

/// Before the first graph that has a swish.
void register_swish();
/// In swish.cu: after register_swish, where frit has CUDA.
void register_swish_on_cuda();
