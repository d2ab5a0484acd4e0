#include "harden/sweep_map.h"

HAK_DATA_HERE struct sweep sweep;
HAK_DATA_HERE struct sweep_leaf *_Atomic sweep_leaves[SWEEP_LEAVES];
