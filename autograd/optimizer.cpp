#include "frit/autograd/optimizer.h"

namespace frit {
namespace {

/// Throws ErrorKind::argument as torch.optim does.
void check(bool holds, const char* optimizer, const char* option, double value) {
  require(holds, optimizer, ": ", option, " is ", value, ", out of its range");
}

Optimizer adam(const char* name, double learning_rate, const ops::AdamOptions& options) {
  check(learning_rate >= 0, name, "learning_rate", learning_rate);
  check(options.beta1 >= 0 && options.beta1 < 1, name, "beta1", options.beta1);
  check(options.beta2 >= 0 && options.beta2 < 1, name, "beta2", options.beta2);
  check(options.eps >= 0, name, "eps", options.eps);
  check(options.weight_decay >= 0, name, "weight_decay", options.weight_decay);
  return {name, learning_rate,
          [options](const UpdateSite& site) {
            const Value first_moment = site.buffer("first_moment"), second_moment = site.buffer("second_moment");
            ops::adam_update(site.parameter, site.gradient, site.rate, site.step, site.gradient_scale, first_moment, second_moment, options,
                             site.part);
          },
          fields_text(options), /*takes_parts=*/true};
}

}  // namespace

Value UpdateSite::buffer(const std::string& suffix) const {
  const std::string variable = prefix + name + "." + suffix;
  if (buffers != nullptr) (*buffers)[variable] = parameter.shape();
  return graph.variable(variable, {parameter.dtype(), gradient.shape()}, [](const Tensor& tensor, std::uint64_t) { tensor.fill(0); });
}

Sgd::operator Optimizer() const {
  check(learning_rate >= 0, "sgd", "learning_rate", learning_rate);
  check(momentum >= 0, "sgd", "momentum", momentum);
  check(weight_decay >= 0, "sgd", "weight_decay", weight_decay);
  require(!nesterov || (momentum > 0 && dampening == 0), "sgd: nesterov needs a momentum above 0 and no dampening");
  const ops::SgdOptions options{momentum, dampening, weight_decay, nesterov};
  return {"sgd", learning_rate,
          [options](const UpdateSite& site) {
            const Value momentum_buffer = options.momentum == 0 ? Value() : site.buffer("momentum");
            ops::sgd_update(site.parameter, site.gradient, site.rate, site.step, site.gradient_scale, momentum_buffer, options, site.part);
          },
          fields_text(options), /*takes_parts=*/true};
}

Adam::operator Optimizer() const { return adam("adam", learning_rate, {beta1, beta2, eps, weight_decay, /*decoupled=*/false}); }

AdamW::operator Optimizer() const { return adam("adamw", learning_rate, {beta1, beta2, eps, weight_decay, /*decoupled=*/true}); }

}  // namespace frit
