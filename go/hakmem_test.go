//go:build linux && cgo

package hakmem

import (
	"sync"
	"testing"
	"unsafe"
)

func bytesOf(block unsafe.Pointer, size uintptr) []byte {
	return unsafe.Slice((*byte)(block), size)
}

func TestBlocks(t *testing.T) {
	for _, size := range []uintptr{1, 16, 1000, 40000, 3 << 20} {
		block := Malloc(size)
		if block == nil || UsableSize(block) < size || uintptr(block)%16 != 0 {
			t.Fatalf("Malloc(%d): %p, usable %d", size, block, UsableSize(block))
		}
		bytesOf(block, size)[size-1] = 7
		block = Realloc(block, 2*size)
		if block == nil || bytesOf(block, size)[size-1] != 7 {
			t.Fatalf("Realloc(%d) lost the contents", 2*size)
		}
		Free(block)
		zeros := Calloc(size, 1)
		for _, b := range bytesOf(zeros, size) {
			if b != 0 {
				t.Fatalf("Calloc(%d) is not zero", size)
			}
		}
		FreeSized(zeros, size)
		aligned := AlignedAlloc(4096, size)
		if aligned == nil || uintptr(aligned)%4096 != 0 {
			t.Fatalf("AlignedAlloc(4096, %d): %p", size, aligned)
		}
		Free(aligned)
	}
	Free(nil)
	if Malloc(1<<62) != nil || AlignedAlloc(48, 1) != nil {
		t.Fatal("what cannot be had is not nil")
	}
}

func TestThreads(t *testing.T) {
	blocks := make(chan unsafe.Pointer, 100)
	var givers sync.WaitGroup
	for giver := 0; giver < 4; giver++ {
		givers.Add(1)
		go func() {
			defer givers.Done()
			for i := uintptr(0); i < 5000; i++ {
				blocks <- Malloc(16 + i%500)
			}
		}()
	}
	go func() {
		givers.Wait()
		close(blocks)
	}()
	for block := range blocks {
		Free(block)
	}
}

func TestHeap(t *testing.T) {
	heap, err := NewHeap()
	if err != nil {
		t.Fatal(err)
	}
	block := heap.Malloc(100)
	other := Malloc(100)
	if !heap.Contains(block) || heap.Contains(other) {
		t.Fatal("the heap does not know its blocks")
	}
	Free(other)
	heap.Destroy()
}

func TestStats(t *testing.T) {
	before, err := ReadStats()
	if err != nil {
		t.Fatal(err)
	}
	block := Malloc(10 << 20)
	bytesOf(block, 10<<20)[0] = 1
	s, err := ReadStats()
	if err != nil || s.Live < before.Live+10<<20 || s.Resident == 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	if s.Mapped != s.Live+s.Cached+s.FreeInSlab+s.Retained+s.Metadata {
		t.Fatalf("the parts of %+v do not sum up", s)
	}
	Free(block)
	Collect(true)
}
