"""Taylor expansion of a sum of distances between two groups of points, with a rigorous remainder.

For a source c' + y and a target c + x let D = c - c', R = |D|, z = x - y and t = |z|/R. Then

    |D + z| = R sqrt(1 + 2t cos + t²) = R Σ g_n(cos) tⁿ,   |g_n| <= 2/(2n-1) for n >= 1,

because g_n is a difference of two Legendre polynomials over 2n-1. The error of truncation after
order p is thus at most 2/(2p+1) |z|^(p+1) / (R^p (1-t)), in any dimension. The derivatives B_k at
z = 0 (k is a multi-index of order n) follow from q ∇f = f ∇q / 2 with q = |D + z|²:

    n R² B_k = -(2n-3) Σ_i k_i D_i B_(k-e_i) - (n-3) Σ_i k_i (k_i-1) B_(k-2e_i).

With moments M_m = Σ_y (-y)^m / m! the sum over all sources is Σ_j x^j/j! Σ_m B_(j+m) M_m.

With all signs positive the recurrence belongs to -R sqrt(1 - 2t - t²), which converges for
t < 0.414. So as long as |x| + |y| <= 0.4 R the terms add up to at most 2R in absolute value, and
rounding harms the sum no more than it harms a plain sum of distances.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from qtide.apps.clustering.arrays import Indices, Numbers
from qtide.apps.compiled import compiled_inner

MOST_RATIO = 0.4
LANES = 64  # source groups expanded at once, to use vector units
NO_ORDER = -1


class Powers(NamedTuple):
    """The multi-indices up to some order, lower orders first, and the relations between them."""

    orders: Indices
    ends: Indices  # [p]: the number of multi-indices of order at most p
    exponents: Indices  # [k, i]: the power of coordinate i
    one_less: Indices  # [k, i]: the index of k - e_i, or 0 if there is none
    two_less: Indices  # [k, i]: the index of k - 2 e_i, or 0 if there is none
    sums: Indices  # [j, m]: the index of j + m, or 0 if its order is too high


@cache
def powers(dimensions: int) -> Powers:
    """Build the table of multi-indices in two or three dimensions."""
    most = {2: 12, 3: 8}[dimensions]
    found = [k for k in product(range(most + 1), repeat=dimensions) if sum(k) <= most]
    found.sort(key=lambda k: (sum(k), k))
    exponents = np.array(found)
    orders = exponents.sum(axis=1)
    axes = np.eye(dimensions, dtype=np.int64)
    return Powers(
        orders,
        np.searchsorted(orders, np.arange(most + 1), side="right"),
        exponents,
        _places(found, exponents[:, None] - axes),
        _places(found, exponents[:, None] - 2 * axes),
        _places(found, exponents[:, None] + exponents),
    )


def _places(found: list[tuple[int, ...]], wanted: Indices) -> Indices:
    """Look up multi-indices in the table; 0 for those not in it."""
    places = {k: place for place, k in enumerate(found)}
    return np.array([[places.get(tuple(k), 0) for k in row] for row in wanted.tolist()])


@compiled_inner
def order_for(reach: Numbers, target: float, ratio: float, distance: float, allowed: float) -> int:
    """Return the least even order whose error per source is allowed, or NO_ORDER.

    `reach[p]` is the sources' power mean of degree p+1, `target` is a typical distance of a target
    from its centre, and `ratio` is the greatest possible t.
    """
    if not ratio <= MOST_RATIO:
        return NO_ORDER
    for order in range(2, reach.size, 2):
        if remainder(target + reach[order], ratio, distance, order) <= allowed:
            return order
    return NO_ORDER


@compiled_inner
def remainder(size: float, ratio: float, distance: float, order: int) -> float:
    """Bound the error of one source with |z| = size, for an even order."""
    relative = size / distance
    square = relative * relative
    power = 1.0
    for _ in range(order // 2):
        power *= square
    return 2.0 / (2.0 * order + 1.0) * size * power / (1.0 - ratio)


@compiled_inner
def derivatives(table: Powers, order: int, count: int, across: Numbers, lanes: Numbers) -> None:
    """Write B_k up to the order for the `count` differences D in `across`, one row per axis.

    Scales these rows of `across` to D/R² and sets its last row to 1/R².
    """
    _begin(count, across, lanes)
    last = across.shape[0] - 1
    for place in range(1, table.ends[order]):
        degree = table.orders[place]
        for lane in range(count):
            lanes[place, lane] = 0.0
        for axis in range(last):
            exponent = table.exponents[place, axis]
            one, two = table.one_less[place, axis], table.two_less[place, axis]
            by_one = -(2.0 * degree - 3.0) / degree * exponent
            by_two = -(degree - 3.0) / degree * exponent * (exponent - 1)
            for lane in range(count):
                lanes[place, lane] += (
                    by_one * across[axis, lane] * lanes[one, lane]
                    + by_two * across[last, lane] * lanes[two, lane]
                )


@compiled_inner
def _begin(count: int, across: Numbers, lanes: Numbers) -> None:
    """Write B_0 = R and scale the differences."""
    last = across.shape[0] - 1
    for lane in range(count):
        square = 0.0
        for axis in range(last):
            square += across[axis, lane] ** 2
        lanes[0, lane] = math.sqrt(square)
        across[last, lane] = 1.0 / square
        for axis in range(last):
            across[axis, lane] /= square


@compiled_inner
def contract(
    table: Powers, order: int, count: int, lanes: Numbers, moments: Numbers, local: Numbers
) -> None:
    """Add Σ_m B_(j+m) M_m of all lanes to the local expansion, for every j up to the order."""
    for place in range(table.ends[order]):
        total = 0.0
        for moment in range(table.ends[order - table.orders[place]]):
            row = table.sums[place, moment]
            for lane in range(count):
                total += lanes[row, lane] * moments[moment, lane]
        local[place] += total


@compiled_inner
def monomials(table: Powers, terms: int, offset: Numbers, values: Numbers) -> None:
    """Write offset^k / k! for the first `terms` multi-indices."""
    values[0] = 1.0
    for place in range(1, terms):
        axis = 0
        while table.exponents[place, axis] == 0:
            axis += 1
        lower = values[table.one_less[place, axis]]
        values[place] = lower * offset[axis] / table.exponents[place, axis]
