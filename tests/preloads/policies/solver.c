/* The library of words.c. */
__attribute__((aligned(4096))) char grid[4 << 20];
char *solver_grid(void) { return grid; }
