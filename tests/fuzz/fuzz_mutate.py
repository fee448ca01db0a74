"""Changes of valid files: of bits, of numbers in texts and headers, of JSON, of what is inside .gz, .npz and .npy."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from shoal.array_files import hash_file
from shoal.verified import SEAL, seal

NUMBERS = [
    *("0", "1", "-1", "2", "7", "127", "255", "65536", "2147483647", "2147483648", "4294967296"),
    *("9223372036854775807", "9223372036854775808", "18446744073709551616", "1" + "0" * 40, "9" * 5000),
    *("nan", "NaN", "inf", "-inf", "1e309", "1e-400", "0.5", "-0", "0x10", "1_000", "٣", "", "true", "null"),
]
WORDS = [
    b"\xff\xfe",
    b"\0",
    b"\xc3",
    b"'",
    b'"',
    b",",
    b"\n",
    b"\r",
    b"\t",
    b"{",
    b"[" * 3000,
    b"]",
    b"#",
    b"%",
]
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**40, 1e308, float("nan"), float("inf"), 0.5),
    *("", "a", "../../x", "ä", "\ud800", "1", [], {}, [[]], [1, 2], ["a"], {"a": 1}, [[[[1]]]]),
]
DTYPES = [
    *("'<f4'", "'>i8'", "'|O'", "'<U3'", "'<i1'", "'|b1'", "'<c16'", "'<M8[s]'", "'|V8'", "'<f2'", "'|S0'"),
    *("[('a', '<i4')]", "'<i8'", "'<u8'", "'<u4'", "('<i4', (2,))", "None", "'x'", "{}"),
]

DESCRIPTIONS = (
    "part.json",
    "meta.json",
    "manifest.json",
)  # hold checksums: a part's before the manifest's, which has its

Mutation = Callable[[bytes, Random], bytes]


def mutate_folder(folder: Path, random: Random, *, vouched: bool = False, repack: bool = True) -> Path:
    """Change one file below `folder`; returns which. `vouched` mends the checksums of stored graphs and parts that tell
    of it, `repack` changes what is inside .gz, .npz and .zip too and packs it again with checksums that are right."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".old")
    path = random.choice(paths)
    content = path.read_bytes()
    for _ in range(1 if random.random() < 0.7 else random.randint(2, 4)):
        content = mutate_file(path, content, random, repack=repack)
    path.write_bytes(content)
    if vouched:
        vouch(folder)
    return path


def mutate_file(path: Path, content: bytes, random: Random, *, repack: bool = True) -> bytes:
    """One change that fits the kind of file, or any."""
    name = path.name
    if name.endswith((".gz", ".npz", ".zip")) and not repack:
        return random.choice(BINARY)(content, random)
    if name.endswith(".gz") and random.random() < 0.7:
        inside = _open(lambda: gzip.decompress(content))
        if inside is not None:
            return gzip.compress(mutate_file(path.with_suffix(""), inside, random), mtime=0)
    if name.endswith((".npz", ".zip")) and random.random() < 0.7:
        return _open(lambda: _mutate_zip(content, random)) or content
    if name.endswith(".npy") and random.random() < 0.5:
        return _open(lambda: _mutate_npy(content, random)) or content
    if name.endswith((".json", ".jsonl")) and random.random() < 0.7:
        return _open(lambda: _mutate_json(content, random, lines=name.endswith("l"))) or content
    if name.endswith(".safetensors") and random.random() < 0.5:
        return _open(lambda: _mutate_safetensors(content, random)) or content
    is_text = b"\0" not in content[:200]
    return random.choice(TEXT if is_text and random.random() < 0.7 else BINARY)(content, random)


def _open(read: Callable[[], bytes]) -> bytes | None:
    try:
        return read()
    except Exception:  # mutated before, and no longer what it was
        return None


