set -eu
cd src
if make > build.log 2>&1; then exit 1; fi
tail -n 5 build.log
sed -i 's/^calc: calc.o$/calc: calc.o sum.o/' Makefile
if make > build.log 2>&1; then exit 1; fi
grep -q strtol build.log
sed -i '1i #include <stdlib.h>' sum.c
make -s
./calc 1 2 3
git diff --binary --full-index > ../patch
