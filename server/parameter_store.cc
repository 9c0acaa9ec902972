#include "server/parameter_store.h"
