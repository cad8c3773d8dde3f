#pragma once

#include <optional>

#include "frit/core/fields.h"
#include "frit/ops/operator/value.h"

namespace frit::ops {

/// Of a parameter that several processes share out (see Parts): its update is of process `rank`'s part alone, which is what the gradient
/// and the buffers are of, as vectors.
struct UpdatedPart {
  std::int64_t rank = 0, processes = 1;
  void fields(FieldVisitor& v) {
    v.field("rank", rank);
    v.field("processes", processes);
  }
};

/// What an update's operator knows of a call.
template <class Options>
struct UpdateAttributes {
  Options options = {};
  UpdatedPart part = {};
  void fields(FieldVisitor& v) {
    options.fields(v);
    part.fields(v);
  }
};

// One parameter's update as an operator that changes variables where they lie; no results. `rate` is an f64 scalar variable, so that a
// schedule needs no new graph; `step` an i64 scalar variable that counts updates done (0 at the first); `gradient_scale` a scalar of the
// parameter's dtype that the gradient is multiplied by, and where it is negative nothing changes; decay adds weight_decay * parameter to
// the gradient (sgd, adam) or shrinks the parameter by rate * weight_decay (adamw). Formulas: torch.optim.SGD, Adam, AdamW.
struct SgdOptions {
  double momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  void fields(FieldVisitor& v) {
    v.field("momentum", momentum);
    v.field("dampening", dampening);
    v.field("weight_decay", weight_decay);
    v.field("nesterov", nesterov);
  }
};
/// `momentum_buffer` has the parameter's type; none without momentum.
void sgd_update(Value parameter, Value gradient, Value rate, Value step, Value gradient_scale, Value momentum_buffer,
                const SgdOptions& options, const UpdatedPart& part = {});

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool decoupled = false;  ///< AdamW
  void fields(FieldVisitor& v) {
    v.field("beta1", beta1);
    v.field("beta2", beta2);
    v.field("eps", eps);
    v.field("weight_decay", weight_decay);
    v.field("decoupled", decoupled);
  }
};
void adam_update(Value parameter, Value gradient, Value rate, Value step, Value gradient_scale, Value first_moment, Value second_moment,
                 const AdamOptions& options, const UpdatedPart& part = {});

/// Adds 1 to an i64 scalar variable, unless `gradient_scale` is negative.
void advance(Value step, Value gradient_scale);

/// Fills a variable with zeros, unless `gradient_scale` is negative.
void clear(Value variable, Value gradient_scale);

struct GlobalNormAttributes {
  std::optional<DType> dtype = {};  ///< of the norm, and of the tensors that are not halves; none: the first tensor's
  void fields(FieldVisitor& v) { v.field("dtype", dtype); }
};
/// sqrt of the sum of squares of all elements of all tensors, a scalar of their dtype; computed in f64.
Value global_norm(std::span<const Value> tensors);

/// min(1, max_norm / (norm + 1e-6)), what torch.nn.utils.clip_grad_norm_ multiplies gradients of that norm by.
Value clip_scale(Value norm, double max_norm);

/// What a dynamic loss scale (torch.amp.GradScaler) makes of the norm of gradients that were multiplied by it. Where the norm is finite,
/// the gradient scale that undoes the loss scale, and clips to max_norm if that is given; else -1: the update is skipped. The loss scale, a
/// scalar variable of the norm's dtype, is halved with each update that is skipped and doubled after `growth_interval` others in a row,
/// which the i64 scalar variable `good_steps` counts.
Value update_loss_scale(Value norm, Value loss_scale, Value good_steps, std::optional<double> max_norm);

/// What gradients of that norm are multiplied by: 1, or what clips them to max_norm. From the first time on that the norm or the loss, both
/// scalars of one dtype, is not finite, -1: every update is skipped. The i64 scalar variable `failures` counts those calls; a caller who
/// sets it to 0 goes on.
Value guard_update(Value norm, Value loss, Value failures, std::optional<double> max_norm);

}  // namespace frit::ops
