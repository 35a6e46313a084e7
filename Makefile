SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Pinned here and not in go.mod, so that users of the library never see it. It runs gofumpt, go vet and staticcheck too.
GOLANGCI_LINT ?= go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# The ends of the supported versions that are not those of go.mod and of the installed Go. CI runs the lowest go-redis, which
# go.mod has, on both releases of Go, and the newest go-redis on the newer one, where race is its only run and build.
OLDER_GO        := go1.25.5
NEWEST_GO_REDIS := v9.23.0

# The servers of the matrix, see .ci/with-server. CI runs a step with the one named after the @.
SERVERS  := redis-6.2.14 installed redis-8.2.3 valkey-9.1.2
NESTED   := $(patsubst %/go.mod,%,$(wildcard */go.mod contrib/*/go.mod cmd/*/go.mod examples/*/go.mod))
# Those of go.work, which are released, each after those that it requires. Their go.mod has replace lines for a checkout;
# go install takes none, so a release drops them.
WORKSPACE := console $(wildcard contrib/*) cmd/redlatch
EXAMPLES := $(filter-out examples/quickstart $(NESTED),$(patsubst %/,%,$(wildcard examples/*/)))
# CI runs two steps at a time, because most tests wait. So what waits most comes first, and newest, which computes most, begins
# while older still runs.
CI_STEPS := older@redis-6.2.14 scenarios@valkey-9.1.2 interop@valkey-9.1.2 newest@valkey-9.1.2 test@redis-8.2.3 nested bare examples demo
# They run beside the steps, with what the tests leave of the CPUs.
CI_BESIDE := linters release
FUZZTIME ?= 10s
VERSION  ?= v0.0.0-dry

.PHONY: help modules release demo examples fmt lint tidy linters test bare older scenarios newest race server matrix interop fuzz soak bench cover readme pictures nested ci

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

modules: # a test compares it with the tree
	@printf '%s\n' $(NESTED)

demo: ## run the quick start; needs no server
	go run ./examples/quickstart

examples: ## run the other examples; needs no server
	@for dir in $(EXAMPLES); do printf '\n=== %s\n' "$$dir"; go run "./$$dir" || { printf 'FAIL %s\n' "$$dir"; exit 1; }; done

fmt: ## format all Go code
	$(GOLANGCI_LINT) fmt

lint: tidy linters ## golangci-lint, which checks the format too, and go mod tidy

tidy:
	go mod tidy -diff
	@for dir in $(WORKSPACE); do ( cd "$$dir" && go mod tidy -diff ); done
	@# Not in the other nested modules: the tests of a peer there need modules that the module proxy does not serve.

linters:
	@for dir in . $(NESTED); do \
		echo "lint $$dir"; \
		( cd "$$dir" && $(GOLANGCI_LINT) run ./... ); \
	done

test: ## run the tests, about 3 minutes; the last line counts those that were skipped
	@skipped="$$(mktemp)"; trap 'rm -f "$$skipped"' EXIT; status=0; \
	REDLATCH_SKIPPED="$$skipped" go test -count=1 ./... || status=$$?; \
	sort "$$skipped" | uniq -c | awk '{ n = $$1; $$1 = ""; s = s sep n " (" substr($$0, 2) ")"; sep = ", " } END { print "skipped: " (s ? s : "none") }'; \
	exit "$$status"

bare: ## run all tests with a PATH that has only Go and sleep: what needs a server is skipped, the rest passes
	@dir="$$(mktemp -d)"; trap 'rm -rf "$$dir"' EXIT; \
	ln -s "$$(command -v go)" "$$(command -v sleep)" "$$dir"; \
	go test -exec "env -u REDLATCH_REQUIRE_REDIS CGO_ENABLED=0 PATH=$$dir" ./...

# Those that run the long tests too. No comment behind the value: make would keep the blank before it.
scenarios server matrix: export REDLATCH_LONG := 1

# The long tests of the scenarios take as long as all others, so each of the next two runs one half of the long tests.
SCENARIO := ./internal/test/scenario

older: ## run all tests with the older Go and the lowest go-redis, the long ones too but for scenarios
	@export GOTOOLCHAIN=$(OLDER_GO); status=0; \
	go test $(SCENARIO) || status=$$?; \
	REDLATCH_LONG=1 go test $$(go list ./... | grep -v internal/test/scenario) || status=$$?; \
	exit "$$status"

scenarios: ## run the scenarios, the long ones too
	go test $(SCENARIO)

RACE := -race -parallel 4 $$(go list ./... | grep -v internal/test/doctest)

newest: ## run what race does with the newest go-redis
	@dir="$$(mktemp -d)"; trap 'rm -rf "$$dir"' EXIT; \
	cp go.mod go.sum "$$dir"; \
	export GOWORK=off; \
	go get -modfile="$$dir/go.mod" github.com/redis/go-redis/v9@$(NEWEST_GO_REDIS); \
	go test -modfile="$$dir/go.mod" $(RACE)

race: ## run the tests under the race detector, but for the long ones and those of documents
	go test $(RACE)

