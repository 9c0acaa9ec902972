#include "server/spool.h"
