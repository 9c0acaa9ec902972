#include "server/contribution.h"
