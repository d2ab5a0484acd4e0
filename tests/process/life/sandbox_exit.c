/* Ends by main's return in a sandbox like that of OpenSSH's server: no file opens or grows, and any system call outside
 * the list ends the process. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef UNNOTICED
#define prctl(...) syscall(SYS_prctl, __VA_ARGS__)
#endif

static const unsigned allowed[] = {
    SYS_read, SYS_write, SYS_close, SYS_exit, SYS_exit_group, SYS_getpid, SYS_mmap, SYS_munmap,
    SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_clock_gettime, SYS_rt_sigprocmask, SYS_fcntl,
};

int main(void)
{
    enum { COUNT = sizeof allowed / sizeof allowed[0] };
    struct sock_filter program[2 * COUNT + 4];
    struct rlimit nothing = { 0, 0 };
    unsigned short length = 0;
    char *block = malloc(100000), *small = malloc(100);

    memset(block, 1, 100000);
    program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < COUNT; i++) {
        program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    program[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1);
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES);
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    if (setrlimit(RLIMIT_FSIZE, &nothing) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &(struct sock_fprog){ length, program }) != 0)
        return 3;
    free(block);
    free(small);
    return 0;
}