server: ## run all tests; a missing redis-server is a failure
	REDLATCH_REQUIRE_REDIS=1 go test -count=1 ./...

matrix: ## run all tests, the nested modules' too, on each supported server; about 10 minutes each
	@for server in $(SERVERS); do \
		for what in 'go test -count=1 -p 3 ./...' '$(MAKE) --no-print-directory nested'; do \
			printf '\n=== %s: %s\n' "$$server" "$$what"; \
			.ci/with-server "$$server" $$what || { printf '\n=== failed; repeat it with: .ci/with-server %s %s\n' "$$server" "$$what"; exit 1; }; \
		done; \
	done

fuzz: ## run each fuzz target for FUZZTIME (10s)
	@{ grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . || true; } | sort | while IFS=: read -r file func; do \
		echo "fuzz $${func#func } in $$(dirname "$$file")"; \
		( cd "$$(dirname "$$file")" && go test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) . ) < /dev/null; \
	done

soak: ## run all tests on each server and the long counts on one, and write docs/proof.md; goes on where it stopped
	go run ./internal/test/soak

bench: ## run the benchmarks, the library beside its peers
	cd benchmarks && go run .

cover: ## measure test coverage of the library and print the total
	go test -coverprofile=coverage.out -coverpkg=./... ./...
	go tool cover -func=coverage.out | tail -n 1

readme: ## write anew what the documents take from the code: examples, names of tests, exported names
	go run ./internal/test/doctest/cut README.md docs/*.md docs/api.txt

# The pictures show the name of the machine, which is nobody's.
pictures: ## draw the pictures in the documents anew; needs Chromium, tmux and root
	unshare --uts bash -euo pipefail -c 'hostname shop-1; export REDLATCH_REQUIRE_CHROMIUM=1 REDLATCH_REQUIRE_TMUX=1; \
		( cd console && go test -count=1 -run "TestPagesInChromium|TestScene" . -pictures "$(CURDIR)/docs/pictures" ); \
		cd cmd/redlatch && go test -count=1 -run Top . -pictures "$(CURDIR)/docs/pictures"'

nested: ## test the modules below this one, two at a time, but for interop
	@printf '%s\n' $(filter-out interop,$(NESTED)) | xargs -P 2 -I DIR bash -c 'cd DIR && go test -count=1 ./...'

interop: ## run the library beside Redisson; needs Java 17 and Maven; 3 minutes
	cd interop && REDLATCH_REQUIRE_JAVA=1 go test -count=1 -timeout 10m .

release: ## build and try VERSION (v0.1.0) from a copy of HEAD; TAG=1 makes its tags
	.ci/release $(VERSION) $(WORKSPACE)

# The other platforms share no build cache with the tests, so they would take minutes.
ci: export PLATFORMS := linux/amd64

# All steps run even if one fails, so that one run shows all that is wrong. Lines of two steps are mixed; the end names what
# failed in which step, since the stacks of a test that hangs are longer than some logs.
ci: ## all that CI runs: tests, two steps at a time, and the linters and a release beside them
	@export FAILED="$$(mktemp)"; beside="$$(mktemp)"; \
	trap 'rm -f "$$FAILED" "$$beside"; kill "$${pid:-}" 2>/dev/null || true' EXIT; \
	$(MAKE) --no-print-directory tidy; \
	nice -n 19 $(MAKE) --no-print-directory -k $(CI_BESIDE) > "$$beside" 2>&1 & pid=$$!; \
	$(MAKE) --no-print-directory -j 2 -k $(CI_STEPS:%=step-%) || echo '=== a step failed' >> "$$FAILED"; \
	wait "$$pid" || { printf '\n=== %s failed\n' "$(CI_BESIDE)"; tail -n 300 "$$beside"; } >> "$$FAILED"; \
	printf '\n=== done, after %d s\n' "$$SECONDS"; \
	cat "$$FAILED"; [ ! -s "$$FAILED" ]

step-%:
	@log="$$(mktemp)"; trap 'rm -f "$$log"' EXIT; status=0; \
	step="$*"; server="$${step#*@}"; [ "$$server" != "$$step" ] || server=installed; \
	printf '\n=== %s\n' "$$step"; \
	.ci/with-server "$$server" $(MAKE) --no-print-directory "$${step%@*}" 2>&1 | tee "$$log" || status=$$?; \
	printf '\n=== %s took %d s\n' "$$step" "$$SECONDS"; \
	if [ "$$status" -ne 0 ]; then \
		printf '\n=== %s failed; repeat it with: .ci/with-server %s make %s\n' "$$step" "$$server" "$${step%@*}"; \
		grep -aEv '^redis: |(WARN|INFO) ' "$$log" | grep -a -A 12 -E '^ *--- FAIL|^FAIL|^panic:|^goroutines left|^\s+Test\S+ \([0-9hms.]+\)$$|DATA RACE|\.go:[0-9]+:[0-9]+: ' | tail -n 150 || true; \
	fi | tee -a "$$FAILED"; \
	exit "$$status"
