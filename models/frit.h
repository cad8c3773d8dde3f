#pragma once

// The whole of frit in one include: what runs models forward, and what trains them.

#include "frit/autograd/gradient.h"
#include "frit/autograd/gradient_check.h"
#include "frit/autograd/optimizer.h"
#include "frit/autograd/train_step.h"
#include "frit/models/training/checkpoint.h"
#include "frit/models/training/verify.h"
#include "frit/runtime.h"
