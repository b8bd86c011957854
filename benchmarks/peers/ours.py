"""stripec: the Tile text of the problem, compiled for the target."""

from __future__ import annotations

from collections.abc import Mapping

import stripec
from benchmarks.peers.base import Kind, Prepared, Setting, Unsupported
from benchmarks.problems import DTYPES, Array, Problem, Results, aligned


class Ours:
    name = "stripec"
    kind: Kind = "ours"
    default = True

    def missing(self) -> str:
        return ""

    def version(self) -> str:
        return stripec.__version__

    def prepare(self, problem: Problem, arrays: Mapping[str, Array], setting: Setting) -> Prepared:
        constants = {o.name: arrays[o.name] for o in problem.operands if o.constant and setting.packed}
        if setting.packed and not constants:
            raise Unsupported("the problem has no constant operands")
        given = {name: array for name, array in arrays.items() if name not in constants}
        try:
            kernel = stripec.compile(
                problem.tile,
                shapes=given,
                target=setting.target,
                threads=setting.threads,
                constants=constants,
            )
        except stripec.CompileError as error:
            if any(d.code == "D004" for d in error.diagnostics):
                raise Unsupported("it runs on one thread") from error
            raise
        order = [given[name] for name in kernel.inputs]
        made = tuple(aligned(result.shape, DTYPES[result.type]) for result in problem.results)
        out = made if len(made) > 1 else made[0]

        def call() -> object:
            return kernel(*order, out=out)

        def result() -> Results:
            call()
            return out

        note = "constants bound, nothing packed ahead" if constants and kernel.program.load is None else ""
        return Prepared(call, result, note)


PEER = Ours()
