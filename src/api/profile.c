/* The names of hakmem/profile.h. */
#include "hakmem/profile.h"

#include "front/sample.h"
#include "options/options.h"
#include "profile/dump.h"

int hak_profile_start(size_t mean)
{
    return front_profile_set(mean ? mean : hak_options.heap_profile_rate);
}

void hak_profile_stop(void)
{
    (void)front_profile_set(0);
}

int hak_profile_write(const char *path)
{
    return dump_write(path);
}

int hak_profile_write_fd(int fd)
{
    return dump_write_fd(fd);
}
