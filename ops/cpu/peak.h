#pragma once

namespace frit::ops {

/// Floating-point operations a second of all threads at most, in float32: multiplications and additions on registers alone, measured within
/// some 50 milliseconds.
double measured_peak();

}  // namespace frit::ops
