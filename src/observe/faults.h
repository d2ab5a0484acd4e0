/* Page faults and resident memory of the process, as the kernel counts them. */
#ifndef HAK_OBSERVE_FAULTS_H
#define HAK_OBSERVE_FAULTS_H

#include "base/base.h"

struct faults {
    uint64_t soft, hard; /* of the process; a child of fork begins with 0 */
    uint64_t resident;   /* bytes; 0: unknown */
};

HAK_HIDDEN struct faults faults_now(void);

/* The figures that later ones are compared with. The first call of faults_begin takes them. */
HAK_HIDDEN void faults_begin(void);
HAK_HIDDEN struct faults faults_first(void);

/* The figures of the last report (faults_note_report), or of faults_begin. */
HAK_HIDDEN struct faults faults_reported(void);
HAK_HIDDEN void faults_note_report(void);

#endif
