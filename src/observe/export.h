/* The statistics for machines. Everything the public structs hold, as JSON and as Prometheus text. */
#ifndef HAK_OBSERVE_EXPORT_H
#define HAK_OBSERVE_EXPORT_H

#include "observe/output.h"

/* One object (RFC 8259); its members are named as those of the structs in hakmem/stats.h. */
HAK_HIDDEN void export_json(struct output *output);

/* The text format 0.0.4. SuperSlabs are counted by tier there: a series for each would be thousands. */
HAK_HIDDEN void export_prometheus(struct output *output);

#endif
