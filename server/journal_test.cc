#include "server/journal.h"
