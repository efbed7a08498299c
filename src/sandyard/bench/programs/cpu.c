/* A fixed amount of integer and floating-point work on N threads (0: one for each processor); prints a checksum that
   does not depend on N: every thread does the same work and must get the same result. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 120, WORDS = 1 << 18, SIZE = 128 };

static void *work(void *out) {
  uint32_t *words = malloc(WORDS * sizeof *words);
  double(*a)[SIZE] = malloc(sizeof(double[SIZE][SIZE])), (*b)[SIZE] = malloc(sizeof(double[SIZE][SIZE]));
  uint64_t state = 88172645463325252ULL, sum = 0;
  for (int i = 0; i < SIZE; i++)
    for (int j = 0; j < SIZE; j++) a[i][j] = (double)((i * 31 + j * 17) % 64) / 64;
  for (int round = 0; round < ROUNDS; round++) {
    for (int i = 0; i < WORDS; i++) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      words[i] = (uint32_t)state;
    }
    for (int gap = WORDS / 2; gap > 512; gap /= 2)
      for (int i = 0; i + gap < WORDS; i++)
        if (words[i] > words[i + gap]) {
          uint32_t t = words[i];
          words[i] = words[i + gap], words[i + gap] = t;
        }
    for (int i = 0; i < WORDS; i += 64) sum = sum * 6364136223846793005ULL + words[i];
    for (int i = 0; i < SIZE; i++)
      for (int j = 0; j < SIZE; j++) {
        double cell = 0;
        for (int k = 0; k < SIZE; k++) cell += a[i][k] * a[k][j];
        b[i][j] = cell;
      }
    /* sums of 128 products of multiples of 1/64 are exact, so the checksum is the same on every processor */
    for (int i = 0; i < SIZE; i++) sum += (uint64_t)(b[i][(i * 7 + round) % SIZE] * 4096);
  }
  free(words), free(a), free(b);
  *(uint64_t *)out = sum;
  return NULL;
}

int main(int argc, char **argv) {
  long threads = argc > 1 ? atol(argv[1]) : 1;
  if (threads <= 0) threads = sysconf(_SC_NPROCESSORS_ONLN);
  pthread_t *ids = calloc((size_t)threads, sizeof *ids);
  uint64_t *sums = calloc((size_t)threads, sizeof *sums);
  for (long i = 0; i < threads; i++)
    if (pthread_create(&ids[i], NULL, work, &sums[i])) return 1;
  for (long i = 0; i < threads; i++) pthread_join(ids[i], NULL);
  for (long i = 1; i < threads; i++)
    if (sums[i] != sums[0]) return 2;
  printf("%016llx\n", (unsigned long long)sums[0]);
  return 0;
}
