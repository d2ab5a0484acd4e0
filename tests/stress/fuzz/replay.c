/*
 * FUZZ_TARGET FOLDER|FILE...
 *
 * Runs a fuzz target on the files, sorted by name, without libFuzzer. The tests of every build replay the corpus by it.
 * A FOLDER without files is an error, so that a lost corpus does not pass.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Prints the file's name first, so that the last line on standard output names it when the target aborts. */
static unsigned replay_file(const char *path)
{
    struct stat about;
    FILE *file = fopen(path, "rb");
    FUZZ_CHECK(file != NULL && fstat(fileno(file), &about) == 0, "%s: %s", path, strerror(errno));
    size_t size = (size_t)about.st_size;
    uint8_t *bytes = malloc(size > 0 ? size : 1);
    FUZZ_CHECK(bytes != NULL && fread(bytes, 1, size, file) == size, "%s: %s", path, strerror(errno));
    fclose(file);
    printf("%s\n", path);
    fflush(stdout);
    FUZZ_CHECK(LLVMFuzzerTestOneInput(bytes, size) == 0, "%s", path);
    free(bytes);
    return 1;
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static unsigned replay(const char *path)
{
    struct dirent **entries;
    struct stat about;
    unsigned files = 0;

    FUZZ_CHECK(stat(path, &about) == 0, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(about.st_mode))
        return replay_file(path);
    int count = scandir(path, &entries, is_visible, alphasort);
    for (int i = 0; i < count; i++) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        files += replay_file(inner);
        free(entries[i]);
    }
    FUZZ_CHECK(files > 0, "%s has no files", path);
    free(entries);
    return files;
}

int main(int argc, char **argv)
{
    unsigned files = 0;

    FUZZ_CHECK(argc > 1, "a folder or files are wanted");
    for (int i = 1; i < argc; i++)
        files += replay(argv[i]);
    printf("%u inputs\n", files);
    return 0;
}
