// Breadth-first searches in a random graph of 2^18 vertices with 8 edges each (8 MiB of edges), without end;
// make-traces.sh records it.
#include <stdint.h>
#include <string.h>

enum { VERTICES = 1 << 18, DEGREE = 8 };
static uint32_t edges[VERTICES][DEGREE], depth[VERTICES], queue[VERTICES];
// A bit a vertex: small enough that most look-ups hit the L1 or the MLC.
static uint64_t seen[VERTICES / 64];

int main(void)
{
    uint64_t state = 1;
    for (uint32_t v = 0; v < VERTICES; v++)
        for (int e = 0; e < DEGREE; e++) {
            // Knuth's MMIX generator.
            state = state * 6364136223846793005u + 1442695040888963407u;
            edges[v][e] = state >> 46;
        }
    for (uint32_t root = 0;; root = (root + 1) % VERTICES) {
        memset(seen, 0, sizeof seen);
        uint32_t head = 0, tail = 0;
        queue[tail++] = root;
        seen[root / 64] |= (uint64_t)1 << root % 64;
        depth[root] = 0;
        while (head < tail) {
            uint32_t v = queue[head++];
            for (int e = 0; e < DEGREE; e++) {
                uint32_t w = edges[v][e];
                if (!(seen[w / 64] >> w % 64 & 1)) {
                    seen[w / 64] |= (uint64_t)1 << w % 64;
                    depth[w] = depth[v] + 1;
                    queue[tail++] = w;
                }
            }
        }
    }
}
