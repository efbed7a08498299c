set -eu
first=$(project/app)
for i in $(seq 1 50); do test "$(project/app)" = "$first"; done
test "$first" = 28184
