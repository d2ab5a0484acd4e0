/* One function for each document. */
#ifndef HAK_TOOLS_GEN_DOCS_H
#define HAK_TOOLS_GEN_DOCS_H

#include <stdbool.h>
#include <stdio.h>

void gen_docs_classes(FILE *out);
void gen_docs_options(FILE *out);

#endif
