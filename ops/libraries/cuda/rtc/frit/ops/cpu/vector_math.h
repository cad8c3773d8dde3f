#pragma once

#include "frit/ops/cpu/polynomial.h"
