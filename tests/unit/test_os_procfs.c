/* Protects os/procfs.c on files of the test's own: cgroup v1 and v2 limits, memory pressure, statm, the environment. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/procfs.h"

static char root[64], membership[96];

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status;
    (void)kind;
    (void)where;
    return remove(path);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/hakmem-unit-XXXXXX");
    errno = 0;
    if (mkdtemp(root) == NULL)
        return -1;
    snprintf(membership, sizeof membership, "%s/membership", root);
    return 0;
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Writes root/path, and makes its folders. */
static void put(const char *path, const char *text, size_t length)
{
    char full[1600];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        mkdir(full, 0755);
    }
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, length), length);
    close(fd);
}

static void put_text(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

static struct os_memory_bounds bounds(void)
{
    struct os_memory_bounds found;
    char pressure[96];
    snprintf(pressure, sizeof pressure, "%s/pressure", root);
    errno = 4711;
    procfs_memory_bounds(membership, root, pressure, &found);
    int after = errno;
    assert_int_equal(after, 4711);
    return found;
}

static size_t limit(void)
{
    return bounds().max;
}

static void test_cgroup_none(void **state)
{
    (void)state;
    assert_true(limit() == SIZE_MAX); /* no such file */
    put_text("membership", "");
    assert_true(limit() == SIZE_MAX);
    put_text("membership", "rubbish\n::\n0:\n0::/a\n");
    assert_true(limit() == SIZE_MAX); /* no limit file */
    put_text("a/memory.max", "max\n");
    assert_true(limit() == SIZE_MAX);
    put_text("a/memory.max", "");
    assert_true(limit() == SIZE_MAX);
}

static void test_cgroup_v2(void **state)
{
    (void)state;
    put_text("membership", "0::/slice/service/leaf\n");
    put_text("slice/service/leaf/memory.max", "max\n");
    assert_true(limit() == SIZE_MAX);
    put_text("slice/service/leaf/memory.max", "536870912\n");
    assert_true(limit() == 536870912);
    put_text("slice/service/memory.max", "1073741824\n");
    assert_true(limit() == 536870912);
    put_text("slice/memory.max", "268435456\n"); /* the least limit of all parents */
    assert_true(limit() == 268435456);
    put_text("memory.max", "1048576\n"); /* a container sees its own cgroup at the root */
    assert_true(limit() == 1048576);
    put_text("membership", "0::/\n");
    assert_true(limit() == 1048576);
    put_text("membership", "0::/../../elsewhere\n"); /* outside the namespace: the root's limit is seen */
    assert_true(limit() == 1048576);
    put_text("membership", "0::/slice/service/leaf"); /* the file is cut before its end */
    assert_true(limit() == SIZE_MAX);
}

static void test_cgroup_v1(void **state)
{
    (void)state;
    put_text("membership", "12:cpu,cpuacct:/c\n9:memory:/docker/abc\n1:name=systemd:/x\n0::/v2\n");
    put_text("memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
    assert_true(limit() == SIZE_MAX);
    put_text("memory/docker/abc/memory.limit_in_bytes", "209715200\n");
    assert_true(limit() == 209715200);
    put_text("v2/memory.max", "104857600\n");
    assert_true(limit() == 104857600);
    put_text("memory/memory.limit_in_bytes", "52428800\n");
    assert_true(limit() == 52428800);
    put_text("membership", "9:hugetlb,memory:/elsewhere\n");
    assert_true(limit() == 52428800);
    put_text("membership", "9:memoryless:/docker/abc\n");
    assert_true(limit() == SIZE_MAX);
}

/* cgroup v2 beside v1, as in systemd's hybrid layout. */
static void test_cgroup_hybrid(void **state)
{
    (void)state;
    put_text("membership", "4:memory:/box\n0::/box\n");
    put_text("unified/box/memory.max", "8192\n");
    put_text("unified/memory.high", "4096\n");
    assert_true(limit() == 8192);
    assert_true(bounds().high == 4096);
    put_text("memory/box/memory.limit_in_bytes", "4096\n");
    assert_true(limit() == 4096);
}

static void test_cgroup_high(void **state)
{
    (void)state;
    put_text("membership", "0::/slice/leaf\n");
    assert_true(bounds().high == SIZE_MAX);
    put_text("slice/leaf/memory.high", "max\n");
    assert_true(bounds().high == SIZE_MAX);
    put_text("slice/leaf/memory.high", "209715200\n");
    assert_true(bounds().high == 209715200);
    put_text("slice/memory.high", "104857600\n");
    assert_true(bounds().high == 104857600);
    assert_true(bounds().max == SIZE_MAX);
}

/* Pressure comes from the cgroup's own file, or else from the machine's. */
static void test_pressure(void **state)
{
    (void)state;
    put_text("membership", "4:memory:/box\n0::/box\n");
    assert_int_equal(bounds().stall_percent, 0); /* a kernel without pressure stall information */
    put_text("pressure",
             "some avg10=12.99 avg60=1.00 avg300=0.00 total=1\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=0\n");
    assert_int_equal(bounds().stall_percent, 12);
    put_text("unified/box/memory.pressure", "some avg10=3.50 avg60=80.00 avg300=0.00 total=12345\nfull avg10=0.00");
    assert_int_equal(bounds().stall_percent, 3);
    put_text("box/memory.pressure", "some avg10=100.00 avg60=80.00 avg300=0.00 total=12345\n");
    assert_int_equal(bounds().stall_percent, 100);
    put_text("box/memory.pressure", "some avg10=ten\n");
    put_text("unified/box/memory.pressure", "");
    assert_int_equal(bounds().stall_percent, 12);
}

/* Many lines, as processes in Kubernetes have them: more than one read returns. */
static void test_cgroup_long_file(void **state)
{
    (void)state;
    char text[4000] = "";
    for (unsigned i = 20; i > 2; i--)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "%u:controller-%u:/kubepods.slice/kubepods-burstable.slice/"
                 "kubepods-burstable-pod0123456789abcdef.slice/cri-container-"
                 "0123456789abcdef0123456789abcdef.scope\n",
                 i, i);
    strcat(text, "2:memory:/pod\n");
    put_text("membership", text);
    put_text("memory/pod/memory.limit_in_bytes", "1048576\n");
    assert_true(limit() == 1048576);
}

static void test_cgroup_long_path(void **state)
{
    (void)state;
    char line[2200] = "0::/top";
    put_text("top/memory.max", "4096\n");
    while (strlen(line) < 2000)
        strcat(line, "/a-folder-of-a-long-name");
    strcat(line, "\n");
    put_text("membership", line);
    assert_true(limit() == 4096); /* the part that fits is read */
    put_text("top/memory.max", "99999999999999999999999\n");
    assert_true(limit() == SIZE_MAX);
}

static void test_statm(void **state)
{
    (void)state;
    char path[96];
    snprintf(path, sizeof path, "%s/statm", root);
    assert_int_equal(procfs_resident_pages(path), 0);
    put_text("statm", "12345 678 90 1 0 2 0\n");
    assert_int_equal(procfs_resident_pages(path), 678);
    put_text("statm", "12345");
    assert_int_equal(procfs_resident_pages(path), 0);
    put_text("statm", "12345 x");
    assert_int_equal(procfs_resident_pages(path), 0);
}

/* The environment is read once a process, so one test checks which entries are kept, across reads of any size. */
static void test_environment(void **state)
{
    (void)state;
    static char text[200000];
    char path[96];
    size_t length = 0;
    snprintf(path, sizeof path, "%s/environ", root);
    assert_null(procfs_own_environment(path)[0]); /* no file yet: the list is empty, and a later call reads again */

    static const char start[] = "HAKMEM_FIRST=1\0PATH=/bin\0HAKMEM\0HAKMEM=no\0XHAKMEM_A=no\0HAKMEN_A=no\0\0HAKMEM_";
    memcpy(text, start, sizeof start);
    length = sizeof start;
    memset(text + length, 'y', 100000); /* a long variable of another program */
    length += 100001;
    length += (size_t)sprintf(text + length, "HAKMEM_SECOND=two words=3") + 1;
    size_t long_start = length;
    length += (size_t)sprintf(text + length, "HAKMEM_LONG=");
    memset(text + length, 'z', 20000); /* too long: left out, not cut */
    length += 20001;
    assert_true(long_start < length);
    length += (size_t)sprintf(text + length, "HAKMEM_LAST=") + 1;
    put("environ", text, length);

    errno = 4711;
    char *const *list = procfs_own_environment(path);
    int after = errno;
    assert_int_equal(after, 4711);
    assert_string_equal(list[0], "HAKMEM_FIRST=1");
    assert_string_equal(list[1], "HAKMEM_");
    assert_string_equal(list[2], "HAKMEM_SECOND=two words=3");
    assert_string_equal(list[3], "HAKMEM_LAST=");
    assert_null(list[4]);

    put_text("environ", "");
    assert_ptr_equal(procfs_own_environment(path), list);
    assert_string_equal(list[0], "HAKMEM_FIRST=1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cgroup_none, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_cgroup_v2, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_cgroup_v1, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_cgroup_hybrid, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_cgroup_high, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_pressure, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_cgroup_long_file, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_cgroup_long_path, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_statm, make_root, remove_root),
        cmocka_unit_test_setup_teardown(test_environment, make_root, remove_root),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
