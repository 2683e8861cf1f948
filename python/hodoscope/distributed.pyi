from collections.abc import Sequence
from os import PathLike
from typing import Any, NamedTuple

from typing_extensions import Unpack

from . import Table
from ._options import PlanOptions, ReportKind

class Task(NamedTuple):
    text: str
    build: str
    copies: list[tuple[str, str]]
    plan: str

def plan(
    inputs: str | bytes | Sequence[str | bytes | PathLike[str]],
    kind: ReportKind,
    *,
    parts: int | None = None,
    copies: str | PathLike[str] | None = None,
    **options: Unpack[PlanOptions],
) -> list[Task]: ...
def fold(task: Task) -> bytes: ...
def merge(*parts: bytes) -> bytes: ...
def finish(part: bytes) -> list[Table]: ...
def report(
    client: Any,
    inputs: str | bytes | Sequence[str | bytes | PathLike[str]],
    kind: ReportKind,
    *,
    parts: int | None = None,
    copies: str | PathLike[str] | None = None,
    **options: Unpack[PlanOptions],
) -> list[Table]: ...
