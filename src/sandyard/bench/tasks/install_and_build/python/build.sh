set -eu
python3 -m compileall -q -f -j "$(nproc)" project/app site
