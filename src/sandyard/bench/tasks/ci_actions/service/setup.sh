# A C service of 40 sources that answers on its standard input.
set -eu
mkdir -p source/src
for i in $(seq 1 40); do
  printf '#include "pkg_%d/p%d.h"\nint part_%d(int x) { return x + P%d; }\n' \
    "$((i % 20 + 1))" "$((i % 20 + 1))" "$i" "$((i % 20 + 1))" > "source/src/part_$i.c"
done
{
  for i in $(seq 1 40); do printf 'int part_%d(int);\n' "$i"; done
  printf '#include <stdio.h>\nint main(void) {\n  int x;\n  while (scanf("%%d", &x) == 1) {\n'
  for i in $(seq 1 40); do printf '    x = part_%d(x);\n' "$i"; done
  printf '    printf("%%d\\n", x);\n  }\n  return 0;\n}\n'
} > source/src/main.c
cat > source/Makefile << 'MAKE'
OBJECTS := $(patsubst %.c,%.o,$(wildcard src/*.c))
CFLAGS := -O2 -Ivendor
service: $(OBJECTS)
	$(CC) -o $@ $^
MAKE
bash packages.sh
