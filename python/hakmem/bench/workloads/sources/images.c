/* What cc1 compiles for the row gcc: the implementations of Debian's libstb-dev. LESS: one of them. */
#ifndef LESS
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>
#endif
#define STB_IMAGE_RESIZE_IMPLEMENTATION
#include <stb/stb_image_resize.h>
