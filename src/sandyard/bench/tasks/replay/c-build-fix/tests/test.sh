echo 0 > reward.txt
make -s -B -C src && test "$(src/calc 20 22 -2)" = 40 && test "$(src/calc)" = 0 && echo 1 > reward.txt
exit 0
