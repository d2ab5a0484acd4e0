/* Adds the children's CPU time and page faults to those of a program that starts others. */
#ifndef BENCH_CHILDREN_H
#define BENCH_CHILDREN_H

#include "common.h"

static inline void children_add_time(struct timeval *to, struct timeval time)
{
    to->tv_sec += time.tv_sec;
    to->tv_usec += time.tv_usec;
    if (to->tv_usec >= 1000000) {
        to->tv_usec -= 1000000;
        to->tv_sec++;
    }
}

/* Call between bench_end and bench_report, after waiting for all children. */
static inline void children_add(struct bench_run *run)
{
    struct rusage children;
    getrusage(RUSAGE_CHILDREN, &children);
    children_add_time(&run->after.ru_utime, children.ru_utime);
    children_add_time(&run->after.ru_stime, children.ru_stime);
    run->after.ru_minflt += children.ru_minflt;
    run->after.ru_majflt += children.ru_majflt;
}

#endif
