#define _GNU_SOURCE
#include "os/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/errno.h"

/* ---- Pages ---- */

void *os_fault_reserve(size_t size)
{
    BASE_KEEP_ERRNO;
    void *address = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return address == MAP_FAILED ? NULL : address;
}

static bool set_access(void *address, size_t size, int protection)
{
    BASE_KEEP_ERRNO;

    return mprotect(address, size, protection) == 0;
}

bool os_fault_open(void *address, size_t size) { return set_access(address, size, PROT_READ | PROT_WRITE); }

bool os_fault_close(void *address, size_t size) { return set_access(address, size, PROT_NONE); }

void os_fault_empty(void *address, size_t size)
{
    BASE_KEEP_ERRNO;

    (void)madvise(address, size, MADV_DONTNEED);
}

/* ---- What the processor says of a fault ---- */

#if defined(__x86_64__)
enum { FAULT_WRITE = 2, FAULT_FETCH = 16 }; /* of the page fault's error code */

static void read_registers(struct os_fault *fault, const ucontext_t *context)
{
    uint64_t error = (uint64_t)context->uc_mcontext.gregs[REG_ERR];

    fault->access = error & FAULT_FETCH ? OS_ACCESS_EXECUTE : error & FAULT_WRITE ? OS_ACCESS_WRITE : OS_ACCESS_READ;
    fault->instruction = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
    fault->frame = (uintptr_t)context->uc_mcontext.gregs[REG_RBP];
    if (fault->access == OS_ACCESS_EXECUTE)
        fault->caller = *(const uintptr_t *)context->uc_mcontext.gregs[REG_RSP]; /* the call has pushed it */
}
#elif defined(__aarch64__)
enum {
    SYNDROME_MAGIC = 0x45535201,
    CLASS_SHIFT = 26,
    CLASS_BITS = 63,
    CLASS_FETCH = 0x20,
    CLASS_DATA = 0x24,
    DATA_WRITE = 1 << 6
};

/* The exception's syndrome is one of the records behind the registers. Each begins with its magic and its size. */
static uint64_t find_syndrome(const ucontext_t *context)
{
    const char *at = (const char *)context->uc_mcontext.__reserved, *end = at + sizeof context->uc_mcontext.__reserved;
    uint32_t head[2];
    uint64_t syndrome;

    while (at + sizeof head + sizeof syndrome <= end) {
        memcpy(head, at, sizeof head);
        if (head[0] == SYNDROME_MAGIC) {
            memcpy(&syndrome, at + sizeof head, sizeof syndrome);
            return syndrome;
        }
        if (head[0] == 0 || head[1] < sizeof head)
            break;
        at += head[1];
    }
    return 0;
}

static void read_registers(struct os_fault *fault, const ucontext_t *context)
{
    uint64_t syndrome = find_syndrome(context), kind = syndrome >> CLASS_SHIFT & CLASS_BITS;

    if (kind == CLASS_FETCH)
        fault->access = OS_ACCESS_EXECUTE;
    else if (kind == CLASS_DATA)
        fault->access = syndrome & DATA_WRITE ? OS_ACCESS_WRITE : OS_ACCESS_READ;
    fault->instruction = (uintptr_t)context->uc_mcontext.pc;
    fault->frame = (uintptr_t)context->uc_mcontext.regs[29];
    if (fault->access == OS_ACCESS_EXECUTE)
        fault->caller = (uintptr_t)context->uc_mcontext.regs[30];
}
#elif defined(__riscv)
enum { GREG_PC = 0, GREG_RA = 1, GREG_FRAME = 8, OPCODE = 0x7f, STORE = 0x23, STORE_FLOAT = 0x27, ATOMIC = 0x2f };

/* The processor tells the kernel alone what the access was; the instruction tells it too. */
static enum os_access access_of(uintptr_t instruction)
{
    const uint16_t *halves = (const uint16_t *)instruction;
    uint32_t opcode = halves[0] & OPCODE, operation = halves[0] >> 13;

    if ((opcode & 3) == 3) { /* of four bytes; the only atomic instruction that writes nothing is lr */
        if (opcode == STORE || opcode == STORE_FLOAT || (opcode == ATOMIC && halves[1] >> 11 != 2))
            return OS_ACCESS_WRITE;
        return OS_ACCESS_READ;
    }
    return (opcode & 1) == 0 && operation >= 5 ? OS_ACCESS_WRITE : OS_ACCESS_READ;
}

static void read_registers(struct os_fault *fault, const ucontext_t *context)
{
    const unsigned long *registers = (const unsigned long *)&context->uc_mcontext;

    fault->instruction = (uintptr_t)registers[GREG_PC];
    fault->frame = (uintptr_t)registers[GREG_FRAME];
    fault->access = fault->instruction == fault->address ? OS_ACCESS_EXECUTE : access_of(fault->instruction);
    if (fault->access == OS_ACCESS_EXECUTE)
        fault->caller = (uintptr_t)registers[GREG_RA];
}
#else
static void read_registers(struct os_fault *fault, const ucontext_t *context)
{
    (void)fault;
    (void)context;
}
#endif

