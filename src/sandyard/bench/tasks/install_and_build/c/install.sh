set -eu
tar -xf lib.tar
make -s -C lib -j"$(nproc)" install PREFIX="$PWD/prefix"
