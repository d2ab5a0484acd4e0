//go:build linux && cgo

// Package hakmem is HAKMEM, a general-purpose memory allocator for Linux, for the C memory of a Go program. Go's
// garbage collector still manages Go's own memory.
//
// The functions of this package allocate beside the C library's malloc. With the build tag hakmem_override HAKMEM is
// the malloc of all C and C++ code in the program, including C.malloc and C.CString:
//
//	go build -tags hakmem_override
//
// HAKMEM's options are environment variables that begin with HAKMEM_.
package hakmem

//go:generate python3 -B ../tools/amalgamate.py .

/*
#cgo CFLAGS: -O2 -DHAK_STATIC=1
#cgo hakmem_override CFLAGS: -DHAKMEM_OVERRIDE=1
#cgo LDFLAGS: -pthread

#include "hakmem.h"
*/
import "C"

import (
	"errors"
	"unsafe"
)

// Malloc returns a block of at least size bytes, aligned to 16, or nil when there is no memory. Free it with Free. Do
// not store Go pointers in it: the garbage collector does not see them.
func Malloc(size uintptr) unsafe.Pointer {
	return C.hak_malloc(C.size_t(size))
}

// Calloc returns a block of count times size zero bytes, or nil when there is no memory.
func Calloc(count, size uintptr) unsafe.Pointer {
	return C.hak_calloc(C.size_t(count), C.size_t(size))
}

// AlignedAlloc returns a block aligned to a power of two, or nil when there is no memory or the alignment is invalid.
func AlignedAlloc(alignment, size uintptr) unsafe.Pointer {
	return C.hak_aligned_alloc(C.size_t(alignment), C.size_t(size))
}

// Realloc changes the block's size, and returns its new address. With a nil block it is Malloc. With a size of 0 it
// frees the block and returns nil. When there is no memory it returns nil and does not change the block.
func Realloc(block unsafe.Pointer, size uintptr) unsafe.Pointer {
	return C.hak_realloc(block, C.size_t(size))
}

// Free frees a block of any thread. It ignores nil. Any address that is no block of HAKMEM ends the program with a
// message.
func Free(block unsafe.Pointer) {
	C.hak_free(block)
}

// FreeSized is Free for a block that was requested with this size. It checks the size.
func FreeSized(block unsafe.Pointer, size uintptr) {
	C.hak_free_sized(block, C.size_t(size))
}

// UsableSize returns the number of usable bytes of the block, at least the requested size. For nil it returns 0.
func UsableSize(block unsafe.Pointer) uintptr {
	return uintptr(C.hak_usable_size(block))
}

// Collect gives the calling thread's free blocks to other threads. With purge it also gives the process's free memory
// back to the system. It returns the bytes given back.
func Collect(purge bool) uintptr {
	return uintptr(C.hak_collect(C.bool(purge)))
}

// Version returns the version of the linked HAKMEM.
func Version() string {
	return C.GoString(C.hak_version())
}

// A Heap frees all of its blocks when it is destroyed. Any thread may use it.
type Heap struct {
	heap *C.hak_heap_t
}

var errNoMemory = errors.New("hakmem: out of memory")

// NewHeap makes an empty heap.
func NewHeap() (Heap, error) {
	heap := C.hak_heap_new()
	if heap == nil {
		return Heap{}, errNoMemory
	}
	return Heap{heap}, nil
}

// Malloc allocates in the heap like the function Malloc. Free frees its blocks, too.
func (h Heap) Malloc(size uintptr) unsafe.Pointer {
	return C.hak_heap_malloc(h.heap, C.size_t(size))
}

// Contains returns whether a block of HAKMEM is in the heap.
func (h Heap) Contains(block unsafe.Pointer) bool {
	return C.hak_heap_of(block) == h.heap
}

// Destroy frees the heap and all of its blocks.
func (h Heap) Destroy() {
	C.hak_heap_destroy(h.heap)
}

// Stats are figures about the memory, in bytes. Mapped is the sum of the next five. hakmem.h explains them.
type Stats struct {
	Mapped     uint64
	Live       uint64
	Cached     uint64
	FreeInSlab uint64
	Retained   uint64
	Metadata   uint64

	Purged        uint64 // the part of Retained that the system has
	FootprintPeak uint64
	Limit         uint64 // 0: none
	Resident      uint64 // of the whole process
}

// ReadStats returns the current figures.
func ReadStats() (Stats, error) {
	var s C.struct_hak_stats
	if C.hak_stats_get(&s, C.size_t(unsafe.Sizeof(s))) == 0 {
		return Stats{}, errNoMemory
	}
	return Stats{
		Mapped:        uint64(s.mapped),
		Live:          uint64(s.live),
		Cached:        uint64(s.cached),
		FreeInSlab:    uint64(s.free_in_slab),
		Retained:      uint64(s.retained),
		Metadata:      uint64(s.metadata),
		Purged:        uint64(s.purged),
		FootprintPeak: uint64(s.footprint_peak),
		Limit:         uint64(s.limit),
		Resident:      uint64(s.resident),
	}, nil
}
