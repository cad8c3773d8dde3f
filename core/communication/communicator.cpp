#include "frit/core/communication/communicator.h"
