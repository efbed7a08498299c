set -eu
cd project
for i in $(seq 1 50); do sed -i 's/0xffff/0x7fff/' "src/part_$i.c"; done
test "$(git diff --numstat | wc -l)" = 50
git commit -q -a -m 'narrower'
