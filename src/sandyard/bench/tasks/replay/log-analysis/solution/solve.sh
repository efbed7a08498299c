set -eu
head -n 2 access.log
wc -l < access.log
awk '$NF == 500 { print $1 }' access.log | sort | uniq -c | sort -k1,1nr | head -n 1 | awk '{ print $2, $1 }' > worst.txt
cat worst.txt
