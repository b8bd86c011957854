"""The walls of the house: which module may import which, and who may talk to the environment."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stripe.passes.registry import PASSES

ROOT = Path(__file__).parent.parent
PACKAGES = ("hwconfigs", "stripe", "tile_frontend", "codegen_cpu", "simulator", "stripec")

# What a package may import of ours; the layers inside `stripe` come after.
MAY_IMPORT = {
    "hwconfigs": {"hwconfigs"},
    "stripe": {"stripe", "hwconfigs"},
    "tile_frontend": {"tile_frontend", "stripe", "hwconfigs"},
    "codegen_cpu": {"codegen_cpu", "stripe", "hwconfigs"},
    "simulator": {"simulator", "stripe", "hwconfigs"},
    "stripec": set(PACKAGES),
}

# Lowest first: a module may import from its own layer or a lower one.
STRIPE_LAYERS: tuple[set[str], ...] = (
    {"diag", "lexing", "locks", "names", "dtypes", "affine", "files", "remembered"},
    {"ir", "intrinsics", "specials", "tags", "visit", "alike", "infer", "interp_data"},
    {"printer", "parser", "reading", "poly"},
    {"analysis", "rewrite", "input_strides", "delinearize"},
    {"verify", "interp", "arena", "validate"},
    {"passes"},
)
# Of `stripe`, these alone may look at a target.
MAY_READ_CONFIGS = (
    "stripe.validate_run",
    "stripe.verify",
    "stripe.arena",
    "stripe.analysis.cost",
    "stripe.analysis.fusion",
    "stripe.analysis.liveness",
    "stripe.analysis.placement",
    "stripe.analysis.stencils",
    "stripe.analysis.units",
    "stripe.passes",
)


def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Every module that a file imports, wherever the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield alias.name, node
            case ast.ImportFrom(module=module, names=names, level=level):
                assert level == 0, f"{path}:{node.lineno}: relative import"
                assert module is not None
                for alias in names:
                    whole = f"{module}.{alias.name}"
                    yield (whole if whole in MODULES else module), node
            case _:
                pass


def imports_of_ours(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    return ((name, node) for name, node in imports(path) if name.partition(".")[0] in PACKAGES)


def layer(module: str) -> int:
    """The layer of a module of `stripe`. `verify_access` lies where `verify` does."""
    part = module.split(".")[1]
    for number, names in enumerate(STRIPE_LAYERS):
        if part in names or any(part.startswith(f"{name}_") for name in names):
            return number
    raise AssertionError(f"{module} belongs to no layer: add it to STRIPE_LAYERS and docs/architecture.md")


@pytest.mark.parametrize("module", MODULES)
def test_packages_import_only_what_lies_below(module: str) -> None:
    package = module.partition(".")[0]
    for name, node in imports_of_ours(MODULES[module]):
        assert name.partition(".")[0] in MAY_IMPORT[package], f"{module}:{node.lineno} imports {name}"
        if package in ("tile_frontend", "codegen_cpu"):
            assert not name.startswith("stripe.passes"), f"{module}:{node.lineno} knows a pass: {name}"
        if package == "stripe" and name.startswith("hwconfigs"):
            assert module.startswith(MAY_READ_CONFIGS), f"{module}:{node.lineno} reads a target: {name}"


@pytest.mark.parametrize("module", [m for m in MODULES if m.count(".") and m.startswith("stripe.")])
def test_layers_of_stripe_point_downwards(module: str) -> None:
    for name, node in imports_of_ours(MODULES[module]):
        if name.startswith("stripe."):
            assert layer(name) <= layer(module), f"{module}:{node.lineno} imports {name}, which lies above"


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_documentation_names_every_module() -> None:
    described = re.sub(r"(?s)## The meaning of a program.*?## Conventions", "", ARCHITECTURE)
    passes = {name.replace("-", "_") for name in PASSES}
    for module in MODULES:
        package, _, name = module.rpartition(".")
        part_of_a_pass = package == "stripe.passes" and any(f"{name}_".startswith(f"{p}_") for p in passes)
        if not package or name.startswith("_") or part_of_a_pass:
            continue
        found = re.search(rf"(?<!\w){name}(?!\w)", described)
        assert found, f"docs/architecture.md is silent about {module}"


def test_the_documentation_names_no_other_file() -> None:
    files = {path.name for folder in (*PACKAGES, "tests", "tools") for path in (ROOT / folder).rglob("*.py")}
    named = set(re.findall(r"`(?:[\w/]+/)?(\w+\.py)`", ARCHITECTURE))
    assert named and named <= files, f"docs/architecture.md names {', '.join(sorted(named - files))}"


def test_imports_make_no_cycle() -> None:
    edges = {m: {name for name, _ in imports_of_ours(path) if name != m} for m, path in MODULES.items()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a cycle of imports: {' -> '.join((*path, module))}"
        if module not in done:
            for name in edges.get(module, ()):
                visit(name, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


def test_a_pass_imports_no_other_pass() -> None:
    machinery = {"base", "choices", "rewriter"}
    passes = {m.split(".")[2] for m in MODULES if m.startswith("stripe.passes.")}
    drivers = {"registry", "pipeline", "observers", "kernels", "manual"}
    for name in passes - drivers - machinery:
        for imported, node in imports_of_ours(MODULES[f"stripe.passes.{name}"]):
            parts = imported.split(".")
            if parts[:2] == ["stripe", "passes"] and len(parts) > 2:
                own = parts[2].partition("_")[0] == name.partition("_")[0]
                assert own or parts[2] in machinery, f"{name}:{node.lineno} imports {imported}"


def test_no_import_of_ours_hides_in_a_function() -> None:
    for module, path in MODULES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                for node in ast.walk(function):
                    match node:
                        case ast.Import():
                            names = [alias.name for alias in node.names]
                        case ast.ImportFrom():
                            names = [node.module or ""]
                        case _:
                            continue
                    for name in names:
                        # The demo needs packages of an extra; only then may it be imported late.
                        late = name.partition(".")[0] in PACKAGES and not name.startswith("stripec.demo")
                        assert not late, f"{module}:{node.lineno} imports {name} inside a function"


@pytest.mark.parametrize(
    ("library", "home"), [("islpy", "stripe.poly"), ("llvmlite", "codegen_cpu"), ("argparse", "stripec")]
)
def test_a_library_has_one_home(library: str, home: str) -> None:
    for module, path in MODULES.items():
        for name, node in imports(path):
            if name.partition(".")[0] == library:
                assert module.startswith(home), f"{module}:{node.lineno} imports {library}"


def test_the_environment_is_read_in_one_place() -> None:
    readers = {"os.environ", "os.getenv", "os.putenv", "os.environb", "Path.home", "expanduser"}
    to_others = "codegen_cpu.parallel_runtime"  # it tells an OpenMP runtime how to wait
    for module, path in MODULES.items():
        if module in ("stripec.settings", to_others):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                text = ast.unparse(node)
                assert not any(text.endswith(reader) for reader in readers), f"{module}:{node.lineno}: {text}"


def test_nobody_raises_the_recursion_limit() -> None:
    for path in MODULES.values():
        assert "setrecursionlimit" not in path.read_text(encoding="utf-8"), path


def test_no_result_of_the_papers_figure_stands_in_code_or_config() -> None:
    """The tile of Figure 4 is found, not known: its figures appear nowhere."""
    for path in [*MODULES.values(), *(ROOT / "hwconfigs").rglob("*.json")]:
        if path.name == "hwconfig.schema.json":
            continue
        text = path.read_text(encoding="utf-8")
        for figure in ("3x4", "3 x 4", "6x2", "6 x 2", "4.667", "544"):
            found = re.search(rf"(?<![\w.]){re.escape(figure)}(?![\w.])", text)
            assert found is None, f"{path}: {figure}"
