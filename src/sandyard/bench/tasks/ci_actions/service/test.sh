# 40 parts add 1 to 20 twice: 420.
set -eu
test "$(seq 1 1000 | work/service | tail -n 1)" = 1420
test "$(echo 0 | work/service)" = 420
