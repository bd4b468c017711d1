"""Intervals of means by the bootstrap, for a few seeds as well as for many runs."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["LEVEL", "mean_intervals", "ratio_intervals"]

LEVEL = 0.95
"""Of every interval, unless told otherwise."""
RESAMPLES = 2000
FEW = 5
"""Fewer values cannot be resampled to anything beyond themselves: Student's interval is used."""
MANY = 500
"""From so many values on a mean is normally distributed: Student's interval is used as well."""
_CELLS_AT_ONCE = 2_000_000
_SEED = 20240819
"""Any fixed one: the same values give the same interval."""

Values = "NDArray[np.float64]"


def _expanded(level: float, count: int) -> float:
    """Return the level whose percentiles cover `level` for few values (Hesterberg 2015, 3.3).

    The plain percentile interval is too narrow by the factor sqrt((n - 1) / n) and by what
    separates Student's t from the normal distribution.
    """
    from scipy.stats import norm, t

    wide = np.sqrt(count / (count - 1)) * t.ppf(0.5 + level / 2, count - 1)
    return float(2 * norm.cdf(wide) - 1)


def _bootstrap(
    samples: tuple[NDArray[np.float64], ...], statistic: object, level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the interval of a statistic of each row; rows of several samples are paired."""
    from scipy.stats import bootstrap

    rows, count = samples[0].shape
    low, high = np.empty(rows), np.empty(rows)
    step = max(1, _CELLS_AT_ONCE // (count * RESAMPLES))
    wide = min(_expanded(level, count), 1 - 1e-9)
    for begin in range(0, rows, step):
        part = tuple(sample[begin : begin + step] for sample in samples)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of rows whose values are all the same
            found = bootstrap(
                part,
                statistic,
                n_resamples=RESAMPLES,
                paired=True,
                vectorized=True,
                axis=-1,
                confidence_level=wide,
                method="percentile",
                rng=np.random.default_rng(_SEED),
            ).confidence_interval
        low[begin : begin + step], high[begin : begin + step] = found.low, found.high
    return low, high


def mean_intervals(
    values: NDArray[np.float64], level: float = LEVEL
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return low and high of the interval of each row's mean; NaN for rows of one value."""
    rows, count = values.shape
    if count < 2:
        return np.full(rows, np.nan), np.full(rows, np.nan)
    if not FEW <= count < MANY:
        from scipy.stats import t

        mean = values.mean(axis=1)
        half = t.ppf(0.5 + level / 2, count - 1) * values.std(axis=1, ddof=1) / np.sqrt(count)
        return mean - half, mean + half
    return _bootstrap((values,), np.mean, level)


def ratio_intervals(
    old: NDArray[np.float64], new: NDArray[np.float64], level: float = LEVEL
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the interval of mean(new) / mean(old) of each pair of rows, whose values are paired.

    NaN where there is one pair alone, or a mean of 0.
    """
    rows, count = old.shape
    low, high = np.full(rows, np.nan), np.full(rows, np.nan)
    some = old.mean(axis=1) != 0
    if count < 2 or not some.any():
        return low, high
    old, new = old[some], new[some]
    if not FEW <= count < MANY:
        from scipy.stats import t

        ratio = new.mean(axis=1) / old.mean(axis=1)
        rest = new - ratio[:, None] * old
        error = rest.std(axis=1, ddof=1) / np.sqrt(count) / np.abs(old.mean(axis=1))
        half = t.ppf(0.5 + level / 2, count - 1) * error
        low[some], high[some] = ratio - half, ratio + half
        return low, high

    def ratio_of(
        first: NDArray[np.float64], second: NDArray[np.float64], axis: int
    ) -> NDArray[np.float64]:
        quotient: NDArray[np.float64] = second.mean(axis=axis) / first.mean(axis=axis)
        return quotient

    low[some], high[some] = _bootstrap((old, new), ratio_of, level)
    return low, high
