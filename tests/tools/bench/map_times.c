/* map_times N...: calls mmap, munmap and mprotect N times each and madvise 2 N times, in a process for each N. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(long count)
{
    for (long i = 0; i < count; i++) {
        void *memory = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            _exit(1);
        madvise(memory, 1 << 16, MADV_DONTNEED);
        madvise(memory, 1 << 16, MADV_DONTNEED);
        mprotect(memory, 1 << 16, PROT_READ);
        munmap(memory, 1 << 16);
    }
}

int main(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        if (fork() == 0) {
            work(strtol(argv[i], NULL, 10));
            _exit(0);
        }
    }
    work(strtol(argv[1], NULL, 10));
    while (wait(NULL) > 0) {
    }
    return 0;
}
