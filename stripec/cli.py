"""The command `stripec`: arguments, messages and exit codes. The work is in stripec.commands.

Exit codes: 0 done; 1 the program, the data or a file is wrong; 2 wrong usage of the command; 70 a
fault of stripec; 130 interrupted; 141 the reader of the output went away.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from stripe.diag import CompileError
from stripec import commands, reports
from stripec._version import VERSION
from stripec.outputs import check_outputs
from stripec.settings import tracebacks
from stripec.threads import NoRuntime, openmp


def _named(text: str) -> tuple[str, str]:
    """`NAME=VALUE` of an option."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found '{text}'")
    return name, value


class _Version(argparse.Action):
    """The version, and on what parallel kernels run, which is looked for only now."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"stripec {VERSION}\nOpenMP: {openmp()}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The arguments of every subcommand."""
    parser = argparse.ArgumentParser(
        prog="stripec",
        description="A tensor compiler: Tile programs in, vectorised machine code out.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="print the version and the OpenMP runtime"
    )
    commands_ = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_run(commands_)
    _add_compile(commands_)
    _add_map(commands_)
    _add_explain(commands_)
    _add_report(commands_)
    _add_simulate(commands_)
    _add_explore(commands_)
    _add_opt(commands_)
    _add_passes(commands_)
    _add_targets(commands_)
    _add_demo(commands_)
    return parser


def _command(
    parsers: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    more: str = "",
    example: str = "",
) -> argparse.ArgumentParser:
    """A subcommand, with a summary in the list and an example below its own help."""
    sentence = f"{summary[0].upper()}{summary[1:]}."
    return parsers.add_parser(
        name,
        help=summary,
        description=f"{sentence} {more}".strip(),
        epilog=example and f"example:  {example}",
    )


