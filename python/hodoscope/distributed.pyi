from collections.abc import Sequence
from os import PathLike
from typing import Any

from . import Option, Table

def report(
    client: Any,
    inputs: str | bytes | Sequence[str | bytes | PathLike[str]],
    kind: str,
    *,
    parts: int | None = None,
    copies: str | PathLike[str] | None = None,
    **options: Option,
) -> list[Table]: ...
