/* Public names that no header declares, or not every C library's. */
#ifndef HAK_API_NAMES_H
#define HAK_API_NAMES_H

#include <stddef.h>

#include "api/glibc_malloc.h"
#include "base/base.h"

#define API_EXPORT __attribute__((visibility("default")))

/* ---- C ---- */

API_EXPORT void cfree(void *block);
API_EXPORT size_t malloc_good_size(size_t size);
API_EXPORT void free_sized(void *block, size_t size);
API_EXPORT void free_aligned_sized(void *block, size_t alignment, size_t size);
API_EXPORT void *mallocx(size_t size, int flags);
API_EXPORT void *rallocx(void *block, size_t size, int flags);
API_EXPORT size_t xallocx(void *block, size_t size, size_t extra, int flags);
API_EXPORT size_t sallocx(const void *block, int flags);
API_EXPORT size_t nallocx(size_t size, int flags);
API_EXPORT void dallocx(void *block, int flags);
API_EXPORT void sdallocx(void *block, size_t size, int flags);

/* ---- C++: the operators by their mangled names; `nothrow` is a std::nothrow_t ---- */

API_EXPORT void *_Znwm(size_t size);
API_EXPORT void *_Znam(size_t size);
API_EXPORT void *_ZnwmRKSt9nothrow_t(size_t size, const void *nothrow);
API_EXPORT void *_ZnamRKSt9nothrow_t(size_t size, const void *nothrow);
API_EXPORT void *_ZnwmSt11align_val_t(size_t size, size_t alignment);
API_EXPORT void *_ZnamSt11align_val_t(size_t size, size_t alignment);
API_EXPORT void *_ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *nothrow);
API_EXPORT void *_ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *nothrow);
API_EXPORT void _ZdlPv(void *block);
API_EXPORT void _ZdaPv(void *block);
API_EXPORT void _ZdlPvRKSt9nothrow_t(void *block, const void *nothrow);
API_EXPORT void _ZdaPvRKSt9nothrow_t(void *block, const void *nothrow);
API_EXPORT void _ZdlPvm(void *block, size_t size);
API_EXPORT void _ZdaPvm(void *block, size_t size);
API_EXPORT void _ZdlPvSt11align_val_t(void *block, size_t alignment);
API_EXPORT void _ZdaPvSt11align_val_t(void *block, size_t alignment);
API_EXPORT void _ZdlPvmSt11align_val_t(void *block, size_t size, size_t alignment);
API_EXPORT void _ZdaPvmSt11align_val_t(void *block, size_t size, size_t alignment);
API_EXPORT void _ZdlPvSt11align_val_tRKSt9nothrow_t(void *block, size_t alignment, const void *nothrow);
API_EXPORT void _ZdaPvSt11align_val_tRKSt9nothrow_t(void *block, size_t alignment, const void *nothrow);

/* LLVM calls these in place of the operators above. The hint is a __hot_cold_t: 0 is the coldest. */

API_EXPORT void *_Znwm12__hot_cold_t(size_t size, unsigned char hint);
API_EXPORT void *_Znam12__hot_cold_t(size_t size, unsigned char hint);
API_EXPORT void *_ZnwmRKSt9nothrow_t12__hot_cold_t(size_t size, const void *nothrow, unsigned char hint);
API_EXPORT void *_ZnamRKSt9nothrow_t12__hot_cold_t(size_t size, const void *nothrow, unsigned char hint);
API_EXPORT void *_ZnwmSt11align_val_t12__hot_cold_t(size_t size, size_t alignment, unsigned char hint);
API_EXPORT void *_ZnamSt11align_val_t12__hot_cold_t(size_t size, size_t alignment, unsigned char hint);
API_EXPORT void *_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t(size_t size, size_t alignment, const void *nothrow,
                                                                  unsigned char hint);
API_EXPORT void *_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t(size_t size, size_t alignment, const void *nothrow,
                                                                  unsigned char hint);

/* LLVM's __sized_ptr_t. */
struct sized_block {
    void *block;
    size_t size; /* bytes that may be written */
};

API_EXPORT struct sized_block __size_returning_new(size_t size);
API_EXPORT struct sized_block __size_returning_new_hot_cold(size_t size, unsigned char hint);
API_EXPORT struct sized_block __size_returning_new_aligned(size_t size, size_t alignment);
API_EXPORT struct sized_block __size_returning_new_aligned_hot_cold(size_t size, size_t alignment, unsigned char hint);

/* Our definitions of the operators that the others are built on, also where another object's have the public names. */
HAK_HIDDEN __typeof__(_Znwm) own__Znwm;
HAK_HIDDEN __typeof__(_Znam) own__Znam;
HAK_HIDDEN __typeof__(_ZnwmSt11align_val_t) own__ZnwmSt11align_val_t;
HAK_HIDDEN __typeof__(_ZnamSt11align_val_t) own__ZnamSt11align_val_t;
HAK_HIDDEN __typeof__(_ZdlPv) own__ZdlPv;
HAK_HIDDEN __typeof__(_ZdaPv) own__ZdaPv;
HAK_HIDDEN __typeof__(_ZdlPvSt11align_val_t) own__ZdlPvSt11align_val_t;
HAK_HIDDEN __typeof__(_ZdaPvSt11align_val_t) own__ZdaPvSt11align_val_t;

#endif