def _add_run(parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = _command(
        parsers, "run", "compile a program and run it on data",
        "Every input needs an --input. A line on each output is printed.",
        "stripec run conv.tile --input I=i.npy --input K=random:f32[3,3,8,16] --output O=o.npy --check",
    )  # fmt: skip
    run.set_defaults(function=commands.run)
    _add_file(run)
    run.add_argument(
        "--input", type=_named, action="append", default=[], metavar="NAME=DATA",
        help="a .npy file, or random:f32[3,4], zeros:, ones:, arange:",
    )  # fmt: skip
    run.add_argument(
        "--output", type=_named, action="append", default=[], metavar="NAME=FILE",
        help="write an output to a .npy file",
    )  # fmt: skip
    _add_const(run, "bind this input when compiling, as a value that never changes")
    run.add_argument("--seed", type=_seed, default=0, help="of random inputs (default 0)")
    run.add_argument("--check", action="store_true", help="compare the result with the interpreter's")
    run.add_argument("--time", action="store_true", help="print median time, GFLOP/s and GB/s")
    _add_mapping(run)
    _add_target(run, "host")
    _add_threads(run, "default OMP_NUM_THREADS, else all cores")
    _add_verify(run)


def _add_compile(parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    compile_ = _command(
        parsers, "compile", "compile a program to text or to object code",
        "An input whose type is open needs a --shape. obj and shared come with a C header beside them.",
        "stripec compile conv.tile --shape I=f32[12,16,8] --shape K=f32[3,3,8,16] --emit shared -o conv.so",
    )  # fmt: skip
    compile_.set_defaults(function=commands.compile_file)
    _add_file(compile_)
    _add_shape(compile_)
    compile_.add_argument(
        "--emit", choices=commands.EMITS, default="stripe", help="what to make (default stripe)"
    )
    compile_.add_argument(
        "-o", dest="out", metavar="OUT",
        help="where to; texts go to standard output, code to NAME.o or NAME.so, if left out",
    )  # fmt: skip
    _add_dumps(compile_)
    _add_mapping(compile_)
    _add_target(compile_, "host")
    _add_threads(compile_, "default as many as the target says, which is 1 for those that ship")
    _add_verify(compile_)


def _map(arguments: argparse.Namespace) -> None:
    importlib.import_module("stripec.mapping_made").command(arguments)  # as in _report


def _add_map(parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    map_ = _command(
        parsers, "map", "write down what passes choose for a program: tiles, orders, units, copies",
        "An input whose type is open needs a --shape. The file is JSON to be read, changed and given to "
        "--mapping.",
        "stripec map conv.tile --shape I=i8[28,28,32] --shape K=i8[3,3,32,64] --target systolic_16 -o m.json",
    )  # fmt: skip
    map_.set_defaults(function=_map)
    _add_file(map_)
    _add_shape(map_)
    _add_const(map_)
    map_.add_argument("-o", dest="out", metavar="OUT", help="the file; standard output, if left out")
    _add_mapping(map_)
    _add_target(map_, "host")
    _add_threads(map_, "default as many as the target says, which is 1 for those that ship")
    _add_verify(map_)


def _add_explain(parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    explain = _command(
        parsers, "explain", "say what each pass did to each kernel of a program, or why it did nothing",
        "An input whose type is open needs a --shape. A kernel is a statement of the program. Below what "
        "passes did stand its tiles, what it is expected to take, and what is in its code.",
        "stripec explain conv.tile --shape I=f32[12,16,8] --shape K=f32[3,3,8,16] --target systolic_16",
    )  # fmt: skip
    explain.set_defaults(function=reports.explain)
    _add_file(explain)
    _add_shape(explain)
    _add_const(explain)
    explain.add_argument(
        "--measure", action="store_true",
        help="run each kernel on random data, and print its time beside what is expected",
    )  # fmt: skip
    explain.add_argument("--block", metavar="PATH", help="only this kernel or block, such as main/O")
    explain.add_argument(
        "-v", "--verbose", action="store_true", help="show the figures and candidates of each choice"
    )
    explain.add_argument("--json", action="store_true", help="print everything as JSON")
    _add_mapping(explain)
    _add_target(explain, "host")
    _add_threads(explain, "default as many as the target says, which is 1 for those that ship")
    _add_verify(explain)


def _simulate(arguments: argparse.Namespace) -> None:
    importlib.import_module("stripec.simulation").command(arguments)  # as in _report


def _add_simulate(parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        parsers, "simulate", "run a program on a described machine: time, traffic, occupancy, energy",
        "An input whose type is open needs a --shape.",
        "stripec simulate conv.tile --shape I=i8[28,28,32] --shape K=i8[3,3,32,64] --target systolic_16",
    )  # fmt: skip
    parser.set_defaults(function=_simulate)
    _add_file(parser)
    _add_shape(parser)
    _add_const(parser, "an input that is known ahead: what is done with it once is counted by itself")
    parser.add_argument(
        "--counts", choices=("closed", "simulated", "both"), default="both",
        help="count in closed form, without running, or execution by execution, or both ways and compare "
        "(default both)",
    )  # fmt: skip
    parser.add_argument(
        "--full", action="store_true", help="go through everything, also what repeats exactly"
    )
    parser.add_argument(
        "--trace", metavar="FILE.json", help="write a trace of units and memories for ui.perfetto.dev"
    )
    parser.add_argument(
        "--tasks", type=_natural, metavar="N",
        help="how many tasks --trace and --json have, the first N (default 100000 for --trace, else none)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    _add_mapping(parser)
    _add_target(parser, "systolic_16")
    _add_verify(parser)


def _explore(arguments: argparse.Namespace) -> None:
    importlib.import_module("stripec.exploring.command").command(arguments)  # as in _report


class _With(argparse.Action):
    """A field that goes in step with the last --vary."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, *_: object
    ) -> None:
        if not namespace.vary:
            raise argparse.ArgumentError(self, "there is no --vary before it")
        # The default list, and the lists in it, belong to this parser alone: it parses once.
        namespace.vary[-1].append(values)


def _add_explore(parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(
        parsers, "explore", "sweep fields of a target over programs: table, JSON, Pareto plot",
        "An input whose type is open needs a --shape. Values are lists (8,16) or ranges (64K..1M:x2, "
        "1..9:+2). A sweep that was interrupted goes on if it is started again.",
        "stripec explore conv.tile --shape I=i8[58,58,64] --shape K=i8[3,3,64,64] --target systolic_16 "
        "--vary memory.SPAD.bytes=64K..1M:x2 --vary unit.MAC.shape=8x8,16x16,32x32 -o sweep",
    )  # fmt: skip
    parser.set_defaults(function=_explore)
    parser.add_argument(
        "programs", nargs="+", metavar="PROGRAM",
        help="a Tile program, or Stripe text in a .stripe file; NAME=FILE names it",
    )  # fmt: skip
    parser.add_argument(
        "--shape", type=_named, action="append", default=[], metavar="NAME=TYPE",
        help="the type of an input, such as A=i8[3,4]; PROGRAM:A=i8[3,4] for one of several programs",
    )  # fmt: skip
    parser.add_argument(
        "--vary", type=_one_axis, action="append", required=True, metavar="PATH=VALUES",
        help="a field, such as memory.SPAD.bytes, unit.MAC.shape, stencil.mac.cycles, pass.autotile.inflight",
    )  # fmt: skip
    parser.add_argument(
        "--with", type=_field, action=_With, metavar="PATH=VALUES",
        help="a field that goes in step with the --vary before it: as many values",
    )  # fmt: skip
    parser.add_argument(
        "--objective", default="energy,latency", metavar="NAMES",
        help="what is to be small (default energy,latency): also cycles, edp, traffic, capacity, array",
    )  # fmt: skip
    parser.add_argument(
        "-o", dest="out", metavar="FOLDER", default="stripec-explore",
        help="for the journal, the JSON and the plot (default stripec-explore)",
    )  # fmt: skip
    parser.add_argument("--jobs", type=_threads, metavar="N", help="processes (default: one for each core)")
    parser.add_argument(
        "--cluster", metavar="ADDRESS", help="run on the Dask cluster whose scheduler is there"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    _add_target(parser, "systolic_16")
    _add_verify(parser)


def _field(text: str) -> tuple[str, str]:
    """`PATH=VALUES` of a field that varies."""
    try:
        return _named(text)
    except argparse.ArgumentTypeError:
        note = "such as memory.SPAD.bytes=64K,128K"
        raise argparse.ArgumentTypeError(f"expected PATH=VALUES, {note}, found '{text}'") from None


def _one_axis(text: str) -> list[tuple[str, str]]:
    return [_field(text)]


_REPORT = "report.html"  # where a report goes if nothing is said


def _report(arguments: argparse.Namespace) -> None:
    # Loaded here: no other command needs it, and they all would take longer to start.
    importlib.import_module("stripec.reporting.command").report(arguments)


def _add_report(parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    report = _command(
        parsers, "report", "write one HTML file on what became of a program: passes, tiles, memories, code",
        "An input whose type is open needs a --shape. With --diff, or an option that begins with it, two "
        "programs, targets or pipelines are compared: what is not given for the second is as for the first.",
        "stripec report conv.tile --shape I=i8[28,28,32] --shape K=i8[3,3,32,64] --target systolic_16",
    )  # fmt: skip
    report.set_defaults(function=_report)
    report.add_argument(
        "files", nargs="*", metavar="PROGRAM", help="a Tile program, or Stripe text in a .stripe file"
    )
    _add_shape(report)
    report.add_argument(
        "--pipeline", metavar="PASSES", help="passes, as for stripec opt, instead of the target's"
    )
    report.add_argument(
        "-o",
        dest="out",
        metavar="OUT",
        default=_REPORT,
        help=f"the file (default {_REPORT}); - is standard output",
    )
    report.add_argument(
        "--diff", nargs="*", metavar="PROGRAM", help="compare two programs, targets or pipelines"
    )
    report.add_argument("--diff-target", metavar="TARGET", help="the target of the second side")
    report.add_argument("--diff-mapping", metavar="FILE", help="the mapping of the second side")
    report.add_argument("--diff-pipeline", metavar="PASSES", help="the pipeline of the second side")
    report.add_argument(
        "--diff-shape", type=_named, action="append", default=[], metavar="NAME=TYPE",
        help="the type of an input of the second side",
    )  # fmt: skip
    _add_const(report)
    report.add_argument(
        "--no-times", action="store_true", help="leave out seconds: the same input gives the same bytes"
    )
    _add_mapping(report)
    _add_target(report, "host")
    _add_threads(report, "default as many as the target says, which is 1 for those that ship")
    _add_verify(report)


def _add_opt(parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    opt = _command(
        parsers, "opt", "read Stripe text, run passes, print Stripe text",
        "The text is verified, and verified again after every pass. `stripec passes` lists the passes.",
        "stripec opt dumps/00_input.stripe --target x86_64_avx2 --passes 'fuse,autotile{memory=L1},localize'",
    )  # fmt: skip
    opt.set_defaults(function=commands.opt)
    opt.add_argument("file", help="a Stripe file; - is standard input")
    opt.add_argument("--passes", default="", help="such as 'autotile{memory=L1},localize' (default none)")
    _add_dumps(opt)
    _add_target(opt, "generic")
    _add_verify(opt)


def _add_passes(parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    passes = _command(parsers, "passes", "list the passes or the tags, or explain a pass")
    passes.set_defaults(function=reports.passes)
    what = passes.add_mutually_exclusive_group()
    what.add_argument("name", nargs="?", help="explain this pass: its options, tags, and an example")
    what.add_argument("--tags", action="store_true", help="list the tags: who sets and who reads them")
    what.add_argument("--markdown", action="store_true", help="print the document of all passes and tags")


def _add_targets(parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    targets = _command(
        parsers, "targets", "list the targets, show one, or check a file",
        "Without ACTION: the shipped targets, with the one of this machine marked.",
    )  # fmt: skip
    targets.set_defaults(function=commands.targets)
    actions = targets.add_subparsers(dest="action", metavar="ACTION")
    show = _command(actions, "show", "print a target with all that it inherits")
    show.add_argument("name", help="host, a shipped target, or a JSON file")
    show.set_defaults(function=commands.show_target)
    check = _command(actions, "check", "check a JSON file, and every name in it")
    check.add_argument("file", help="a JSON file, wherever it lies")
    check.set_defaults(function=commands.check_target)
    schema = _command(actions, "schema", "print the JSON Schema of these files")
    schema.add_argument("--markdown", action="store_true", help="the reference of all keys, for people")
    schema.set_defaults(function=commands.print_schema)


def _add_demo(parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = _command(parsers, "demo", "run two real programs and compare with SciPy and scikit-learn")
    demo.set_defaults(function=commands.demo)
    demo.add_argument(
        "--out", default="stripec-demo", metavar="DIR", help="for pictures and dumps (default stripec-demo)"
    )
    _add_target(demo, "host")


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="a Tile program, or Stripe text in a .stripe file")


def _add_const(
    parser: argparse.ArgumentParser, says: str = "an input that never changes: it is packed at load time"
) -> None:
    parser.add_argument("--const", action="append", default=[], metavar="NAME", help=says)


def _add_shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shape", type=_named, action="append", default=[], metavar="NAME=TYPE",
        help="the type of an input, such as A=f32[3,4]",
    )  # fmt: skip


def _add_target(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--target", default=default,
        help=f"host, a shipped target, or a JSON file (default {default}); see stripec targets",
    )  # fmt: skip


def _add_mapping(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mapping", metavar="FILE",
        help="what passes choose, as stripec map writes it, instead of the target's pipeline",
    )  # fmt: skip


def _add_threads(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--threads", type=_threads, metavar="N", help=f"on how many threads the code runs ({default})"
    )
    parser.add_argument(
        "--deterministic", action="store_true", help="the same bits for every number of threads"
    )


def _natural(text: str) -> int:
    """A whole number from 0 on."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on, found '{text}'")
    return int(text)


def _threads(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) > 0):
        raise argparse.ArgumentTypeError(f"expected a positive integer, found '{text}'")
    return int(text)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--verify", choices=("off", "on", "full"), default="on",
        help="after every pass: on proves the program well formed, full also that it computes the same "
             "as before (default on)",
    )  # fmt: skip


def _add_dumps(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dump-passes", metavar="DIR", help="write a numbered text file after each pass")


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"expected a number from 0 on, found '{text}'")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, and never raises."""
    _open_closed_streams()
    try:
        parser = build_parser()
        arguments, rest = parser.parse_known_args(argv)
        if rest:
            parser.error(f"unrecognized arguments: {' '.join(rest)}{_repeat_the_option(rest)}")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    try:
        check_outputs(arguments)
        with _plain_warnings():
            arguments.function(arguments)
        sys.stdout.flush()
        return 0
    except CompileError as error:
        return _failed(str(error), 1)
    except KeyboardInterrupt:
        return _failed("stripec: interrupted", 130)
    except BrokenPipeError:
        _drop_output()
        return 141
    except MemoryError:
        return _failed("stripec: out of memory", 1)
    except Exception as error:  # noqa: BLE001 - the last resort: no traceback for the user
        if isinstance(error, OSError) and error.errno in _OUTPUT_FAULTS:
            _drop_output()
            return _failed(f"stripec: can't write to standard output: {error.strerror}", 1)
        return _failed(_apology(error), 70)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Our own warnings as lines for people, without the place in the source that raised them."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], filename: str, lineno: int,
            file: TextIO | None = None, line: str | None = None,
        ) -> None:  # fmt: skip
            if issubclass(category, NoRuntime):
                print(f"warning: {message}", file=sys.stderr)
            else:
                others(message, category, filename, lineno, file, line)

        warnings.simplefilter("always", NoRuntime)  # a line of the command's, whatever Python is told
        warnings.showwarning = show
        yield


def _repeat_the_option(rest: Sequence[str]) -> str:
    """A hint for values that stand behind those of one `--shape`."""
    if any(word.startswith("-") or "=" not in word for word in rest):
        return ""
    return "\nhelp: each of these needs the option in front of it: --shape " + " --shape ".join(rest)


def _open_closed_streams() -> None:
    """Python has None for a standard stream that was closed by the caller (`>&-`). What is printed to the
    output must not be lost in silence: it can't be written there."""
    for name, mode, flags in (
        ("stdin", "r", os.O_RDONLY),
        ("stdout", "w", os.O_RDONLY),
        ("stderr", "w", os.O_WRONLY),
    ):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode))


# Files raise CompileErrors; these come from standard output, on a disk that is full for example.
_OUTPUT_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def _drop_output() -> None:
    """The interpreter flushes standard output once more at its end; let that go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(message: str, code: int) -> int:
    if tracebacks():
        traceback.print_exc()
    print(message, file=sys.stderr)
    return code


def _apology(error: Exception) -> str:
    what = "\n".join([f"{type(error).__name__}: {error}"[:2000], *getattr(error, "__notes__", ())])
    return (
        f"stripec: this is a fault of stripec, not of your program: {what}\n"
        "     = please report it with the input files and the command line; "
        "STRIPEC_DEBUG=dump shows where it happened and keeps the program after every pass"
    )
