"""Weights: the one place that knows addresses and hashes.

``locate`` and ``locate_model`` say what would be used, ``require`` and ``require_model`` insist
that it is there and whole, ``verify`` checks it, ``load_state_dict`` reads it, ``fetch`` gets it.
Only ``fetch`` ever opens a connection.

Environment: ``GENMETRICS_HOME``, ``GENMETRICS_WEIGHTS`` (where files lie), ``GENMETRICS_OFFLINE``
or ``HF_HUB_OFFLINE`` (no downloads), ``GENMETRICS_MANIFEST`` (another manifest, for mirrors and
tests), and the hub's own ``HF_HOME``, ``HF_HUB_CACHE``, ``HF_ENDPOINT``.
"""

from genmetrics.weights.download import fetch
from genmetrics.weights.files import Check, Located, Override, locate, path_of, require, verify
from genmetrics.weights.manifest import Entry, entries
from genmetrics.weights.models import LocatedModel, locate_model, require_model
from genmetrics.weights.places import home, hub_cache, weights_dir
from genmetrics.weights.state_dict import load_state_dict

__all__ = [
    "Check",
    "Entry",
    "Located",
    "LocatedModel",
    "Override",
    "entries",
    "fetch",
    "home",
    "hub_cache",
    "load_state_dict",
    "locate",
    "locate_model",
    "path_of",
    "require",
    "require_model",
    "verify",
    "weights_dir",
]
