/*
 * Lets a program mount and unmount the resctrl of a virtual host, and find it in /proc/self/mountinfo. Preloaded (LD_PRELOAD) into
 * programs that use the C library's mount, umount, umount2 and fopen; WAYKEEPER_RESCTRL names the tree's switch,
 * DIR/waykeeper/resctrl. Calls for any other file system or file pass through. It must not know which program calls.
 *
 * It also shows a machine of two CPUs to sched_setaffinity: results depend less on the machine, and a test that binds process 1 to a
 * CPU of the virtual server changes no process of the machine.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOUNT_POINT "/sys/fs/resctrl"
#define MOUNTINFO "/proc/self/mountinfo"
#define CPUS 2

/* The line of proc(5) that a kernel has for resctrl. The mount's id is one that no mount of this machine reaches. */
#define MOUNTINFO_LINE "2147483647 1 0:2147483647 / " MOUNT_POINT " rw,relatime - resctrl resctrl rw\n"

/* Opens the switch; ENODEV without one. */
static int open_switch(int flags)
{
	const char *path = getenv("WAYKEEPER_RESCTRL");
	int file = path ? open(path, flags | O_CLOEXEC) : -1;

	if (file < 0)
		errno = ENODEV;
	return file;
}

/* Writes a command to the switch; the tree answers with the errors of mount(2) and umount(2). */
static int command(const char *text)
{
	int file = open_switch(O_WRONLY);
	ssize_t written;
	int error;

	if (file < 0)
		return -1;
	written = write(file, text, strlen(text));
	error = errno;
	close(file);
	errno = error;
	return written < 0 ? -1 : 0;
}

static int is_mounted(void)
{
	char text[16] = "";
	int file = open_switch(O_RDONLY);

	if (file < 0)
		return 0;
	if (read(file, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(file);
	return !strncmp(text, "mounted", strlen("mounted"));
}

int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)
{
	int (*next)(const char *, const char *, const char *, unsigned long, const void *) = dlsym(RTLD_NEXT, "mount");
	char text[256];

	if (!type || strcmp(type, "resctrl"))
		return next(source, target, type, flags, data);
	if (strcmp(target, MOUNT_POINT)) {
		errno = ENOENT;
		return -1;
	}
	if (snprintf(text, sizeof(text), "mount %s", data ? (const char *)data : "") >= (int)sizeof(text)) {
		errno = EINVAL;
		return -1;
	}
	return command(text);
}

int umount2(const char *target, int flags)
{
	int (*next)(const char *, int) = dlsym(RTLD_NEXT, "umount2");

	return strcmp(target, MOUNT_POINT) ? next(target, flags) : command("umount");
}

int umount(const char *target)
{
	return umount2(target, 0);
}

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

/* The mounts of this process and, while it is mounted, resctrl. */
FILE *fopen(const char *path, const char *mode)
{
	FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen");
	FILE *all, *own;
	char part[4096];
	size_t length;
	int file;

	if (strcmp(path, MOUNTINFO) || !is_mounted())
		return next(path, mode);
	own = next(path, "re");
	file = memfd_create("mountinfo", MFD_CLOEXEC);
	all = file < 0 ? NULL : fdopen(file, "r+");
	if (!own || !all) {
		int error = errno;

		if (all)
			fclose(all);
		else if (file >= 0)
			close(file);
		if (own)
			fclose(own);
		errno = error;
		return NULL;
	}
	while ((length = fread(part, 1, sizeof(part), own)) > 0)
		fwrite(part, 1, length, all);
	fclose(own);
	fputs(MOUNTINFO_LINE, all);
	rewind(all);
	return all;
}

FILE *fopen64(const char *path, const char *mode)
{
	return fopen(path, mode);
}
