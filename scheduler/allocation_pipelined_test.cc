#include "scheduler/allocation_pipelined.h"
