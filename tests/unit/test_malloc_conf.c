/* Protects options/malloc_conf.c: jemalloc's settings change HAKMEM's options, and wrong ones get messages. */
#include "core.h"

#include <stdio.h>
#include <string.h>

#include "options/malloc_conf.h"

static char variable[1024];
static char *environment[3] = { variable };

/* Reads the settings. Returns the messages. */
static const char *read_conf(const char *text)
{
    snprintf(variable, sizeof variable, "MALLOC_CONF=%s", text);
    fake_set_environment(environment);
    capture_begin();
    options_read();
    return capture_end();
}

static void assert_accepted(const char *text) { assert_string_equal(read_conf(text), ""); }

static void test_delay(void)
{
    assert_accepted("dirty_decay_ms:123");
    assert_int_equal(hak_options.purge_delay, 123);
    assert_accepted("dirty_decay_ms:0");
    assert_int_equal(hak_options.purge_delay, 0);
    assert_accepted("dirty_decay_ms:-1");
    assert_int_equal(hak_options.purge_delay, 3600000);
    assert_accepted("dirty_decay_ms:3600001");
    assert_int_equal(hak_options.purge_delay, 3600000);
    for (size_t i = 0; i < 6; i++) {
        static const char *const wrong[] = { "x", "1x", "-", "", "-2", "99999999999999999999999" };
        char text[100];
        snprintf(text, sizeof text, "dirty_decay_ms:%s", wrong[i]);
        assert_has(read_conf(text), "not a value of that name; ignored");
    }
}

static void test_switches(void)
{
    assert_accepted("background_thread:true");
    assert_int_equal(hak_options.purge_thread, OPTION_ALWAYS);
    assert_accepted("background_thread:false");
    assert_int_equal(hak_options.purge_thread, OPTION_NEVER);
    assert_accepted("confirm_conf:true");
    assert_int_equal(hak_options.verbose, 1);
    assert_accepted("confirm_conf:false");
    assert_int_equal(hak_options.verbose, 0);
    assert_has(read_conf("confirm_conf:yes"), "MALLOC_CONF: confirm_conf:yes: not a value of that name");
    assert_accepted("prof_active:false");
    assert_false(malloc_conf_said.prof_active);
    assert_accepted("prof_active:true");
    assert_true(malloc_conf_said.prof_active);
}

static void test_powers_of_two(void)
{
    assert_accepted("lg_prof_sample:10");
    assert_int_equal(hak_options.heap_profile_rate, 1024);
    assert_accepted("lg_prof_sample:0");
    assert_int_equal(hak_options.heap_profile_rate, 1);
    assert_accepted("lg_prof_interval:30");
    assert_int_equal(hak_options.heap_profile_interval, 1 << 30);
    assert_accepted("lg_prof_interval:-1");
    assert_int_equal(hak_options.heap_profile_interval, 0);
    assert_has(read_conf("lg_prof_interval:41"), "not a value of that name");
    assert_has(read_conf("lg_prof_interval:64"), "not a value of that name");
}

static void test_words(void)
{
    assert_accepted("thp:always");
    assert_int_equal(hak_options.thp, OPTION_ALWAYS);
    assert_accepted("thp:never");
    assert_int_equal(hak_options.thp, OPTION_NEVER);
    assert_accepted("thp:default");
    assert_int_equal(hak_options.thp, OPTION_AUTO);
    assert_has(read_conf("thp:sometimes"), "not a value of that name");
}

static void test_statistics(void)
{
    uint64_t text;

    assert_accepted("stats_print:false");
    assert_int_equal(hak_options.show_stats, OPTION_NONE);
    assert_accepted("stats_print:true");
    text = hak_options.show_stats;
    assert_int_not_equal(text, OPTION_NONE);
    hak_options.show_stats = OPTION_NONE;
    assert_accepted("stats_print_opts:g");
    assert_int_equal(hak_options.show_stats, OPTION_NONE);
    assert_accepted("stats_print_opts:gJ,stats_print:true"); /* the second name leaves JSON as it is */
    assert_int_not_equal(hak_options.show_stats, OPTION_NONE);
    assert_int_not_equal(hak_options.show_stats, text);
}

static void test_profile(void)
{
    assert_accepted("prof:true");
    assert_null(option_path(hak_options.heap_profile));
    assert_accepted("prof:false,prof_final:true");
    assert_null(option_path(hak_options.heap_profile));
    assert_accepted("prof:true,prof_final:true,prof_prefix:/tmp/mine");
    assert_string_equal(option_path(hak_options.heap_profile), "/tmp/mine.%p.%n.heap");
    assert_int_equal(hak_options.leak_report, 0);
    assert_accepted("prof:true,prof_leak:true");
    assert_int_equal(hak_options.leak_report, 1);
}

