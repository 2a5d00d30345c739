"""The nouns every part of genmetrics speaks in: Sample, Extractor, Metric, Result, Protocol."""
