set -eu
cd project
for i in $(seq 0 49); do sed -i 's/return f3(scale(x))/return f4(scale(x))/' "app/m$i.py"; done
test "$(git diff --numstat | wc -l)" = 50
git commit -q -a -m 'another step'
