set -eu
mkdir src && cd src
printf '#ifndef SUM_H\n#define SUM_H\nlong sum(int count, char **words);\n#endif\n' > sum.h
printf '#include "sum.h"\nlong sum(int count, char **words) {\n  long total = 0;\n  for (int i = 0; i < count; i++) total += strtol(words[i], 0, 10);\n  return total;\n}\n' > sum.c
printf '#include <stdio.h>\n#include "sum.h"\nint main(int argc, char **argv) {\n  printf("%%ld\\n", sum(argc - 1, argv + 1));\n  return 0;\n}\n' > calc.c
printf 'CFLAGS := -O2 -Wall -Werror\ncalc: calc.o\n\t$(CC) -o $@ $^\n' > Makefile
git init -q -b main && git add . && git commit -q -m 'a calculator'
