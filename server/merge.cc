#include "server/merge.h"