static void test_interval_writes_files(void)
{
    assert_accepted("prof:true,lg_prof_interval:30");
    assert_string_equal(option_path(hak_options.heap_profile), "jeprof.%p.%n.heap");
}

static void test_names(void)
{
    const char *said = read_conf("narenas:4,prof_gdump:true,hpa_sec_nshards:1,dirty_decay_ms:7,zero:false");

    assert_has(said, "MALLOC_CONF: these have no meaning in HAKMEM: narenas prof_gdump hpa_sec_nshards zero (docs/");
    assert_int_equal(hak_options.purge_delay, 7);
    said = read_conf("narena:4,narenas_:4,dirty_decay_ms:8");
    assert_has(said, "MALLOC_CONF: narena:4: jemalloc has no such name; ignored");
    assert_has(said, "MALLOC_CONF: narenas_:4: jemalloc has no such name; ignored");
    assert_int_equal(hak_options.purge_delay, 8);
}

static void test_no_pairs(void)
{
    static const char *const wrong[] = { "dirty_decay_ms", "dirty_decay_ms,9", ",dirty_decay_ms:9", "thp:never,9" };
    char longer[600];
    const char *said;

    for (size_t i = 0; i < 4; i++)
        assert_has(read_conf(wrong[i]), "expected a name, a colon and a value; the rest is ignored");
    assert_int_not_equal(hak_options.purge_delay, 9);

    memset(longer, 'n', sizeof longer);
    memcpy(longer + 63, ":1", 3); /* the longest name that there is room for */
    assert_has(read_conf(longer), "jemalloc has no such name");
    /* The message has as much of a longer name as there is room for, and nothing of the pair before it. */
    memset(longer, 'n', sizeof longer);
    memset(longer, 'v', 300);
    memcpy(longer, "prof_prefix:", 12);
    longer[240] = ',';
    memcpy(longer + 241 + 64, ":1", 3);
    memset(longer + 241, 'n', 64);
    said = read_conf(longer);
    assert_has(said, "nnn: expected a name, a colon and a value; the rest is ignored");
    assert_has_not(said, "vvv");

    memset(longer, 'v', sizeof longer);
    memcpy(longer, "prof_prefix:", 12);
    longer[12 + 255] = '\0';
    assert_accepted(longer);
    assert_int_equal(strlen(malloc_conf_said.prof_prefix), 255);
    longer[12 + 255] = 'v';
    longer[12 + 256] = '\0';
    assert_has(read_conf(longer), "MALLOC_CONF: prof_prefix: the value is longer than 255 characters");
}

static void read_wrong(void) { options_read(); }

static void test_abort(void)
{
    assert_has(read_conf("nothing:1"), "no such name"); /* and the process goes on */
    assert_accepted("abort_conf:true,dirty_decay_ms:7");
    snprintf(variable, sizeof variable, "MALLOC_CONF=abort_conf:true,nothing:1");
    assert_aborts(read_wrong, "MALLOC_CONF: abort_conf:true ends the program");
}

/* The program's variable counts less than MALLOC_CONF, and HAKMEM_VERBOSE reports its names without a meaning. */
static void test_variable_of_the_program(void)
{
    static char *none[] = { NULL };

    malloc_conf = "dirty_decay_ms:5,narenas:1,background_thread:true";
    fake_set_environment(none);
    capture_begin();
    options_read();
    assert_string_equal(capture_end(), "");
    assert_int_equal(hak_options.purge_delay, 5);
    assert_string_equal(malloc_conf_said.program_text, malloc_conf);
    assert_accepted("dirty_decay_ms:6");
    assert_int_equal(hak_options.purge_delay, 6);
    assert_int_equal(hak_options.purge_thread, OPTION_ALWAYS);
    malloc_conf = "confirm_conf:true,narenas:1";
    fake_set_environment(none);
    capture_begin();
    options_read();
    assert_has(capture_end(), "malloc_conf: these have no meaning in HAKMEM: narenas");
}

/* HAKMEM's own variables count most. */
static void test_own_variables(void)
{
    environment[1] = "HAKMEM_PURGE_DELAY=44";
    assert_accepted("dirty_decay_ms:6");
    assert_int_equal(hak_options.purge_delay, 44);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_delay),
        core_unit_test(test_switches),
        core_unit_test(test_powers_of_two),
        core_unit_test(test_words),
        core_unit_test(test_statistics),
        core_unit_test(test_profile),
        core_unit_test(test_interval_writes_files),
        core_unit_test(test_names),
        core_unit_test(test_no_pairs),
        core_unit_test(test_abort),
        core_unit_test(test_variable_of_the_program),
        core_unit_test(test_own_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
