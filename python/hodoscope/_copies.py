"""Local copies of inputs in file systems that fsspec knows, such as `https:` or `s3:`."""

import hashlib
import os
import re
import shutil
import tempfile

# `memory://` and `https://` are, a path with a colon is not.
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_remote(value):
    """Returns whether a value is an address."""
    return isinstance(value, str) and ADDRESS.match(value) is not None


def _filesystem(address):
    from fsspec.core import url_to_fs

    return url_to_fs(address)


def _files(system, path):
    """Returns the files of an input: its own name or those below it, relative to it, and what is known of each."""
    files = {}
    for name, about in sorted(system.find(path, detail=True).items()):
        relative = name.removeprefix(path).strip("/")
        if ".." in relative.split("/"):
            raise ValueError(f"{path}: a file of it lies outside: {name}")
        files[relative] = name, about
    if not files:
        raise FileNotFoundError(f"{path} does not exist, or has no files")
    return files


def place(address, folder):
    """Returns where the copies of an address lie: another place if its files have other names, sizes or times."""
    system, path = _filesystem(address)
    version = [
        (name, *(str(about.get(key)) for key in ("size", "ETag", "mtime", "created", "LastModified")))
        for name, about in _files(system, path).values()
    ]
    key = hashlib.sha256(repr((address, version)).encode()).hexdigest()[:16]
    return os.path.join(folder, key, os.path.basename(path.rstrip("/")) or "input")


def fetch(address, to):
    """Copies an address to a place, unless a copy is there. Several processes may do so at once."""
    if os.path.exists(to):
        return
    holder = os.path.dirname(to)
    folder = os.path.dirname(holder)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.stat(folder).st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to another user; choose another folder with `copies`")
    system, path = _filesystem(address)
    # A copy that is cut short never gets its name.
    partial = tempfile.mkdtemp(prefix="partial-", dir=folder)
    try:
        for relative, (name, _) in _files(system, path).items():
            target = os.path.join(partial, os.path.basename(to), relative).rstrip("/")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            system.get_file(name, target)
        try:
            os.rename(partial, holder)
        except OSError:
            # Another process was faster.
            if not os.path.exists(to):
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
