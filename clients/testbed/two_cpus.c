/*
 * Shows a program a machine of two CPUs when it binds a process to one. Preloaded (LD_PRELOAD), so that results do not depend on the
 * machine, and so that a test that binds process 1 to a CPU of the virtual server changes no process of the machine. It must not know
 * which program calls.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>

#define CPUS 2

/* EINVAL for a mask without a CPU that is there, as in the kernel. */
int sched_setaffinity(pid_t pid, size_t size, const cpu_set_t *mask)
{
	int (*next)(pid_t, size_t, const cpu_set_t *) = dlsym(RTLD_NEXT, "sched_setaffinity");
	int cpu;

	for (cpu = 0; cpu < CPUS; cpu++)
		if (CPU_ISSET_S(cpu, size, mask))
			return next(pid, size, mask);
	errno = EINVAL;
	return -1;
}
