#include "scheduler/allocation_parties.h"
