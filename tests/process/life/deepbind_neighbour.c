/* Several libraries have this file name. `neighbour` tells which one was found. */
extern const char neighbour[];
const char neighbour[] = NEIGHBOUR;
