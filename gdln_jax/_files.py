"""Files that appear whole or not at all, and places that can be written."""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

# The longest name that Linux, macOS and Windows take, in bytes.
_LONGEST = 255
# Bytes that must fit on a disk before anything is computed; results are about this large.
_LEAST = 1 << 20


class UnwritableError(OSError):
    """A place that must not or cannot be written, known before there is anything to write."""


def expanded(path: str | Path) -> Path:
    """`path` with the user's home folder for a leading `~`."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UnwritableError(f"{path}: this user has no home folder") from error


@contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Make `folder` and try it out; it is removed at the end if nothing was written into it.

    Raises:
        UnwritableError: says why nothing can be written there.
    """
    with ExitStack() as made:
        try:
            made.enter_context(_made({folder}))
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(bytes(_LEAST))
                file.flush()
        except (FileExistsError, NotADirectoryError) as error:
            raise UnwritableError(f"{folder}: a part of it is a file, not a folder") from error
        except OSError as error:
            raise UnwritableError(f"{folder} cannot be written: {error.strerror}") from error
        yield


def refuse_foreign(places: Iterable[Path], elsewhere: str = "choose another folder") -> None:
    """Raise `UnwritableError` if there are `places`: files that stand in the way and are not ours.

    A file that the user named is replaced; one whose name was chosen here only if it was written
    here.
    """
    if names := [str(place) for place in places]:
        raise UnwritableError(
            f"{', '.join(names)}: not written by gdln_jax, or changed since; move what is there, "
            f"or {elsewhere}"
        )


@contextmanager
def written_whole(*places: Path, by: str = "") -> Iterator[list[Path]]:
    """Yield a path beside each of `places` to write to; then sync all of them and rename them.

    Readers see the old files or the new ones. An error or an interruption removes what was written
    and the folders that were made for it, and leaves older files as they were. `by` names who
    writes, for `remove_unfinished`; default is the number of this process.
    """
    folders = {place.parent for place in places}
    by = by or str(os.getpid())
    beside = [place.with_name(f"{mark(place)}{by}{place.suffix}") for place in places]
    with _made(folders):
        try:
            yield beside
            for path in beside:
                _sync(path)
            for path, place in zip(beside, places, strict=True):
                path.replace(place)
            for folder in folders if os.name == "posix" else ():
                _sync(folder)  # the renaming lasts through a loss of power
        except OSError as error:
            if error.errno is not None and error.filename is None:  # of a disk that is full
                error.filename = str(places[0])
            raise
        finally:
            for path in beside:
                path.unlink(missing_ok=True)


def write(place: Path, content: str | bytes, by: str = "") -> Path:
    """Write a file as a whole or not at all, a text in UTF-8; return `place`."""
    with written_whole(place, by=by) as (beside,):
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
    return place


def is_unfinished(path: Path) -> bool:
    """Whether `path` is what `written_whole` writes to before it is renamed."""
    return path.name.startswith(".") and ".tmp-" in path.name


def remove_unfinished(folder: Path, by: str = "*") -> None:
    """Remove what killed processes left in `folder`: all of it, or what `by` was writing."""
    for path in folder.glob(f".*.tmp-{by}.*"):
        path.unlink(missing_ok=True)


def mark(place: Path) -> str:
    """How the names begin that `written_whole` writes to before they become `place`."""
    name = place.name
    if len(os.fsencode(name)) > _LONGEST - 60:  # the rest of the name is shorter
        name = hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
    return f".{name}.tmp-"


@contextmanager
def _made(folders: set[Path]) -> Iterator[None]:
    """Make folders; at the end, those that were made and are empty are removed."""
    lines = {path for folder in folders for path in (folder, *folder.parents)}
    missing = sorted((path for path in lines if not path.exists()), key=lambda p: -len(p.parts))
    try:
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for folder in missing:
            with suppress(OSError):  # not empty
                folder.rmdir()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
