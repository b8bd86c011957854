"""The version of stripec: packaging reads it here, without importing anything else."""

VERSION = "0.1.0"
