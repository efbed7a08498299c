/* a[i] = b[i] + s * c[i] over three arrays of N MiB; prints the best of three passes in GB/s, as STREAM counts bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  size_t n = (size_t)(argc > 1 ? atol(argv[1]) : 64) * (1 << 20) / sizeof(double);
  double *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b), *c = malloc(n * sizeof *c), best = 0;
  if (!a || !b || !c) return 1;
  for (size_t i = 0; i < n; i++) a[i] = 0, b[i] = 2, c[i] = (double)(i % 7);
  for (int pass = 0; pass < 3; pass++) {
    double begun = now();
    for (size_t i = 0; i < n; i++) a[i] = b[i] + 3 * c[i];
    double rate = 3.0 * (double)(n * sizeof *a) / (now() - begun) / 1e9;
    if (rate > best) best = rate;
  }
  for (size_t i = 0; i < n; i++)
    if (a[i] != 2 + 3 * (double)(i % 7)) return 2;
  printf("%.3f\n", best);
  return 0;
}
