/* Uses userfaultfd(2) itself, from within a window. */
#include "window.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

int main(void) {
    uint64_t *all = filled(64);
    wait_for_window(all, 64);
    int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register range = {.range = {(uintptr_t)all, 64 * PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) != 0 || ioctl(fd, UFFDIO_REGISTER, &range) != 0) {
        perror("userfaultfd");
        return 1;
    }
    printf("hurt %zu\n", hurt(all, 0, 64));
    return 0;
}
