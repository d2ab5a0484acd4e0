/*
 * hakmem-run MODE [OPTIONS] [--] PROGRAM [ARGUMENTS]
 *
 * The rules of `hakmem run`. ./hakmem and the Python command both start this program, which takes the user's words as
 * they are. MODE:
 *
 *   run becomes PROGRAM, with HAKMEM preloaded needs prints "FLAVOR LIBRARY END": the build and the library that the
 *   words ask for, and the report at PROGRAM's end (budget, profile, or nothing). Checks all that needs no library plan
 *   checks all that `run` checks, and prints KEY=VALUE, a zero byte after each: set (a variable of PROGRAM), program,
 *   budget, markdown, profile (the options' values), why (what `run` says if HAKMEM cannot take effect)
 *
 * hakmem-run why LIBRARY PROGRAM prints why LIBRARY cannot take effect in PROGRAM; nothing if it can.
 *
 * hakmem-run setting OPTION LIBRARY NAME=VALUE prints the variable and its value, for an option like --set.
 *
 * The library lies beside this program, as builds and wheels have it, or in the build that HAKMEM_BUILD_DIR names.
 * PROGRAM's environment is the caller's in every other respect. A shell in this place would drop variables that it
 * cannot name.
 *
 * Exit status: 0, 1 (failed), 2 (wrong words), 126 and 127 as shells have them.
 */
#define _GNU_SOURCE
#include "effect.h"
#include "words.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WHY_BYTES = 2 * PATH_MAX, NAME_BYTES = 128 };
/* Of the tools. The library would take them for misspelled options. */
static const char *const TOOLS_OWN[] = {"HAKMEM_BUILD_DIR", "HAKMEM_PEERS_DIR"};
/* What stands between the entries of LD_PRELOAD. */
static const char SEPARATORS[] = " \t\n\v\f\r:";

static bool planning; /* the mode is `plan`: print in place of doing */

/* Writes a path of two parts. */
static void join(char path[PATH_MAX], const char *first, const char *second)
{
    if ((size_t)snprintf(path, PATH_MAX, "%s%s", first, second) >= PATH_MAX)
        words_fail("%s%s is too long for a path", first, second);
}

static void print_field(const char *key, const char *value)
{
    if (planning && value)
        printf("%s=%s%c", key, value, '\0');
}

/* Sets a variable of PROGRAM. */
static void set_variable(const char *name, const char *value)
{
    if (planning)
        printf("set=%s=%s%c", name, value, '\0');
    else
        setenv(name, value, 1);
}

/* ---- PROGRAM ---- */

