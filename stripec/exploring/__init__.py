"""Sweeps: programs on many variants of a target, and which of them are worth a closer look.

    target, varied fields -> space of points -> measured, in other processes or on a cluster -> Exploration

Each finished point is a line of a journal, so that a sweep which was killed goes on where it was.
"""
