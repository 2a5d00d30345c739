"""What the tools behind named variants do with files, where it is not what our loader does."""

from __future__ import annotations

from collections.abc import Mapping

TOOLS = {"clean": "clean-fid", "tf1": "torch-fidelity", "pytorch-fid": "pytorch-fid"}
"""Variant to the tool whose numbers it gives. torchmetrics reads no files."""

# All three read a file by ``Image.open(path).convert("RGB")``. That replicates grey and converts
# palettes and CMYK as ours does. It leaves a picture as it lies, drops the alpha channel and so
# shows the colour under it, and cuts grey numbers above 255 instead of scaling them.
_OTHERWISE = {
    "exif_rotated": "turned upright",
    "alpha_on_white": "laid on white",
    "32bit": "scaled from 32 bits",
    "float": "scaled from floats",
}


def conversion_note(metric: str, conversions: Mapping[str, int]) -> str | None:
    """Say which conversions the tool of a metric's variant does not make.

    Args:
        metric: Full id, such as ``"fid@tf1"``.
        conversions: Name to count of images, as :func:`genmetrics.samples.image.decode` names them.

    Returns:
        One sentence, or None where the variant is no tool's or the tool sees the same pixels.

    Examples:
        >>> conversion_note("fid@tf1", {"exif_rotated": 3, "palette": 9}).partition(":")[0]
        '3 images turned upright, which torch-fidelity does not do'
    """
    tool = TOOLS.get(metric.partition("@")[2].partition(":")[0])
    counts = {text: conversions.get(name, 0) for name, text in _OTHERWISE.items()}
    # of colour with 16 bits everybody takes the high byte
    deep = min(conversions.get("16bit", 0), conversions.get("grayscale", 0))
    done = [(n, text) for text, n in {**counts, "scaled from 16 bits": deep}.items() if n]
    if tool is None or not done:
        return None
    (first, what), *others = done
    noun = "image" if first == 1 else "images"
    listed = ", ".join([f"{first:,} {noun} {what}", *(f"{n:,} {text}" for n, text in others)])
    return f"{listed}, which {tool} does not do: not comparable with it on these files"
