// record: kernel
// case: a group's limit of CPU time, which keeps a thread from running while CPUs are idle
// finds: kept from running|cpu.max
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GROUP_1 "/sys/fs/cgroup/cpu/throttled"
#define GROUP_2 "/sys/fs/cgroup/throttled"

static int put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (!file) return 0;
    int ok = fputs(text, file) >= 0;
    return fclose(file) == 0 && ok;
}

static int join_limited_group(void) {
    char self[16];
    snprintf(self, sizeof self, "%d", (int)getpid());
    // A fifth of a CPU, by version 1 or 2 of the kernel's interface.
    if (access("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", F_OK) == 0) {
        mkdir(GROUP_1, 0755);
        return put(GROUP_1 "/cpu.cfs_period_us", "50000") && put(GROUP_1 "/cpu.cfs_quota_us", "10000") &&
               put(GROUP_1 "/cgroup.procs", self);
    }
    put("/sys/fs/cgroup/cgroup.subtree_control", "+cpu");
    mkdir(GROUP_2, 0755);
    return put(GROUP_2 "/cpu.max", "10000 50000") && put(GROUP_2 "/cgroup.procs", self);
}

static long milliseconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void) {
    struct sched_param none = {0};
    // The limit is one of threads that share CPUs in turn.
    if (sched_setscheduler(0, SCHED_OTHER, &none) != 0 || !join_limited_group()) {
        perror("throttled");
        return EXIT_FAILURE;
    }
    while (milliseconds(CLOCK_PROCESS_CPUTIME_ID) < 300) {
    }
    return EXIT_SUCCESS;
}
