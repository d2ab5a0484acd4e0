/* The statistics for programs to read: everything in the public structs, as JSON and as Prometheus text. */
#ifndef HAK_OBSERVE_EXPORT_H
#define HAK_OBSERVE_EXPORT_H

#include "observe/output.h"
#include "observe/stats.h"

/* One object (RFC 8259); its members are named as those of the structs in hakmem/stats.h. */
HAK_HIDDEN void export_json(struct output *output, struct stats_shot *shot);

/* The text format 0.0.4. It counts SuperSlabs by tier: a series for each one would make thousands. */
HAK_HIDDEN void export_prometheus(struct output *output, struct stats_shot *shot);

#endif
