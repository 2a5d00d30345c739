"""Runs: plan, extract everywhere, decide in one place."""
