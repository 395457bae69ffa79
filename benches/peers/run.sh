#!/usr/bin/env bash
# Builds every peer, starts a broker of its own, runs all the workloads, stops the broker.   run.sh [build|all|WORKLOAD...]
# With BOOTSTRAP and BROKER_PID set it uses that broker and leaves it alone. See README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
kafka=../../scripts/brokers/kafka/kafka

build() {
  (cd rust && cargo build --release)
  (cd go && go build -o franzbench .)
  (cd node && npm install --no-audit --no-fund)
  mkdir -p java/build && javac -cp "$KAFKA_LIBS/*" -d java/build java/Bench.java
}

export KAFKA_LIBS="$($kafka fetch)/libs"
[[ ${1:-all} != build ]] || { build; exit; }
[[ -n ${NO_BUILD:-} ]] || build
if [[ -z ${BOOTSTRAP:-} ]]; then
  env=$(KAFKA_JVM_OPTS="-Xms1g -Xmx1g -XX:+UseParallelGC" $kafka start --owner $$ \
    --set ssl.enabled.protocols=TLSv1.3 --set ssl.cipher.suites=${BENCH_SUITE:-TLS_AES_128_GCM_SHA256})
  eval "$env"
  trap '$kafka stop --rm "$KAFKA_TEST_DIR"' EXIT
  export BOOTSTRAP=$KAFKA_TEST_PLAINTEXT BOOTSTRAP_TLS=$KAFKA_TEST_SSL BROKER_CA=$KAFKA_TEST_CA
  BROKER_PID=$($kafka status "$KAFKA_TEST_DIR" | sed -n 's/.*pid=\([0-9]*\).*/\1/p' | head -1)
  export BROKER_PID
fi
export BENCH_TMP=${BENCH_TMP:-$(mktemp -d)}
if [[ ${1:-all} == all ]]; then
  ./bench.py W1 W2 --reps 5
  ./bench.py W4 W6 W5 W1h W1lz4 W1zstd W2h W2lz4 W2zstd W3 W1k W1s W1L W2s commits W1tls W2tls W1ktls W3tls --reps 3
  ./bench.py W7 W5many --reps 1
else
  ./bench.py "$@"
fi
./report.py results/raw.jsonl $(ls results/rss.jsonl 2>/dev/null) >results/tables.md
