"""Mutants of bytes and of texts: what a disk, an editor or an enemy makes of a file."""

from __future__ import annotations

import random
import re

TOKEN = re.compile(r"\[[^\]\n]*\]|[A-Za-z_]\w*|\d+|\s+|.", re.DOTALL)
NUMBER = re.compile(rb"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
NUMBERS = (
    *("0", "1", "-1", "2", "1/2", "-0", "007", "1/0", "0/0", "1e9", "1e400", "nan", "inf", "0x10", "1_0", "1.5", "--1", "+1"),
    *(str(2**31), str(2**63), str(-(2**63) - 1), str(2**64), str(2**127), "9" * 40, "9" * 5000, f"1/{2**61 - 1}", "65", "1000000000"),
)
CONTROLS = ("\0", "\x1b[31m", "\x1b]0;x\x07", "\x9b2J", "\u202e", "\u2066", "\u2028", "\x85", "\r", "\x0c", "\x7f", "\u200f", "\ufeff")
STRANGE = ("\u0663", "\ud7ff", "é", "\U0001f600", "ﬁ", "x" * 300, "\u00a0", "\u0301", "'", '"', "\\", "\t", "%s", "{0}", "$(x)", "&lt;")


def piece(draw: random.Random) -> str:
    """Something that a file does not hold."""
    return draw.choice((*NUMBERS, *NUMBERS, *CONTROLS, *STRANGE, "(", ")", "[", "]", "{", "}", "|", ":", ";", ",", "-", "*", "=", "#"))


def mangled_bytes(data: bytes, draw: random.Random, changes: int = 0) -> bytes:
    """A file with a few changes of bits, bytes, numbers and lines; `changes` of them, or one to four."""
    for _ in range(changes or draw.randint(1, 4)):
        data = draw.choice((_bit, _byte, _number, _number, _number, _line, _line, _cut, _insert, _encode))(data, draw)
    return data


def _bit(data: bytes, draw: random.Random) -> bytes:
    if not data:
        return data
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]


def _byte(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + bytes([draw.randrange(256)] * draw.choice((1, 1, 1, 2, 9))) + data[at + draw.randrange(3) :]


def _number(data: bytes, draw: random.Random) -> bytes:
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    at, other = draw.choice(found), draw.choice(found)
    new = draw.choice((other[0], b"0", b"1", b"-1", b"-" + at[0], draw.choice(NUMBERS).encode()))
    return data[: at.start()] + new + data[at.end() :]


def _line(data: bytes, draw: random.Random) -> bytes:
    lines = data.split(b"\n")
    at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    way = draw.randrange(4)
    if way == 0:
        del lines[at]
    elif way == 1:
        lines.insert(other, lines[at])
    elif way == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines.insert(at, piece(draw).encode("utf-8", "surrogatepass"))
    return b"\n".join(lines)


def _cut(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] if draw.random() < 0.5 else data[:at] + data[at + draw.randrange(20) :]


def _insert(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + piece(draw).encode("utf-8", "surrogatepass") * draw.choice((1, 1, 1, 40)) + data[at:]


def _encode(data: bytes, draw: random.Random) -> bytes:
    """The same text in another encoding, now and then."""
    if draw.random() < 0.7:
        return data
    text = data.decode("utf-8", "replace")
    return text.encode(draw.choice(("utf-16", "utf-16-le", "utf-32", "utf-8-sig", "latin-1", "utf-7")), "replace")


def mangled_text(text: str, draw: random.Random) -> str:
    """A text with a few of its words dropped, doubled, swapped or exchanged for others."""
    for _ in range(draw.randint(1, 4)):
        words = TOKEN.findall(text)
        if not words:
            return piece(draw)
        at, other = draw.randrange(len(words)), draw.randrange(len(words))
        way = draw.randrange(6)
        if way == 0:
            words[at] = ""
        elif way == 1:
            words.insert(other, words[at])
        elif way == 2:
            words[at], words[other] = words[other], words[at]
        elif way == 3:
            words[at] = piece(draw)
        else:
            alike = [word for word in words if word[0].isalpha() == words[at][0].isalpha() and word[0].isdigit() == words[at][0].isdigit()]
            words[at] = draw.choice(alike)
        text = "".join(words)
    return text
