/* Runs the C core of pycachesim as a peer of `make bench`: its cache code without the Python calls around it.
 *
 *     pycachesim TRACE SETSxWAYS [SETSxWAYS ...]
 *
 * TRACE holds line numbers of 32 bits; the levels follow, the nearest first. For each line on standard input the program
 * passes the trace through the caches once and prints `pass SECONDS HITS`: its CPU time, and the accesses that some level
 * answered. It knows nothing of Waykeeper. scripts/install_peers.py compiles it against pycachesim's own source. */
#include "backend.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LINE_BITS = 6, LRU = 1 };

static void *zeroed(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL) {
        perror("calloc");
        exit(1);
    }
    return memory;
}

/* A write-back LRU cache before `next`, set up as pycachesim's own reader of cache definitions does. */
static Cache *level(long sets, long ways, Cache *next) {
    Cache *cache = zeroed(1, sizeof *cache);
    cache->name = "level";
    cache->sets = sets;
    cache->ways = ways;
    cache->cl_size = 1 << LINE_BITS;
    cache->cl_bits = LINE_BITS;
    cache->subblock_size = cache->cl_size;
    cache->subblock_bits = 1;
    cache->replacement_policy_id = LRU;
    cache->write_back = 1;
    cache->write_allocate = 1;
    cache->load_from = next;
    cache->store_to = next;
    cache->placement = zeroed((size_t)(sets * ways), sizeof *cache->placement);
    for (long i = 0; i < sets * ways; i++)
        cache->placement[i].invalid = 1;
    return cache;
}

/* The trace as ranges of addresses, which is what pycachesim loads. Consecutive lines become one range if that at least
 * halves the number of ranges: one long range is its fastest input for a stream. */
static size_t read_trace(const char *path, addr_range **ranges, size_t *lines) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    fseek(file, 0, SEEK_END);
    *lines = (size_t)ftell(file) / sizeof(uint32_t);
    rewind(file);
    uint32_t *numbers = zeroed(*lines, sizeof *numbers);
    if (fread(numbers, sizeof *numbers, *lines, file) != *lines) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(2);
    }
    fclose(file);
    size_t runs = 0;
    for (size_t i = 0; i < *lines; i++)
        runs += i == 0 || numbers[i] != numbers[i - 1] + 1;
    int join = runs <= *lines / 2;
    *ranges = zeroed(join ? runs : *lines, sizeof **ranges);
    size_t count = 0;
    for (size_t i = 0; i < *lines; i++) {
        if (join && i > 0 && numbers[i] == numbers[i - 1] + 1)
            (*ranges)[count - 1].length += 1 << LINE_BITS;
        else
            (*ranges)[count++] = (addr_range){(long)numbers[i] << LINE_BITS, 1 << LINE_BITS};
    }
    free(numbers);
    return count;
}

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s TRACE SETSxWAYS [SETSxWAYS ...]\n", argv[0]);
        return 2;
    }
    Cache *nearest = NULL, *last = NULL;
    for (int i = argc - 1; i >= 2; i--) {
        long sets, ways;
        if (sscanf(argv[i], "%ldx%ld", &sets, &ways) != 2 || sets < 1 || ways < 1) {
            fprintf(stderr, "%s: expected SETSxWAYS\n", argv[i]);
            return 2;
        }
        nearest = level(sets, ways, nearest);
        last = last == NULL ? nearest : last;
    }
    addr_range *ranges;
    size_t lines, count = read_trace(argv[1], &ranges, &lines);
    for (int asked; (asked = getchar()) != EOF;) {
        if (asked != '\n')
            continue;
        long long misses = last->MISS.count;
        double start = cpu_s();
        for (size_t i = 0; i < count; i++)
            Cache__load(nearest, ranges[i]);
        double took = cpu_s() - start;
        printf("pass %.9f %lld\n", took, (long long)lines - (last->MISS.count - misses));
        fflush(stdout);
    }
    return 0;
}
