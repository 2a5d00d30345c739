"""Frozen models with their preprocessing, one file a backbone. Specs import no torch."""
