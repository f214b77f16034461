# Everything runs in a virtual environment that the first target creates. A machine only needs
# Python (3.11 to 3.14) and make: the llvmlite wheel contains the compiler.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: demo test test-torch conditions tiny attack matrix compare compare-part \
	libraries models lint notebooks docs bench goals sweep programs precision \
	gpu-check race-check device-laws web versions neighbours clean help
.NOTPARALLEL:  # one environment, so one pip at a time
.DELETE_ON_ERROR:

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /make \1\t/p' Makefile | expand -t 18

demo: $(VENV)/examples.stamp  ## train an MLP on handwritten digits, five seeds
	$(BIN)/python examples/digits.py $(ARGS)

# Modules of fnx and of tests are compiled once, not in each process of tests that imports them.
unexport PYTHONDONTWRITEBYTECODE

test: $(VENV)/test.stamp  ## the test suite and the examples in docstrings, in parallel
	$(BIN)/python -m pytest -n auto $(ARGS)

test-torch: $(VENV)/torch.stamp  ## PyTorch modules compiled by fnx: installs PyTorch first
	$(BIN)/python -m pytest tests/torch "tests/test_guide.py::test_the_code_of_a_page_runs[torch]" \
		tests/test_generated_pages.py $(ARGS)

conditions: $(VENV)/test.stamp  ## the suite as on other machines; ARGS="busy bare --times 2"
	$(BIN)/python scripts/suite_conditions.py $(ARGS)

tiny: $(VENV)/test.stamp  ## a smoke test of five seconds
	$(BIN)/python -m pytest tests/tiny $(ARGS)

attack: $(VENV)/test.stamp  ## search for faults; ARGS="interrupts forks --seconds 600 --seed 1"
	$(BIN)/python -m tests.attack $(ARGS)

matrix: $(VENV)/test.stamp  ## every public function under every composition of three transforms
	$(BIN)/python -m tests.laws.matrix $(ARGS)
	$(BIN)/python -m tests.laws.matrix --device cpu $(ARGS)

compare: $(VENV)/test.stamp  ## public functions against JAX, live; ARGS="--part 3/40 wide"
	$(BIN)/python scripts/compare_jax.py $(ARGS)
	$(BIN)/python scripts/compare_jax.py --x64 $(ARGS)
	$(BIN)/python scripts/compare_array_api.py
	$(BIN)/python scripts/compare_idioms.py --programs 200
	$(BIN)/python scripts/compare_idioms.py --programs 200 --x64

# A part of a fixed shuffle, so that runs before and after a change are comparable.
compare-part: SEED ?= 0
compare-part: $(VENV)/test.stamp  ## a fortieth of the calls against JAX, live; SEED=7
	$(BIN)/python scripts/compare_jax.py --seed $(SEED) --part 1/40
	$(BIN)/python scripts/compare_jax.py --seed $(SEED) --part 1/40 --x64
	$(BIN)/python scripts/compare_idioms.py --seed $(SEED) --programs 25
	$(BIN)/python scripts/compare_idioms.py --seed $(SEED) --programs 25 --x64

# Tests that have run are not run again: TESTS="--part 1/8" runs an eighth of them.
libraries: TESTS ?= --resume
libraries: $(VENV)-libraries/stamp  ## 28 libraries on fnx and on JAX; ARGS="optax_optimizers"
	$(VENV)-libraries/bin/python scripts/library_tests.py $(TESTS)
	$(VENV)-libraries/bin/python scripts/libraries.py $(ARGS)

models: $(VENV)-models/stamp  ## 30 models against PyTorch, onnxruntime; ARGS="--resume"
	$(VENV)-models/bin/python scripts/models.py $(ARGS)

lint: $(VENV)/dev.stamp  ## ruff, old names and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/python scripts/old_names.py
	$(BIN)/mypy --strict $(ARGS)

notebooks: $(VENV)/notebooks.stamp  ## execute every notebook
	$(BIN)/jupyter execute --timeout=120 $(ARGS) notebooks/*.ipynb

docs: $(VENV)/docs.stamp  ## build the site in build/docs/html, and follow every link in it
	$(BIN)/python scripts/build_docs.py

bench: $(VENV)/bench.stamp  ## compare with JAX; ARGS=--write renews docs/benchmarks.md
	$(BIN)/python benchmarks/compare.py $(ARGS)

goals: $(VENV)/bench.stamp  ## large kernels and steps against JAX and PyTorch; ARGS="--write"
	$(BIN)/python benchmarks/goals.py $(ARGS)

sweep: $(VENV)/bench.stamp  ## a thousand cases against JAX and PyTorch; ARGS="--seconds 90 --write"
	$(BIN)/python benchmarks/sweep.py $(ARGS)

programs: $(VENV)/bench.stamp  ## whole programs against JAX, worst first; ARGS="mlp --rounds 3"
	$(BIN)/python benchmarks/whole_programs.py $(ARGS)

gpu-check: $(VENV)/gpu.stamp  ## workloads through ptxas; ARGS="softmax4096", "--laws 400"
	$(BIN)/python scripts/gpu_check.py $(ARGS)

race-check: $(VENV)/test.stamp  ## kernels in oclgrind: races, bounds; ARGS="--laws 400"
	$(BIN)/python scripts/race_check.py $(ARGS)

device-laws: $(VENV)/test.stamp  ## all laws on devices, resumable; ARGS="--only webgpu"
	$(BIN)/python scripts/device_laws.py $(ARGS)

web: $(VENV)/test.stamp  ## a page that reads drawn digits, tested in a headless Chromium
	$(BIN)/python examples/digits_web.py --check $(ARGS)

precision: $(VENV)/bench.stamp  ## training in bfloat16 and float16 against float32; ARGS="fnx 100"
	$(BIN)/python benchmarks/low_precision.py $(ARGS)

versions: $(VENV)/test.stamp  ## the smoke test with the oldest llvmlite; ARGS=--all, each Python
	$(BIN)/python scripts/check_versions.py $(ARGS)

neighbours: $(VENV)-neighbours/bin/python  ## fnx beside PyMC, Numba, PyTorch and JAX
	$(VENV)-neighbours/bin/python -m pip --disable-pip-version-check install --quiet \
		--editable . pymc numba torch jax
	$(VENV)-neighbours/bin/python scripts/check_neighbours.py $(ARGS)

$(VENV)-neighbours/bin/python:
	$(PYTHON) -m venv $(VENV)-neighbours

clean:  ## remove the virtual environment and all files made by tools
	rm -rf $(VENV) $(VENV)-neighbours $(VENV)-libraries $(VENV)-models build *.egg-info .mypy_cache \
		.ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The libraries need versions of their own, so that no other environment sees them.
$(VENV)-libraries/stamp: scripts/libraries.toml pyproject.toml
	$(PYTHON) -m venv $(VENV)-libraries
	$(VENV)-libraries/bin/python scripts/libraries.py --requirements > $(VENV)-libraries/wanted.txt
	$(VENV)-libraries/bin/python -m pip install --quiet --editable . -r \
		$(VENV)-libraries/wanted.txt
	@touch $@

# torchvision belongs to one version of torch, and no other environment needs the two.
$(VENV)-models/stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)-models
	$(VENV)-models/bin/python -m pip install --quiet --editable '.[models]'
	@touch $@

# One stamp for each extra of pyproject.toml, renewed when that file changes.
$(VENV)/%.stamp: pyproject.toml | $(BIN)/python
	$(PIP) --editable '.[$*]'
	@touch $@