static bool is_folder(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Writes into `path` the file that PROGRAM's name means. False if there is none that can be run. */
static bool find_program(const char *name, char path[PATH_MAX])
{
    if (strchr(name, '/')) {
        join(path, name, "");
        return !is_folder(path) && access(path, X_OK) == 0;
    }
    const char *folders = getenv("PATH");
    if (!folders)
        folders = "/bin:/usr/bin";
    for (;;) {
        int length = (int)strcspn(folders, ":");
        int written = snprintf(path, PATH_MAX, "%.*s%s%s", length, folders, length ? "/" : "", name);
        if (*name && written < PATH_MAX && !is_folder(path) && access(path, X_OK) == 0)
            return true;
        if (!folders[length])
            return false;
        folders += length + 1;
    }
}

/* As find_program. Ends the process as a shell does if there is none. */
static void require_program(const char *name, char path[PATH_MAX])
{
    if (find_program(name, path))
        return;
    if (strchr(name, '/') && access(name, F_OK) == 0) {
        words_say("program '%s' is %s", name, is_folder(name) ? "a folder" : "not executable");
        exit(NOT_EXECUTABLE);
    }
    words_say("program '%s' not found", name);
    exit(NOT_FOUND);
}

/* ---- Options ---- */

/* Writes the absolute path of the heap profile: the program may have changed its folder when it ends. Ends the process
 * if the file cannot be written. */
static void check_profile(const char *given, char path[PATH_MAX])
{
    char folder[PATH_MAX] = "";
    struct stat status;
    if (given[0] != '/') {
        if (!getcwd(folder, sizeof folder))
            words_fail("the current folder: %s", strerror(errno));
        strncat(folder, "/", sizeof folder - strlen(folder) - 1);
    }
    join(path, folder, given);
    join(folder, path, "");
    *strrchr(folder, '/') = '\0';
    const char *place = *folder ? folder : "/";
    bool known = stat(place, &status) == 0;
    if (known ? !S_ISDIR(status.st_mode) : errno != EACCES)
        words_refuse("--heap-profile %s: there is no folder %s", given, place);
    if (access(place, X_OK) != 0)
        words_refuse("--heap-profile %s: %s cannot be looked into", given, place);
    if (is_folder(path))
        words_refuse("--heap-profile %s is a folder", given);
    if (access(place, W_OK) != 0)
        words_refuse("--heap-profile %s: %s cannot be written to", given, place);
    if (access(path, F_OK) == 0 && access(path, W_OK) != 0)
        words_refuse("--heap-profile %s: %s cannot be written to", given, path);
}

/* Refuses the name of an option that the library lacks, and names the one that is spelled alike. */
static _Noreturn void refuse_setting(const char *option, const char *setting, const char *name,
                                     const struct mapped_file *library)
{
    static const char prefix[] = "HAKMEM_";
    const char *at = (const char *)library->bytes, *end = at + library->size, *alike = NULL;
    size_t least = ALIKE_FAR;
    while ((at = memmem(at, (size_t)(end - at), prefix, sizeof prefix - 1))) {
        size_t length = strnlen(at, (size_t)(end - at));
        size_t far = length < WORD_BYTES ? words_distance(name, strlen(name), at, least) : least;
        if (far < least && at[length - 1] != '_' && strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") == length) {
            least = far;
            alike = at;
        }
        at += sizeof prefix - 1;
    }
    if (alike)
        words_refuse("%s %s: there is no option %s; did you mean %s?", option, setting, name, alike);
    words_refuse("%s %s: there is no option %s; man 7 hakmem and docs/options.md list them", option, setting, name);
}

/* Writes the variable's name for the value NAME=VALUE of an option such as --set, and returns VALUE. NAME may lack
 * HAKMEM_, and be in either case. The options that a library knows stand in it as texts. */
static const char *read_setting(const char *option, const char *setting, const struct mapped_file *library,
                                char name[NAME_BYTES])
{
    static const char prefix[] = "HAKMEM_";
    enum { PREFIX = sizeof prefix - 1 };
    const char *equals = strchr(setting, '=');
    int length = (int)(equals - setting);
    bool whole = length >= PREFIX && strncasecmp(setting, prefix, PREFIX) == 0;
    int written = snprintf(name, NAME_BYTES, "%s%.*s", whole ? "" : prefix, length, setting);
    for (char *letter = name; *letter; letter++)
        *letter = (char)toupper((unsigned char)*letter);
    /* Comparing the final zero byte tells an option from the beginning of another. */
    if (written >= NAME_BYTES || written <= PREFIX || name[written - 1] == '_' ||
        !memmem(library->bytes, library->size, name, (size_t)written + 1))
        refuse_setting(option, setting, name, library);
    return equals + 1;
}

/* ---- The library ---- */

/* Writes the path of the library that the words ask for. Ends the process if it is missing. */
static void find_library(const struct words *words, char library[PATH_MAX])
{
    char build[PATH_MAX];
    const char *chosen = getenv("HAKMEM_BUILD_DIR");
    if (chosen && *chosen) {
        if (!realpath(chosen, build))
            join(build, chosen, "");
    } else {
        chosen = NULL;
        if (!realpath("/proc/self/exe", build))
            words_fail("/proc/self/exe: %s", strerror(errno));
        for (int i = 0; i < 2; i++)
            *strrchr(build, '/') = '\0';
    }
    join(library, build, words->secure ? "/lib/libhakmem-secure.so" : "/lib/libhakmem.so");
    if (words->profile && !chosen) {
        join(library, build, "/CMakeCache.txt"); /* a build has it, a wheel does not */
        if (access(library, F_OK) == 0) {
            *strrchr(build, '/') = '\0';
            join(library, build, "/cycles/lib/libhakmem.so");
        } else {
            join(library, build, "/lib/cycles/libhakmem.so");
        }
    }
    if (access(library, F_OK) != 0)
        words_fail("%s is not there; ./hakmem build %sin a checkout builds it", library,
                   words->profile ? "cycles " : "");
    if (library[strcspn(library, SEPARATORS)])
        words_fail("LD_PRELOAD cannot name %s: there is a blank or a colon in it", library);
}

/* Puts the library before what is preloaded already. */
static void preload(const char *library)
{
    const char *before = getenv("LD_PRELOAD");
    if (!before || !*before) {
        set_variable("LD_PRELOAD", library);
        return;
    }
    size_t size = strlen(library) + strlen(before) + 2;
    char *both = malloc(size);
    if (!both)
        words_fail("there is no memory for LD_PRELOAD");
    snprintf(both, size, "%s:%s", library, before);
    set_variable("LD_PRELOAD", both);
    free(both);
}

/* ---- Modes ---- */

static int tell_needs(const struct words *words)
{
    printf("%s %s %s\n", words->profile ? "cycles" : "release", words->secure ? "hakmem-secure" : "hakmem",
           words->budget ? "budget" : words->heap_profile ? "profile" : "nothing");
    return 0;
}

static int tell_why(const char *library, const char *name)
{
    char path[PATH_MAX], why[WHY_BYTES];
    require_program(name, path);
    effect_obstacle(path, library, why, sizeof why);
    fputs(why, stdout);
    return 0;
}

static int tell_setting(const char *option, const char *library, const char *setting)
{
    struct mapped_file file;
    char name[NAME_BYTES];
    words_check_setting(option, setting);
    if (!effect_map_file(library, &file))
        words_fail("%s cannot be read", library);
    const char *value = read_setting(option, setting, &file, name);
    printf("%s=%s", name, value);
    return 0;
}

/* Sets PROGRAM's environment, and says what the user will miss. */
static void prepare(const struct words *words, const char *path, const char *profile)
{
    char library[PATH_MAX], why[WHY_BYTES];
    struct mapped_file file;
    find_library(words, library);
    if (words->stats)
        set_variable("HAKMEM_SHOW_STATS", words->stats);
    if (words->profile)
        set_variable("HAKMEM_TINY_PROFILE", "1");
    if (words->heap_profile)
        set_variable("HAKMEM_HEAP_PROFILE", profile);
    if (!effect_map_file(library, &file))
        words_fail("%s cannot be read", library);
    for (const char **setting = words->settings; *setting; setting++) {
        char name[NAME_BYTES];
        const char *value = read_setting("--set", *setting, &file, name);
        set_variable(name, value);
    }
    preload(library);
    effect_obstacle(path, library, why, sizeof why);
    if (*why && words->budget)
        words_fail("--budget: HAKMEM can tell nothing of this program: %s", why);
    print_field("budget", words->budget);
    print_field("markdown", words->markdown);
    print_field("profile", words->heap_profile);
    print_field("program", words->program[0]);
    print_field("why", *why ? why : NULL);
    if (planning)
        return;
    if (*why)
        words_say("no effect: %s%s%s%s", why, words->heap_profile ? "; " : "",
                  words->heap_profile ? words->heap_profile : "", words->heap_profile ? " will not be written" : "");
    else if (words->heap_profile && effect_is_go(path))
        words_say("%s is a Go program: the profile has what its C code allocates, and nothing of Go's own heap",
                  words->program[0]);
}

int main(int count, char **list)
{
    const char *mode = count > 1 ? list[1] : "";
    char path[PATH_MAX], profile[PATH_MAX] = "";
    if (strcmp(mode, "why") == 0 && count == 4)
        return tell_why(list[2], list[3]);
    if (strcmp(mode, "setting") == 0 && count == 5)
        return tell_setting(list[2], list[3], list[4]);
    planning = strcmp(mode, "plan") == 0;
    bool needs = strcmp(mode, "needs") == 0;
    if (!planning && !needs && strcmp(mode, "run") != 0) {
        fputs("usage: hakmem-run run|needs|plan [OPTIONS] [--] PROGRAM [ARGUMENTS]\n"
              "       hakmem-run why LIBRARY PROGRAM\n"
              "       hakmem-run setting OPTION LIBRARY NAME=VALUE\n", stderr);
        return WRONG;
    }
    static struct words words; /* static, or a sanitizer takes its settings for lost */
    words = words_read(count - 1, list + 1);
    if (words.heap_profile)
        check_profile(words.heap_profile, profile);
    require_program(words.program[0], path);
    if (needs)
        return tell_needs(&words);
    prepare(&words, path, profile);
    if (planning)
        return 0;
    for (size_t i = 0; i < sizeof TOOLS_OWN / sizeof TOOLS_OWN[0]; i++)
        unsetenv(TOOLS_OWN[i]);
    execv(path, words.program);
    int error = errno;
    struct mapped_file file;
    /* As shells do: execvp hands unknown files to sh, but sh is of no use for a damaged ELF file. */
    if (error == ENOEXEC && !(effect_map_file(path, &file) && file.bytes[0] == '\x7f'))
        execvp(path, words.program);
    words_say("cannot run %s: %s", words.program[0], strerror(error));
    return NOT_EXECUTABLE;
}
