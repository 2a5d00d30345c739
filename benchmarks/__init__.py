"""Benchmarks: genmetrics beside the tools it replaces, in one run on one machine.

``python -m benchmarks --out FILE`` runs them; ``docs/benchmarks.md`` says how to read the outcome.
"""
