/* Preloaded into a benchmark process: counts its flushes, and makes each take longer, as on a disk with slow flushes.
 *
 * Flushes are fsync, fdatasync, msync with MS_SYNC, syncfs and sync. No contender opens files with O_SYNC or O_DSYNC.
 * bench_flush_delay_us is 0 until the process sets it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

long bench_flush_delay_us = 0;
long bench_flushes = 0;

static void flushed(void) {
    long microseconds = bench_flush_delay_us;
    int before = errno;
    struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
    __atomic_add_fetch(&bench_flushes, 1, __ATOMIC_RELAXED);
    while (microseconds > 0 && nanosleep(&left, &left) && errno == EINTR) {
    }
    errno = before;
}

/* A function of the C library, looked up once. A race stores the same address twice. */
#define REAL(name)                          \
    static __typeof__(name) *real;          \
    if (!real)                              \
        real = dlsym(RTLD_NEXT, #name)

#define FLUSH(name, parameters, arguments, when) \
    int name parameters {                        \
        REAL(name);                              \
        int result = real arguments;             \
        if (when)                                \
            flushed();                           \
        return result;                           \
    }

FLUSH(fsync, (int descriptor), (descriptor), 1)
FLUSH(fdatasync, (int descriptor), (descriptor), 1)
FLUSH(syncfs, (int descriptor), (descriptor), 1)
FLUSH(msync, (void *address, size_t length, int flags), (address, length, flags), flags & MS_SYNC)

void sync(void) {
    REAL(sync);
    real();
    flushed();
}
