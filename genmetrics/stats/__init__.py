"""Pure float64 mathematics on feature arrays: no files, no models, any device.

Every function takes numpy arrays or tensors of any float type and computes in float64, on the
device of its input if that has float64. Some take a :class:`RowSource` too: rows that do not fit
memory. ``*_influence`` and ``*_estimate`` say how much each generated sample moves the value, with
the reference held fixed; sd / sqrt(n) of an influence is a standard error.
"""

from genmetrics.stats.arrays import as_float64, standard_error
from genmetrics.stats.authpct import AuthPctEstimate, authpct, authpct_estimate
from genmetrics.stats.blocks import RowSource
from genmetrics.stats.bootstrap import (
    mean_interval,
    mean_of_groups,
    normal_interval,
    wilson_interval,
)
from genmetrics.stats.cmmd import CmmdEstimate, UnitMoments, cmmd, cmmd_estimate, cmmd_exact
from genmetrics.stats.frechet import (
    FrechetEstimate,
    frechet_distance,
    frechet_distance_moments,
    frechet_estimate,
    frechet_infinity,
    frechet_influence,
)
from genmetrics.stats.inception import InceptionScore, inception_influence, inception_score
from genmetrics.stats.kernel import (
    KernelDistance,
    KernelEstimate,
    kernel_distance,
    kernel_estimate,
    kernel_influence,
)
from genmetrics.stats.moments import Moments
from genmetrics.stats.pairs import psnr, ssim
from genmetrics.stats.prdc import Prdc, prdc
from genmetrics.stats.vendi import VendiEstimate, vendi, vendi_estimate

__all__ = [
    "AuthPctEstimate",
    "CmmdEstimate",
    "FrechetEstimate",
    "InceptionScore",
    "KernelDistance",
    "KernelEstimate",
    "Moments",
    "Prdc",
    "RowSource",
    "UnitMoments",
    "VendiEstimate",
    "as_float64",
    "authpct",
    "authpct_estimate",
    "cmmd",
    "cmmd_estimate",
    "cmmd_exact",
    "frechet_distance",
    "frechet_distance_moments",
    "frechet_estimate",
    "frechet_infinity",
    "frechet_influence",
    "inception_influence",
    "inception_score",
    "kernel_distance",
    "kernel_estimate",
    "kernel_influence",
    "mean_interval",
    "mean_of_groups",
    "normal_interval",
    "prdc",
    "psnr",
    "ssim",
    "standard_error",
    "vendi",
    "vendi_estimate",
    "wilson_interval",
]
