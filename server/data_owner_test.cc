#include "server/data_owner.h"
