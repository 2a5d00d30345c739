#!/usr/bin/env bash
# Everything a change must pass: lint, types, every test. Makes .venv if needed.
# Arguments go to pytest, for example: ./scripts/test.sh tests/stats -k frechet
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
.venv/bin/python -m pip check

.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
# Two workers: the tests are many small pieces, and each keeps to one thread of arithmetic.
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} .venv/bin/python -m pytest -n "${WORKERS:-2}" "$@"
