# The commands of daily work; `make help` lists them. Everything is built in release: one set of
# artifacts, and the tested binary is the one that ships.

PORT ?= 8080
DATA ?= ./data
TARGET := $(or $(CARGO_TARGET_DIR),target)
MILLRACE := $(TARGET)/release/millrace
# Every folder of examples/ that holds a service.
EXAMPLES := $(sort $(dir $(wildcard examples/*/*.ts examples/*/*.js)))

# rustup puts cargo there; a shell that was open while it was installed does not know yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help run build check test stress conformance conformance-quick s3-clients s3-browser s3-versitygw s3-proofs cluster-check bench \
	bench-transactions bench-records bench-objects bench-python bench-replication s3-rivals fuzz types helm-check audit python \
	python-environment python-kills wheels clean-data

help: ## list these commands
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1|/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

run: build ## serve the examples on 127.0.0.1:8080 (PORT=, DATA=./data); Ctrl-C stops
	@exec $(MILLRACE) serve $(EXAMPLES:%/=--app %) --data $(DATA) --http 127.0.0.1:$(PORT)

build: ## build the server, installing what that needs
	@scripts/install-missing.sh build
	@cargo build --release --locked -p millrace-server

check: ## the checks to run before each commit, under three minutes once all is compiled
	@scripts/install-missing.sh build
	@scripts/check.sh

test: ## run every check and test, installing what they need
	@scripts/install-missing.sh test
	@scripts/test.sh

stress: ## repeat the black-box tests beside a busy core (N=10)
	@scripts/install-missing.sh test
	@scripts/stress.sh $(or $(N),10)

conformance: build ## run the S3 compatibility suite in ../shared/suites (CONFORMANCE="--only versioning --log FILE")
	@tests/conformance/run.py $(CONFORMANCE)

conformance-quick: build ## run a part of the S3 compatibility suite, two minutes at most
	@tests/conformance/run.py --quick $(CONFORMANCE)

s3-clients: build ## run clients of S3 that others wrote (CLIENTS="--client rclone,awscli --largest 8")
	@scripts/check-s3-clients.sh $(CLIENTS)

cluster-check: build ## check a cluster under faults from outside, two minutes (ARGS="--rounds 20 --seed 7", ARGS="failover --kills 50")
	@tests/cluster/run.sh $(ARGS)

s3-browser: build ## run a browser against the S3 listener: presigned URLs, forms, CORS
	@scripts/install-missing.sh browser
	@"$$(scripts/s3-environment.sh)/bin/python" tests/clients/s3_browser.py $(BROWSER)

s3-versitygw: build ## run the tests of versitygw, with Go, some minutes (VERSITYGW="--only ListParts --log FILE")
	@tests/conformance/versitygw.py $(VERSITYGW)

s3-proofs: build ## prove promises about objects with many rounds, kills and bytes (PROOFS="--only kills --kills 5")
	@tests/s3_proofs/run.py $(PROOFS)

bench: build ## measure and compare; results go to docs/benchmarks (BENCH="--only login-100 --rounds 3")
	@cargo build --quiet --release --locked -p millrace-bench
	@bench/run.sh $(BENCH)

bench-transactions: build ## measure transactions and the matrix (BENCH="--part table --only hotel,hot --rounds 5")
	@cargo build --quiet --release --locked -p millrace-bench
	@bench/run-transactions.sh $(BENCH)

bench-records: build ## measure typed records (BENCH="--part table,micro --only get,write --rounds 5 --records 100000")
	@cargo build --quiet --release --locked -p millrace-bench
	@cargo build --quiet --release --locked -p millrace-avpath --example path_cost -p millrace-avro --example codec_cost
	@bench/run-records.sh $(BENCH)

bench-python: build ## measure handlers in Python beside rivals (BENCH="--only hotel-1,worker --rounds 5 --seconds 2")
	@cargo build --quiet --release --locked -p millrace-bench
	@bench/run-python.sh $(BENCH)

bench-objects: build s3-rivals ## measure objects beside MinIO, versitygw and nginx (BENCH="--part small,list --rounds 5 --listed 1000000")
	@cargo build --quiet --release --locked -p millrace-bench
	@$(TARGET)/release/objects --millrace $(MILLRACE) --data $(TARGET) --raw $(TARGET)/bench $(BENCH)

bench-replication: build ## measure three nodes beside one and beside etcd (BENCH="--part latency,etcd --only write-1,etcd --rounds 5")
	@cargo build --quiet --release --locked -p millrace-bench
	@bench/rivals/etcd/install.sh >&2 || echo "etcd is missing; the others are measured without it" >&2
	@$(TARGET)/release/replication --millrace $(MILLRACE) --data $(TARGET) --raw $(TARGET)/bench $(BENCH)

s3-rivals: ## build MinIO and versitygw, with Go, and install nginx
	@bench/rivals/minio/install.sh
	@bench/rivals/nginx/install.sh

fuzz: ## fuzz every decoder for a minute each (SECONDS_EACH=, TARGETS="entry role")
	@scripts/install-missing.sh fuzz
	@scripts/fuzz.sh $(TARGETS)

types: ## write millrace.d.ts and check the examples against it
	@scripts/install-missing.sh test
	@cargo build --quiet --release --locked -p millrace-server
	@scripts/check-types.sh
	@echo "wrote $(TARGET)/types/millrace.d.ts; the examples agree with it"

python: ## check the Python SDK: format, lint, types, tests, some three minutes (with the server that is built)
	@MILLRACE_BINARY="$$(test -x $(MILLRACE) && realpath $(MILLRACE))" scripts/python.sh check

python-environment: ## make target/python, in which the Python SDK and its examples run
	@scripts/python.sh environment

python-kills: build python-environment ## kill a Python worker and the server by turns under load, and audit (KILLS=200)
	@cd sdk/python && MILLRACE_BINARY=$(abspath $(MILLRACE)) MILLRACE_KILLS=$(or $(KILLS),200) $(abspath $(TARGET))/python/bin/pytest -q -s tests/test_kills.py

wheels: build ## build the wheels of the Python SDK and of the server, and try them
	@scripts/python.sh wheels

helm-check: ## render the Helm chart again and compare with deploy/helm/rendered; builds helm if there is none, in minutes
	@scripts/install-missing.sh helm
	@PATH="$(abspath $(TARGET))/tools:$$PATH" deploy/helm/check.sh $(HELM_CHECK)

audit: ## check dependencies: licences, bans, sources, and advisories where their database is reached
	@cargo deny --version >/dev/null 2>&1 || cargo install --quiet --locked cargo-deny
	@cargo deny check licenses bans sources
	@if cargo deny fetch db >/dev/null 2>&1; then cargo deny check advisories; \
	else echo "advisories were NOT checked: their database cannot be reached" >&2; fi

clean-data: ## delete the data directory of `make run`
	@if [ -f data/pid ] && kill -0 "$$(cat data/pid)" 2>/dev/null; then \
		echo "a node is running on ./data (pid $$(cat data/pid)); stop it first" >&2; exit 1; fi
	@rm -rf ./data
