/* A library of which there are several, by one file name: which one was found? */
extern const char neighbour[];
const char neighbour[] = NEIGHBOUR;
