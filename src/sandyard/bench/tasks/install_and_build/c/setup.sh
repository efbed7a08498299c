# Makes a C project of 60 sources and the archive of a library that it is built on.
set -eu
mkdir -p lib/src project/src project/test
for i in $(seq 1 20); do
  printf 'int lib_%d(int x) { return x * %d + %d; }\n' "$i" "$i" "$((i * 7 % 11))" > "lib/src/lib_$i.c"
done
cat > lib/Makefile << 'MAKE'
OBJECTS := $(patsubst %.c,%.o,$(wildcard src/*.c))
libwork.a: $(OBJECTS)
	ar rcsD $@ $^
install: libwork.a
	mkdir -p $(PREFIX)/lib && cp libwork.a $(PREFIX)/lib/
MAKE
tar -cf lib.tar lib && rm -r lib
for i in $(seq 1 60); do
  {
    printf 'int lib_%d(int);\n' "$((i % 20 + 1))"
    for j in $(seq 1 40); do
      printf 'static int step_%d(int x) { for (int k = 0; k < x %% 9; k++) x += k * %d; return x; }\n' "$j" "$j"
    done
    printf 'int part_%d(int x) {\n' "$i"
    for j in $(seq 1 40); do printf '  x = step_%d(x) & 0xffff;\n' "$j"; done
    printf '  return lib_%d(x);\n}\n' "$((i % 20 + 1))"
  } > "project/src/part_$i.c"
done
{
  for i in $(seq 1 60); do printf 'int part_%d(int);\n' "$i"; done
  printf '#include <stdio.h>\nint main(void) {\n  long sum = 0;\n'
  for i in $(seq 1 60); do printf '  sum += part_%d(%d);\n' "$i" "$i"; done
  printf '  printf("%%ld\\n", sum);\n  return 0;\n}\n'
} > project/src/main.c
cat > project/Makefile << 'MAKE'
OBJECTS := $(patsubst %.c,%.o,$(wildcard src/*.c))
CFLAGS := -O2
app: $(OBJECTS)
	$(CC) -o $@ $^ -L$(PREFIX)/lib -lwork
MAKE
cd project && git init -q -b main && git add . && git commit -q -m 'all of it'