def vouch(folder: Path) -> None:
    """Make the checksums of stored graphs and parts those of the files as they are."""
    for about_path in [path for name in DESCRIPTIONS for path in folder.rglob(name)]:
        try:
            about = json.loads(about_path.read_text())
            for entry in about.get("arrays", {}).values():
                path = about_path.parent / entry["file"]
                if path.is_file():
                    entry |= {"sha256": hash_file(path), "bytes": path.stat().st_size}
            for part in about.get("parts", ()):
                path = about_path.parent / part["folder"] / "part.json"
                part["sha256"] = hash_file(path)
            if SEAL in about:
                about[SEAL] = seal(about)
            about_path.write_text(json.dumps(about))
        except (ValueError, AttributeError, TypeError, KeyError, OSError, RecursionError):
            continue


def _flip_bit(content: bytes, random: Random) -> bytes:
    if not content:
        return b"\1"
    changed = bytearray(content)
    changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _change_bytes(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 2, 8))):
        if changed:
            changed[random.randrange(len(changed))] = random.choice((0, 255, 127, 128, random.randrange(256)))
    return bytes(changed)


def _truncate(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _cut(content: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(content) + 1)
    return start, min(start + random.choice((1, 4, 8, 64, 1000)), len(content))


def _delete(content: bytes, random: Random) -> bytes:
    start, stop = _cut(content, random)
    return content[:start] + content[stop:]


def _duplicate(content: bytes, random: Random) -> bytes:
    start, stop = _cut(content, random)
    return content[:stop] + content[start:stop] * random.choice((1, 1, 100)) + content[stop:]


def _splice(content: bytes, random: Random) -> bytes:
    (start, stop), (to, _) = _cut(content, random), _cut(content, random)
    return content[:to] + content[start:stop] + content[to + stop - start :]


def _overwrite_number(content: bytes, random: Random) -> bytes:
    """Put an odd integer or float at a place of 4 or 8 bytes."""
    kind = random.choice(["<i", "<I", "<q", "<Q", ">i", ">q", "<f", "<d"])
    size = struct.calcsize(kind)
    if len(content) < size:
        return content
    at = random.randrange(len(content) - size + 1)
    at -= at % random.choice((1, 4, 8))
    top = 1 << (8 * size)
    number: float = random.choice((0, 1, top // 2 - 1, top // 2, top - 1, 2**31 - 1, 1000))
    if kind[1] in "iq" and number >= top // 2:
        number -= top
    if kind[1] in "fd":
        number = random.choice((float("nan"), float("inf"), -1.0, 1e38))
    return content[:at] + struct.pack(kind, number) + content[at + size :]


def _insert_word(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content) + 1)
    return content[:at] + random.choice(WORDS) + content[at:]


def _change_number(content: bytes, random: Random) -> bytes:
    """Replace a number in a text, or exchange two."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?", content))
    if not found:
        return _insert_word(content, random)
    one = random.choice(found[:20] if random.random() < 0.3 else found)
    text = random.choice(NUMBERS).encode() if random.random() < 0.7 else random.choice(found).group()
    return content[: one.start()] + text + content[one.end() :]


def _change_lines(content: bytes, random: Random) -> bytes:
    lines = content.splitlines(keepends=True) or [b""]
    at = random.randrange(len(lines))
    other = random.choice(lines)
    lines[at : at + 1] = random.choice(
        ([], [lines[at], other], [other], [lines[at].replace(b",", b"\t")], [b"\n"])
    )
    return b"".join(lines)


def _change_word(content: bytes, random: Random) -> bytes:
    found = list(re.finditer(rb"[A-Za-z_]+", content))
    if not found:
        return _insert_word(content, random)
    one = random.choice(found)
    word = random.choice([other.group() for other in found] + [b"nan", b"null", b"!!python/object", b""])
    return content[: one.start()] + word + content[one.end() :]


BINARY: list[Mutation] = [
    *(_flip_bit, _flip_bit, _change_bytes, _truncate, _delete, _duplicate, _splice, _overwrite_number),
    _overwrite_number,
]
TEXT: list[Mutation] = [_change_number, _change_number, _change_lines, _change_word, _insert_word, _truncate]


def _mutate_json(content: bytes, random: Random, *, lines: bool = False) -> bytes:
    if lines:
        texts = content.splitlines()
        at = random.randrange(len(texts))
        texts[at] = _mutate_json(texts[at], random)
        return b"\n".join(texts) + b"\n"
    value = json.loads(content)
    places: list[tuple[Any, Any]] = []
    _list_places(value, places)
    if not places or random.random() < 0.05:
        return json.dumps(random.choice(VALUES)).encode()
    holder, key = random.choice(places[:30] if random.random() < 0.3 else places)
    what = random.random()
    if what < 0.6:
        holder[key] = random.choice(VALUES)
    elif what < 0.7:
        del holder[key]
    elif what < 0.8 and isinstance(holder, dict):
        holder[random.choice(("", "a", str(key) + "x", "../x"))] = holder.pop(key)
    elif what < 0.95:
        other, place = random.choice(places)
        holder[key] = other[place]
    else:
        return json.dumps(value).encode().replace(b"[", b"[" * 100_000, 1)
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _list_places(value: Any, places: list[tuple[Any, Any]]) -> None:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        places.append((value, key))
        _list_places(value[key], places)


def _mutate_npy(content: bytes, random: Random) -> bytes:
    """Another header of the right length, or other numbers behind it."""
    length = struct.unpack("<H", content[8:10])[0]
    header, body = content[10 : 10 + length].rstrip(), content[10 + length :]
    what = random.random()
    if what < 0.3:
        header = re.sub(rb"'descr': [^,]*", b"'descr': " + random.choice(DTYPES).encode(), header)
    elif what < 0.6:
        shapes = ["()", "(-1,)", "(0,)", "(1,)", f"({len(body) // 8},)", f"({len(body) // 8}, 1)", "(2, 3)"]
        shapes += [
            "(10000000000000,)",
            "(1, 1, 1)",
            "(9223372036854775808,)",
            "[1]",
            "(True,)",
            "1",
            "(0, 1000)",
        ]
        header = re.sub(rb"'shape': \([^)]*\)", b"'shape': " + random.choice(shapes).encode(), header)
    elif what < 0.7:
        header = header.replace(b"False", b"True")
    elif what < 0.8:
        header = random.choice(TEXT)(header, random)
    else:
        body = random.choice(BINARY)(body, random)
    header = header.ljust(length - 1) + b"\n"
    return content[:8] + struct.pack("<H", len(header) % 65536) + header + body


def _mutate_zip(content: bytes, random: Random) -> bytes:
    """The archive with a member changed, renamed, left out or twice, with sums that are right."""
    packed = zipfile.ZipFile(io.BytesIO(content))
    members = [(info.filename, packed.read(info)) for info in packed.infolist()]
    at = random.randrange(len(members))
    name, inside = members[at]
    what = random.random()
    if what < 0.75:
        members[at] = name, mutate_file(Path(name), inside, random)
    elif what < 0.8:
        members.append((name, random.choice(members)[1]))
    elif what < 0.9:
        members[at] = random.choice((name + "x", "../" + name, "/" + name, "")), inside
    else:
        del members[at]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as repacked:
        for name, inside in members:
            repacked.writestr(zipfile.ZipInfo(name), inside)
    changed = bytearray(target.getvalue())
    if random.random() < 0.1:  # another compression, encryption, size or place in the directory
        start = changed.find(b"PK\1\2")
        changed[start + random.choice((8, 10, 20, 24, 42))] = random.choice((1, 9, 12, 14, 99, 255))
    return bytes(changed)


def _mutate_safetensors(content: bytes, random: Random) -> bytes:
    length = struct.unpack("<Q", content[:8])[0]
    header, body = content[8 : 8 + length], content[8 + length :]
    if random.random() < 0.3:  # what training keeps beside the weights
        about = json.loads(header)
        kept = about["__metadata__"]
        key = random.choice(sorted(kept))
        kept[key] = _mutate_json(kept[key].encode(), random).decode() if kept[key][:1] in "{[" else ""
        header = json.dumps(about).encode()
    else:
        header = _mutate_json(header, random)
    return struct.pack("<Q", len(header)) + header + body


def identify(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
