/* libc functions that give blocks away or resize the caller's. Each block is used, resized and freed like any other. */
#define _GNU_SOURCE
#include <argz.h>
#include <dirent.h>
#include <envz.h>
#include <glob.h>
#include <malloc.h>
#include <obstack.h>
#include <regex.h>
#include <search.h>
#include <wchar.h>
#include <wordexp.h>

#include "foreign.h"

#define obstack_chunk_alloc malloc
#define obstack_chunk_free free

/* Fills the whole block, resizes it and frees it. */
static void own(void *block, size_t least)
{
    if (!block || malloc_usable_size(block) < least)
        fail("a block that libc gives");
    memset(block, 0x5a, malloc_usable_size(block));
    block = realloc(block, least * 3 + 100);
    if (!block || ((unsigned char *)block)[least - 1] != 0x5a)
        fail("realloc of a block that libc gives");
    free(block);
}

static void strings(size_t length)
{
    char *text = malloc(length + 1), *copy = NULL, *line = malloc(1);
    size_t size = 1, written = 0;

    memset(text, 'x', length);
    text[length] = 0;
    own(strdup(text), length + 1);
    own(strndup(text, length / 2), length / 2 + 1);
    if (asprintf(&copy, "%s%d", text, 1) != (int)length + 1)
        fail("asprintf");
    own(copy, length + 2);
    FILE *memory = open_memstream(&copy, &written);
    for (size_t i = 0; i < length; i++)
        fputc('m', memory);
    fflush(memory);
    fprintf(memory, "%s", text);
    fclose(memory);
    if (written != 2 * length || strlen(copy) != written)
        fail("open_memstream");
    FILE *file = fmemopen(copy, written, "r");
    if (getdelim(&line, &size, '\n', file) != (ssize_t)written || size <= written)
        fail("getdelim");
    fclose(file);
    own(line, written + 1);
    own(copy, written + 1);
    wchar_t *wide = NULL, *wide_copy;
    FILE *wide_memory = open_wmemstream(&wide, &written);
    fwprintf(wide_memory, L"%s", text);
    fclose(wide_memory);
    wide_copy = wcsdup(wide);
    own(wide_copy, (length + 1) * sizeof(wchar_t));
    own(wide, (length + 1) * sizeof(wchar_t));
    free(text);
}

static void vectors(void)
{
    char *argz = NULL, *envz = NULL, *mode = NULL;
    size_t length = 0, envz_length = 0;

    for (int i = 0; i < 500; i++) {
        char item[32];
        snprintf(item, sizeof(item), "item%d", i);
        if (argz_add(&argz, &length, item) || envz_add(&envz, &envz_length, item, "value"))
            fail("argz_add");
    }
    if (argz_count(argz, length) != 500 || strcmp(envz_get(envz, envz_length, "item321"), "value") != 0)
        fail("argz_count");
    if (argz_replace(&argz, &length, "item", "a much longer item", NULL))
        fail("argz_replace");
    own(argz, length);
    own(envz, envz_length);
    if (sscanf("word rest", "%ms", &mode) != 1 || strcmp(mode, "word") != 0)
        fail("sscanf");
    own(mode, 5);
}

static void paths(void)
{
    struct dirent **entries;
    glob_t found = { 0 };
    wordexp_t words = { 0 };
    int count = scandir("/usr", &entries, NULL, alphasort);

    own(getcwd(NULL, 0), 2);
    own(realpath("/usr/../usr", NULL), 5);
    if (count < 3)
        fail("scandir");
    for (int i = 0; i < count; i++)
        own(entries[i], 20);
    own(entries, (size_t)count * sizeof(*entries));
    if (glob("/usr/*", GLOB_MARK, NULL, &found) || glob("/*", GLOB_APPEND, NULL, &found) || found.gl_pathc < 10)
        fail("glob");
    globfree(&found);
    if (wordexp("one two ~ $PATH", &words, WRDE_NOCMD) || words.we_wordc < 4)
        fail("wordexp");
    wordfree(&words);
}

static int compare(const void *left, const void *right)
{
    return (*(const int *)left > *(const int *)right) - (*(const int *)left < *(const int *)right);
}

static void free_nothing(void *key)
{
    (void)key;
}

static void containers(void)
{
    static int keys[2000];
    void *root = NULL;
    regex_t expression;
    regmatch_t match[3];
    struct obstack stack;

    for (int i = 0; i < 2000; i++) {
        keys[i] = i * 7919 % 2000;
        if (!tsearch(&keys[i], &root, compare))
            fail("tsearch");
    }
    for (int i = 0; i < 1000; i++)
        tdelete(&keys[i], &root, compare);
    tdestroy(root, free_nothing);
    qsort(keys, 2000, sizeof(*keys), compare);
    int *many = malloc(500000 * sizeof(*many));
    for (int i = 0; i < 500000; i++)
        many[i] = (int)((unsigned)i * 2654435761u >> 4);
    qsort(many, 500000, sizeof(*many), compare);
    for (int i = 1; i < 500000; i++)
        if (many[i - 1] > many[i])
            fail("qsort");
    free(many);
    if (regcomp(&expression, "(a|b)*(c{1,20}|d+)[[:alpha:]]*", REG_EXTENDED) ||
        regexec(&expression, "abacccx", 3, match, 0))
        fail("regcomp");
    regfree(&expression);
    obstack_init(&stack);
    for (int i = 1; i < 3000; i++)
        memset(obstack_alloc(&stack, i), i, (size_t)i);
    obstack_free(&stack, NULL);
    for (int i = 0; i < 200; i++) {
        char name[32];
        snprintf(name, sizeof(name), "GIVEN_%d", i);
        if (setenv(name, name, 1) || (i % 2 && unsetenv(name)))
            fail("setenv");
    }
    if (strcmp(getenv("GIVEN_100"), "GIVEN_100") != 0 || getenv("GIVEN_101"))
        fail("getenv");
}

static void *use_all(void *unused)
{
    for (size_t length = 1; length < 3000000; length = length * 3 + 7)
        strings(length);
    vectors();
    paths();
    return unused;
}

int main(void)
{
    pthread_t threads[3];

    containers();
    for (int i = 0; i < 3; i++)
        threads[i] = begin_thread(use_all, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    use_all(NULL);
    puts("done");
    return 0;
}
