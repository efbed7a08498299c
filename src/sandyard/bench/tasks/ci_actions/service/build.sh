set -eu
make -s -C work -j"$(nproc)"
