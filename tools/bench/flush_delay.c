/* Preloaded into a benchmark process: makes every flush take longer, as on a disk whose flushes are slow.
 *
 * Flushes are fsync, fdatasync, msync with MS_SYNC, syncfs, sync, and each write to a file opened with O_DSYNC or O_SYNC (LMDB
 * writes its meta page that way). sync_file_range flushes no disk cache, so it is left alone.
 *
 * bench_flush_delay_us is 0 until the process sets it; bench_flushes counts the flushes that were delayed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

long bench_flush_delay_us = 0;
long bench_flushes = 0;

static void delay(void) {
    long microseconds = bench_flush_delay_us;
    int before = errno;
    if (microseconds > 0) {
        struct timespec left = {microseconds / 1000000, microseconds % 1000000 * 1000};
        __atomic_add_fetch(&bench_flushes, 1, __ATOMIC_RELAXED);
        while (nanosleep(&left, &left) && errno == EINTR) {
        }
    }
    errno = before;
}

static int flushes_itself(int descriptor) {
    int before = errno, flags;
    if (bench_flush_delay_us <= 0)
        return 0;
    flags = fcntl(descriptor, F_GETFL);
    errno = before;
    return flags >= 0 && (flags & O_DSYNC); /* O_SYNC includes it */
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
            delay();                             \
        return result;                           \
    }

#define WRITE(name, parameters, arguments)       \
    ssize_t name parameters {                    \
        REAL(name);                              \
        ssize_t result = real arguments;         \
        if (flushes_itself(descriptor))          \
            delay();                             \
        return result;                           \
    }

FLUSH(fsync, (int descriptor), (descriptor), 1)
FLUSH(fdatasync, (int descriptor), (descriptor), 1)
FLUSH(syncfs, (int descriptor), (descriptor), 1)
FLUSH(msync, (void *address, size_t length, int flags), (address, length, flags), flags & MS_SYNC)
WRITE(write, (int descriptor, const void *bytes, size_t count), (descriptor, bytes, count))
WRITE(pwrite, (int descriptor, const void *bytes, size_t count, off_t at), (descriptor, bytes, count, at))
WRITE(pwrite64, (int descriptor, const void *bytes, size_t count, off64_t at), (descriptor, bytes, count, at))
WRITE(writev, (int descriptor, const struct iovec *parts, int count), (descriptor, parts, count))
WRITE(pwritev, (int descriptor, const struct iovec *parts, int count, off_t at), (descriptor, parts, count, at))
WRITE(pwritev64, (int descriptor, const struct iovec *parts, int count, off64_t at), (descriptor, parts, count, at))

void sync(void) {
    REAL(sync);
    real();
    delay();
}
