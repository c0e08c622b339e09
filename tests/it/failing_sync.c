/* Preloaded into the process under test: one sync fails, as on a dying disk.
 *
 * While the file named by FAIL_SYNC_ARMED is there, the next fsync or fdatasync of a file whose path contains
 * FAIL_SYNC_OF takes that file away and fails with EIO. Every other one works. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(int fd) {
    char link[64], path[4096];
    const char *armed = getenv("FAIL_SYNC_ARMED"), *of = getenv("FAIL_SYNC_OF");
    if (!armed || !of) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    if (!strstr(path, of) || unlink(armed) != 0) return 0;
    errno = EIO;
    return 1;
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return fails(fd) ? -1 : real(fd);
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return fails(fd) ? -1 : real(fd);
}
