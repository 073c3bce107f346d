// Products of a sparse matrix and a vector, without end: 80000 rows of 10 entries, half of them near the diagonal
// (9.6 MB of entries); make-traces.sh records it.
#include <stdint.h>

enum { ROWS = 80000, ENTRIES = 10 };
static double value[ROWS][ENTRIES], from[ROWS], to[ROWS];
static uint32_t column[ROWS][ENTRIES];

int main(void)
{
    uint64_t state = 1;
    for (uint32_t r = 0; r < ROWS; r++) {
        from[r] = 1.0;
        for (uint32_t e = 0; e < ENTRIES; e++) {
            // Knuth's MMIX generator.
            state = state * 6364136223846793005u + 1442695040888963407u;
            column[r][e] = e < ENTRIES / 2 ? (r + e) % ROWS : (state >> 33) % ROWS;
            value[r][e] = 1.0 / (e + 1);
        }
    }
    for (;;) {
        for (uint32_t r = 0; r < ROWS; r++) {
            double sum = 0;
            for (uint32_t e = 0; e < ENTRIES; e++)
                sum += value[r][e] * from[column[r][e]];
            to[r] = sum;
        }
        // A step of an iteration: the next vector, kept small.
        for (uint32_t r = 0; r < ROWS; r++)
            from[r] = to[r] * 0.3;
    }
}
