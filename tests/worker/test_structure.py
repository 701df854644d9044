"""The parts of a worker refer to each other by name: "go to definition" leads to the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import windlass

SOURCE = Path(windlass.__file__).parent
PACKAGES = ("worker", "supervisor", "process")
MOST = 20
"""How many parameters of constructors may be callables, in all of these packages."""
REASONS = {
    "Worker.recipe": "the app's layer, which is above, says how children find the app",
    "Worker.ids": "the generator belongs to the app's layer",
    "WorkerSetup.ids": "the same",
    "ScheduleTicker.ids": "the same",
    "HandlerRunners.elsewhere": "threads in a worker, the main thread in a child",
    "BatchCollector.elsewhere": "the same",
    "HandlerRunners.record": "the checkpointer in a worker, a message in a child",
    "_Work.call": "the user's function",
    "Heartbeat.renew": "by the store, or by the supervisor",
}
"""The callables in the worker, without its children, each with the reason why it is one."""


def test_few_parts_are_given_callables() -> None:
    assert len(list(_callables(*PACKAGES))) <= MOST


def test_every_callable_in_the_worker_has_a_reason() -> None:
    mine = {name for path, name in _callables("worker") if "isolation" not in path.parts}
    assert mine == set(REASONS)


def test_files_and_functions_are_short() -> None:
    for path in _modules("worker"):
        text = path.read_text()
        assert text.count("\n") <= 400, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno <= 55, f"{path}: {node.name}"


def _modules(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from sorted((SOURCE / package).rglob("*.py"))


def _callables(*packages: str) -> Iterator[tuple[Path, str]]:
    trees = {path: ast.parse(path.read_text()) for path in _modules(*packages)}
    names = {"Callable"}
    for path in _modules(*PACKAGES):
        names.update(_aliases(ast.parse(path.read_text())))
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name != "Hooks":  # Those are the user's.
                for parameter, annotation in _parameters(node):
                    if names & set(_names(annotation)):
                        yield path, f"{node.name}.{parameter}"


def _aliases(tree: ast.Module) -> Iterator[str]:
    """Return the names that a module gives to types of callables."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Callable["):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _parameters(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            arguments = item.args.args + item.args.kwonlyargs
            yield from ((each.arg, each.annotation) for each in arguments if each.annotation)
        elif isinstance(item, ast.AnnAssign) and "Struct" in map(_called, node.bases):
            yield ast.unparse(item.target), item.annotation


def _called(decorator: ast.expr) -> str:
    return ast.unparse(decorator).partition("(")[0]


def _names(node: ast.expr) -> list[str]:
    return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
