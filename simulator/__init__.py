"""Runs scheduled programs on described machines, and counts: `simulate`.

    Program on addresses, HwConfig -> timeline (execution by execution) and closed (by isl) -> Simulation

Rules of time are in `simulator.timeline`, rules of counting in `simulator.work` and `simulator.meters`.
"""

from simulator.result import Simulation, schema
from simulator.simulate import simulate

__all__ = ["Simulation", "schema", "simulate"]
