"""Integer sets with named dimensions: the one place that talks to isl (through islpy).

    Domain         an immutable set of integer points; dimensions are found by name
    block_domain   the points of one block; nest_domain: the points of a whole nest
    boxed          a bounded set as ranges that start at 0, offsets, and constraints
    reparametrise  integer points under exact divisions, enumerated without gaps (a lattice)
    lattices       the disjuncts of a set with gaps, each as a lattice

A relation is a Domain over the names of both sides: `renamed` and `extended` make room for
the second copy, `project_onto` takes one side. Two domains that are combined have the same
names; their order does not matter.
"""

from __future__ import annotations

from stripe.poly.blocks import block_domain, nest_domain
from stripe.poly.boxes import Boxed, Unbounded, boxed
from stripe.poly.calls import PolyhedralLimit, isl_version, seconds_spent
from stripe.poly.domain import Domain, Piece, as_inequalities, box_limits
from stripe.poly.lattice import Lattice, Linear, lattices, reparametrise

__all__ = [
    "Boxed",
    "Domain",
    "Lattice",
    "Linear",
    "Piece",
    "PolyhedralLimit",
    "Unbounded",
    "as_inequalities",
    "block_domain",
    "box_limits",
    "boxed",
    "isl_version",
    "lattices",
    "nest_domain",
    "reparametrise",
    "seconds_spent",
]
