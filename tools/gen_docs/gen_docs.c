/*
 * Prints the documents that are made from HAKMEM's tables, or checks that a committed one is current.
 *
 *   gen_docs classes|options               print docs/classes.md or docs/options.md
 *   gen_docs classes|options --check FILE  exit 1 with a message if FILE differs
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen_docs.h"

static const struct document {
    const char *name;
    void (*print)(FILE *out);
} documents[] = {
    { "classes", gen_docs_classes },
    { "options", gen_docs_options },
};

static char *read_file(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t got = 0, capacity = 1 << 20;
    if (file != NULL && (text = malloc(capacity)) != NULL)
        got = fread(text, 1, capacity, file);
    if (file != NULL)
        fclose(file);
    *length = got;
    return text;
}

static int check(const struct document *document, const char *path)
{
    char *wanted = NULL;
    size_t wanted_length = 0, found_length = 0;
    FILE *out = open_memstream(&wanted, &wanted_length);
    if (out == NULL)
        return 2;
    document->print(out);
    fclose(out);

    char *found = read_file(path, &found_length);
    bool same = found != NULL && found_length == wanted_length && memcmp(found, wanted, wanted_length) == 0;
    if (!same)
        fprintf(stderr, "%s is not what its table says; make it again: gen_docs %s > docs/%s.md\n", path,
                document->name, document->name);
    free(found);
    free(wanted);
    return same ? 0 : 1;
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc >= 2 && i < sizeof documents / sizeof documents[0]; i++) {
        if (strcmp(argv[1], documents[i].name) != 0)
            continue;
        if (argc == 4 && strcmp(argv[2], "--check") == 0)
            return check(&documents[i], argv[3]);
        if (argc == 2) {
            documents[i].print(stdout);
            return fflush(stdout) == 0 ? 0 : 2;
        }
    }
    fprintf(stderr, "usage: gen_docs classes|options [--check FILE]\n");
    return 2;
}
