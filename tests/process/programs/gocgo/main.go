// Many goroutines, so many system threads, hold C memory. Any thread may call C.malloc, C.CString and C.free.
package main

/*
#include <stdlib.h>
#include <string.h>

static unsigned long checksum(const unsigned char *block, size_t size)
{
    unsigned long sum = 0;
    for (size_t i = 0; i < size; i++)
        sum = sum * 31 + block[i];
    return sum;
}

static char *twice(const char *text)
{
    size_t length = strlen(text);
    char *result = malloc(2 * length + 1);
    memcpy(result, text, length);
    memcpy(result + length, text, length + 1);
    return result;
}
*/
import "C"

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"
)

func work(seed int, pass chan unsafe.Pointer) uint64 {
	var sum uint64
	for i := 0; i < 1500; i++ {
		size := (seed*131+i*37)%9000 + 1
		block := C.malloc(C.size_t(size))
		C.memset(block, C.int(i%251), C.size_t(size))
		sum += uint64(C.checksum((*C.uchar)(block), C.size_t(size)))
		text := C.CString(strings.Repeat("x", i%120))
		doubled := C.twice(text)
		sum += uint64(len(C.GoString(doubled)))
		C.free(unsafe.Pointer(text))
		C.free(unsafe.Pointer(doubled))
		if i%2 == 0 {
			// The goroutine that takes it from the channel frees it.
			pass <- block
		} else {
			C.free(block)
		}
		if i%4 == 1 {
			C.free(<-pass)
		}
	}
	return sum
}

func main() {
	const goroutines = 32
	pass := make(chan unsafe.Pointer, goroutines*1500)
	sums := make([]uint64, goroutines)
	var group sync.WaitGroup
	for n := 0; n < goroutines; n++ {
		group.Add(1)
		go func(n int) {
			defer group.Done()
			sums[n] = work(n, pass)
		}(n)
	}
	group.Wait()
	close(pass)
	left := 0
	for block := range pass {
		C.free(block)
		left++
	}
	fmt.Println(sums, left)
	if left != goroutines*375 {
		os.Exit(1)
	}
}
