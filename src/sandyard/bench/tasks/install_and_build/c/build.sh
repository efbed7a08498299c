set -eu
make -s -C project -j"$(nproc)" PREFIX="$PWD/prefix"
