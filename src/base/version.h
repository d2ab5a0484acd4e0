/* The library's version, for layers below the public header; api/hak.c asserts that both agree. */
#ifndef HAK_BASE_VERSION_H
#define HAK_BASE_VERSION_H

#define BASE_VERSION_MAJOR 0
#define BASE_VERSION_MINOR 2
#define BASE_VERSION_PATCH 0

#define BASE_VERSION_TEXT_OF(n) #n
#define BASE_VERSION_TEXT(major, minor, patch) \
    BASE_VERSION_TEXT_OF(major) "." BASE_VERSION_TEXT_OF(minor) "." BASE_VERSION_TEXT_OF(patch)
#define BASE_VERSION_STRING BASE_VERSION_TEXT(BASE_VERSION_MAJOR, BASE_VERSION_MINOR, BASE_VERSION_PATCH)

#endif
