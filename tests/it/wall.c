/* Preloaded by tests: shifts the wall clock by the seconds that stand first in the file named by WALL_FILE, and answers
 * adjtimex as if the clock were synchronised where a 1 stands second. Every other clock is the machine's. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

static void look(long long *shift, int *synchronised)
{
    char text[64];
    const char *name = getenv("WALL_FILE");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    *shift = 0;
    *synchronised = 1;
    if (file < 0)
        return;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    if (length <= 0)
        return;
    text[length] = 0;
    sscanf(text, "%lld %d", shift, synchronised);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    long long shift;
    int synchronised;
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) {
        look(&shift, &synchronised);
        time->tv_sec += shift;
    }
    return result;
}

int adjtimex(struct timex *request)
{
    long long shift;
    int synchronised;
    (void)request;
    look(&shift, &synchronised);
    return synchronised ? TIME_OK : TIME_ERROR;
}
