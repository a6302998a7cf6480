# Milepost: `make help` lists the targets.
SHELL := bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
UV_VERSION := 0.13.7
PY := .venv/bin/python
EDGE := .venv-edge
PAGE := src/milepost/dashboard/_built/index.html

.PHONY: help
help:  ## List the targets
	@echo "Milepost: publish/subscribe for things that move."
	@echo
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | \
	    while IFS='|' read -r target what; do printf '  make %-20s %s\n' "$$target" "$$what"; done
	@echo
	@echo "The first target creates .venv (Python 3.11 or newer; choose one with PYTHON=python3.12) and installs the locked packages."

.PHONY: demo
demo: .venv/synced $(PAGE)  ## Run the simulated city with a live map (ARGS="--headless --seconds 60": without a browser, ends with a report)
	@scripts/get_debian_parts demo
	@.venv/bin/milepost demo $(ARGS)

.PHONY: edge
edge: $(EDGE)/synced  ## Run a broker at 127.0.0.1:1883, in a small environment of its own (ARGS="--config milepost.toml")
	@$(EDGE)/bin/milepost edge run $(ARGS)

.PHONY: page
page: $(PAGE)  ## Build the page of the live map (needs Node.js)

.PHONY: test
test: .venv/synced $(PAGE)  ## Run all checks and tests except the long ones, within ten minutes (CI=true: skipped tests are failures)
	@scripts/get_debian_parts demo
	@scripts/get_debian_parts tests
	@$(PY) scripts/check.py full

.PHONY: test-fast
test-fast: .venv/synced  ## Run checks, unit, house and property tests with few examples, in under a minute
	@$(PY) scripts/check.py fast

.PHONY: test-long
test-long: .venv/synced $(PAGE)  ## Run the long tests: long live tests, simulations, fuzzing
	@scripts/get_debian_parts demo
	@scripts/get_debian_parts tests
	@$(PY) scripts/check.py long

.PHONY: search
search: .venv/synced  ## Search for failing examples and seeds (MINUTES=60: for an hour)
	@$(PY) scripts/search.py $(or $(MINUTES),10)

.PHONY: soak
soak: .venv/synced  ## Run the fault-injection tests repeatedly for hours (HOURS=8); writes bench/results/soak.md
	@scripts/get_debian_parts tests
	@$(PY) scripts/soak.py $(or $(HOURS),1)

.PHONY: bench-matching
bench-matching: .venv/synced  ## Compare matching with Redis GEO, Tile38 and others (QUICK=1: within 60 s)
	@scripts/get_debian_parts bench
	@scripts/get_tile38 || echo "The benchmark runs without Tile38."
	@QUICK=$(QUICK) $(PY) -m bench.matching

.PHONY: bench-edge
bench-edge: .venv/synced  ## Compare MQTT brokers: Milepost, Mosquitto, NATS, amqtt (QUICK=1: within two minutes)
	@scripts/get_debian_parts bench
	@scripts/get_debian_parts bench-edge
	@scripts/get_mosquitto21 || echo "The benchmark runs without Mosquitto 2.1."
	@scripts/get_nats || echo "The benchmark runs without NATS."
	@scripts/get_amqtt || echo "The benchmark runs without amqtt."
	@QUICK=$(QUICK) $(PY) -m bench.edge

.PHONY: bench-udp
bench-udp: .venv/synced  ## Compare the UDP listener with loops in C: reports, alerts, handshakes (QUICK=1: within two minutes)
	@scripts/get_debian_parts bench-udp
	@QUICK=$(QUICK) $(PY) -m bench.udp

.PHONY: bench-federation
bench-federation: .venv/synced  ## Measure sites and roaming: DPSMD's table compared with Mosquitto, on both logs (QUICK=1: within three minutes)
	@scripts/get_debian_parts bench-federation
	@QUICK=$(QUICK) $(PY) -m bench.federation

.PHONY: bench-pipelines
bench-pipelines: .venv/synced  ## Measure Spark pipelines: from a report to its alert, rates compared with a bare count (QUICK=1: within ten minutes)
	@scripts/get_debian_parts tests
	@QUICK=$(QUICK) $(PY) -m bench.pipelines

.PHONY: bench-roads
bench-roads: .venv/synced  ## Measure roads: areas, placing compared with shapely, warnings compared with a radius (QUICK=1: within a minute)
	@QUICK=$(QUICK) $(PY) -m bench.roads

.PHONY: bench-time-to-reach
bench-time-to-reach: .venv/synced  ## Measure warnings in time under overload, compared with plain priority (QUICK=1: within a minute)
	@QUICK=$(QUICK) $(PY) -m bench.time_to_reach

.PHONY: reasons
reasons: .venv/synced  ## Generate docs/reference/reasons.md from the list of reasons
	@$(PY) scripts/write_reasons.py

.PHONY: reference
reference: .venv/synced  ## Generate the reference pages of settings and commands
	@$(PY) scripts/write_reference.py

.PHONY: site
site: .venv/synced  ## Build the documentation site, in site/
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet
	@echo "View it: python3 -m http.server --bind 127.0.0.1 --directory site"

.PHONY: environment
environment: .venv/synced  ## Create .venv only

.PHONY: clean
clean:  ## Remove .venv, caches and built files
	rm -rf web/node_modules src/milepost/dashboard/_built
	rm -rf .venv $(EDGE) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

define need_python
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Milepost needs Python 3.11 or newer; choose one: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || scripts/get_debian_parts environment
endef

.venv/bin/uv:
	$(need_python)
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# Only the packages that an edge needs at run time. uv, half as large as all of them, is removed again.
$(EDGE)/synced: pyproject.toml uv.lock
	$(need_python)
	$(PYTHON) -m venv $(EDGE)
	$(EDGE)/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	UV_PROJECT_ENVIRONMENT=$(abspath $(EDGE)) $(EDGE)/bin/uv sync --frozen --quiet
	$(EDGE)/bin/pip uninstall --quiet --yes uv
	@touch $@

.venv/synced: .venv/bin/uv pyproject.toml uv.lock
	.venv/bin/uv sync --frozen --all-groups --quiet
	@touch $@

$(PAGE): scripts/build_page $(wildcard web/*.json web/build.mjs web/src/* web/static/*)
	@scripts/build_page
