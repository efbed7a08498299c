# Makes the index of 20 packages and a repository of 30 commits out of the folder "source".
set -eu
mkdir -p index
for i in $(seq 1 20); do
  mkdir "pkg_$i"
  printf 'VALUE = %d\n' "$i" > "pkg_$i/__init__.py"
  printf '#define P%d %d\n' "$i" "$i" > "pkg_$i/p$i.h"
  head -c 100000 /dev/zero | tr '\0' "$((i % 10))" > "pkg_$i/data"
  tar -cf "index/p$i.tar" "pkg_$i" && rm -r "pkg_$i"
done
cd source && git init -q -b main
for i in $(seq 1 30); do
  printf 'change %d\n' "$i" >> CHANGES
  git add . && git commit -q -m "change $i"
done
cd .. && git clone -q --bare source origin.git && rm -rf source
