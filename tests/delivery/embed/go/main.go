// Prints HAKMEM's version, and whether C's malloc is HAKMEM's.
package main

// #include <stdlib.h>
import "C"

import (
	"fmt"

	"hakmem.internal/hakmem"
)

func live() uint64 {
	stats, err := hakmem.ReadStats()
	if err != nil {
		panic(err)
	}
	return stats.Live
}

func main() {
	block := hakmem.Malloc(1000)
	defer hakmem.Free(block)
	before := live()
	other := C.malloc(5 << 20)
	defer C.free(other)
	is := ""
	// Go's own threads may have freed a little meanwhile.
	if live() >= before+4<<20 {
		is = " is malloc"
	}
	fmt.Printf("hakmem %s%s\n", hakmem.Version(), is)
}
