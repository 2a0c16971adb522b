/* children: the CPUs that processes may use which a program starts from threads that a policy binds.
 *
 * stdout: a line for each way to start a process, with the CPUs by the child's own sched_getaffinity, and whether its
 * OpenMP runtime would start as many threads as it may use CPUs. It is the same with and without a policy, so a
 * child that runs OpenMP is asked before its first region. stderr: the CPUs of this program's own threads.
 */
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *self;

static const char *cpus(void) {
    static __thread char text[256];
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    text[0] = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set)) sprintf(text + strlen(text), " %d", cpu);
    return text;
}

static void pin(int first, int last) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = first; cpu <= last; cpu++) CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set)) perror("sched_setaffinity"), exit(1);
}

static void ended(const char *who, pid_t pid) {
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status) printf("%s failed: %d\n", who, status), exit(1);
}

static void shell(const char *way, const char *before) {
    char command[512];
    snprintf(command, sizeof command, "%s %s '%s'; true", before, self, way);
    if (system(command)) printf("%s failed\n", way), exit(1);
}

static void spawn(char *way, char **environment) {
    char *argv[] = {self, way, NULL};
    pid_t pid = -1;
    if (posix_spawn(&pid, self, NULL, NULL, argv, environment)) perror(way);
    ended(way, pid);
}

static void *in_thread(void *unused) {
    printf("thread of a fork%s\n", cpus());
    fflush(stdout);
    return unused;
}

static void all_ways(void) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        printf("fork%s\n", cpus());
        fflush(stdout);
        for (int i = 0; i < 3; i++) { /* one after another, each the only one of its time */
            pthread_t thread;
            pthread_create(&thread, NULL, in_thread, NULL);
            pthread_join(thread, NULL);
        }
        pid = fork();
        if (pid == 0) printf("fork of a fork%s\n", cpus()), fflush(stdout), _exit(0);
        ended("fork of a fork", pid);
        execl(self, self, "fork and execl", (char *)NULL);
        _exit(1);
    }
    ended("fork", pid);
    if ((pid = vfork()) == 0) execlp(self, self, "vfork and execlp", (char *)NULL), _exit(1);
    ended("vfork", pid);
    char *argv[] = {self, "vfork and execve", NULL}, *none[] = {NULL};
    if ((pid = vfork()) == 0) execve("/nonexistent", argv, environ), execve(self, argv, environ), _exit(1);
    ended("vfork", pid);
    argv[1] = "vfork and execvpe, empty environment";
    if ((pid = vfork()) == 0) execvpe(self, argv, none), _exit(1);
    ended("vfork", pid);
    argv[1] = "clone and execv";
    if ((pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) == 0) execv(self, argv), _exit(1);
    ended("clone", pid);
    shell("system", "");
    shell("system, shell in a shell, env -i", "sh -c '\"$@\"' x env -i");
    shell("system, taskset to another CPU", "taskset -c 2");
    shell("system, taskset to all", "taskset -c 0-3");
    shell("system, taskset to CPU 0", "taskset -c 0");
    shell("system, taskset to CPU 3", "taskset -c 3");
    shell("system, static taskset to CPU 0", "busybox taskset 1");
    if (system("busybox grep Cpus_allowed /proc/self/status")) printf("grep failed\n");
    spawn("spawn", environ);
    spawn("spawn, empty environment", none);
    FILE *f = popen("/work/children popen", "r");
    char line[512];
    while (f && fgets(line, sizeof line, f)) fputs(line, stdout);
    if (!f || pclose(f)) printf("popen failed\n");
    fflush(stdout);
}

int main(int argc, char **argv) {
    self = argv[0];
    if (argc > 1) {
        char name[64];
        snprintf(name, sizeof name, "%s", argv[1]);
        const char *may = cpus();
        int threads = omp_get_max_threads(), team = 0;
        #pragma omp parallel reduction(+ : team)
        team++;
        printf("%s%s, threads %d %d\n", name, may, threads, team);
        return 0;
    }
    if ((self = realpath(argv[0], NULL)) == NULL) return 1;
    #pragma omp parallel num_threads(4)
    #pragma omp critical
    fprintf(stderr, "thread %d%s\n", omp_get_thread_num(), cpus());
    printf("=== main\n");
    all_ways();
    fprintf(stderr, "main afterwards%s\n", cpus());
    #pragma omp parallel num_threads(4)
    if (omp_get_thread_num() == 3) {
        printf("=== worker\n");
        all_ways();
        fprintf(stderr, "worker afterwards%s\n", cpus());
    }
    /* What the program sets is the children's, too. */
    printf("=== set by the program\n");
    pin(1, 2);
    all_ways();
    return 0;
}