/* ---- The chain ---- */

/* Written before the handler is in force. A program may put the handler in force again. */
static struct {
    os_fault_settle *settle;
    struct sigaction first;  /* the action that the handler replaced the first time */
    struct sigaction latest; /* the action that the handler replaced the last time */
} chain;

/* A fault that a thread is passing on. If our handler was put in front of a handler that already passes faults to ours,
 * that handler passes the fault back, and ours then gives it to the first handler. A fault that comes back has the same
 * address of its siginfo_t, and a frame deeper in the stack. The frame is compared because a handler may leave by
 * longjmp, so that its note stays. Notes lie in a table, because static TLS is scarce for libraries that dlopen loads.
 * A thread whose note another thread overwrites passes its fault to the latest handler. */
enum { NOTES = 256 };

static struct note {
    _Atomic uint32_t thread;  /* Order: relaxed, like the others; a thread relies on its own notes alone */
    const void *_Atomic info; /* Order: relaxed, as above */
    _Atomic uintptr_t frame;  /* Order: relaxed, as above */
} notes[NOTES];

static bool note_matches(struct note *note, uint32_t thread, const void *info, uintptr_t frame)
{
    return atomic_load_explicit(&note->thread, memory_order_relaxed) == thread
        && atomic_load_explicit(&note->info, memory_order_relaxed) == info
        && frame < atomic_load_explicit(&note->frame, memory_order_relaxed);
}

static void note_set(struct note *note, uint32_t thread, const void *info, uintptr_t frame)
{
    atomic_store_explicit(&note->info, info, memory_order_relaxed);
    atomic_store_explicit(&note->frame, frame, memory_order_relaxed);
    atomic_store_explicit(&note->thread, thread, memory_order_relaxed);
}

static void take_default(int number, siginfo_t *info)
{
    struct sigaction action = { .sa_handler = SIG_DFL };

    sigemptyset(&action.sa_mask);
    (void)sigaction(number, &action, NULL);
    if (info->si_code <= 0) /* another process or thread sent it: no instruction will cause it again */
        (void)syscall(SYS_rt_tgsigqueueinfo, syscall(SYS_getpid), syscall(SYS_gettid), number, info);
}

static void pass_on(int number, siginfo_t *info, void *context)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    uint32_t thread = os_fault_thread_id();
    struct note *note = &notes[thread % NOTES];
    struct sigaction *stored = note_matches(note, thread, info, frame) ? &chain.first : &chain.latest, before = *stored;
    sigset_t mask;

    if (!(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_IGN && info->si_code <= 0)
        return;
    if (!(before.sa_flags & SA_SIGINFO) && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN)) {
        take_default(number, info);
        return;
    }
    if (before.sa_flags & SA_RESETHAND) {
        stored->sa_handler = SIG_DFL;
        stored->sa_flags = 0;
    }
    mask = before.sa_mask;
    (void)sigprocmask(SIG_BLOCK, &mask, NULL);
    if (before.sa_flags & SA_NODEFER) {
        sigemptyset(&mask);
        sigaddset(&mask, number);
        (void)sigprocmask(SIG_UNBLOCK, &mask, NULL);
    }
    note_set(note, thread, info, frame);
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else
        before.sa_handler(number);
    note_set(note, thread, NULL, 0);
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    struct os_fault fault = { .address = (uintptr_t)info->si_addr };
    bool settled = false;

    if (info->si_code > 0) {
        read_registers(&fault, context);
        settled = chain.settle(&fault);
    }
    errno = saved_errno;
    if (!settled)
        pass_on(number, info, context);
}

int os_fault_take(os_fault_settle *settle)
{
    BASE_KEEP_ERRNO;
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART }, before;
    bool taken = chain.settle != NULL;

    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSEGV, NULL, &before) != 0)
        return errno;
    if ((before.sa_flags & SA_SIGINFO) && before.sa_sigaction == on_fault)
        return 0;
    chain.latest = before;
    if (!taken)
        chain.first = before;
    chain.settle = settle;
    return sigaction(SIGSEGV, &action, NULL) == 0 ? 0 : errno;
}

/* ---- The thread ---- */

void os_fault_thread_name(char name[16])
{
    BASE_KEEP_ERRNO;

    memset(name, 0, 16);
    (void)syscall(SYS_prctl, PR_GET_NAME, name, 0, 0, 0);
    name[15] = '\0';
}

uint32_t os_fault_thread_id(void)
{
    return (uint32_t)syscall(SYS_gettid);
}
