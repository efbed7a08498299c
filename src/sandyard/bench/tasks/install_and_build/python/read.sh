set -eu
cd project
for i in $(seq 0 19); do git grep -c "def f$i(" > /dev/null; done
cat app/*.py tests/*.py | wc -c > /dev/null
git log --stat > /dev/null
