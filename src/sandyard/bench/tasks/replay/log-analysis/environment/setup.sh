set -eu
awk 'BEGIN {
  state = 12345
  for (i = 0; i < 200000; i++) {
    state = (state * 1103515245 + 12345) % 2147483648
    client = int(state / 65536) % 40
    state = (state * 1103515245 + 12345) % 2147483648
    code = int(state / 65536) % 100 < (client == 17 ? 12 : 4) ? 500 : 200
    printf "10.0.0.%d - - [01/Jan/2024:00:%02d:%02d] \"GET /%d\" %d\n", client, int(i / 60) % 60, i % 60, i % 977, code
  }
}' > access.log
