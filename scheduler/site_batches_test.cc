#include "scheduler/site_batches.h"
