/* Loaded before the C library: the n-th write of this process, from when it is told, is done by half.

   What follows may be refused for a while, as by a disk that is full. strace can refuse a call, and cannot shorten one. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static const char *told = "";
static char kind;
static long left = 0, refusals = 0;

/* Of writes ('w'), writes at an offset ('p') or sends ('s') the n-th; then so many are refused. A file says that it came. */
void shorten(char which, long nth, long refused, const char *met) {
    kind = which;
    left = nth;
    refusals = refused;
    told = met;
}

/* How much of it is done; -1: nothing, there is no room. One byte has no half. */
static ssize_t allowed(char which, size_t size) {
    if (which != kind || size < 2 || (left <= 0 && refusals <= 0)) return size;
    if (left <= 0) {
        refusals--;
        errno = ENOSPC;
        return -1;
    }
    if (--left > 0) return size;
    close(open(told, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    return size / 2;
}

ssize_t write(int fd, const void *data, size_t size) {
    ssize_t some = allowed('w', size);
    return some < 0 ? some : syscall(SYS_write, fd, data, some);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    ssize_t some = allowed('p', size);
    return some < 0 ? some : syscall(SYS_pwrite64, fd, data, some, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    return pwrite64(fd, data, size, offset);
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
    ssize_t some = allowed('s', size);
    return some < 0 ? some : syscall(SYS_sendto, fd, data, some, flags, NULL, 0);
}
