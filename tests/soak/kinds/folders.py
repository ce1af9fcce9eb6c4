"""Folders that `import` reads: published files as they are, damaged ones and what is none, pipes and links; the first are proved."""

from __future__ import annotations

import json
import os

from soak.case import PASSED, Case
from soak.command import call, drawn, inside
from soak.desk import look
from soak.foreign import NAMES, valid_files
from soak.mangle import mangled_bytes

from bilinear.frontend import load

MOST_SECONDS = 120
FORMS = ("fast-matmul", "json", "sms", "npz", "exp", "m", "slp")
OTHERS = {
    "x.py": b"U = [1]\nimport os\nos.mkdir('executed')\n",
    "layer.pt": b"PK\x03\x04 and more",
    "list.json": b"[1, [2, 3]]",
    "numbers.txt": b"1 2 3\n4 5 6\n",
    "product.m": b"function C = product(A, B)\n  C = A * B;\nend\n",
    "README.md": "# Schemes\n\nU, V and W lie in the folder.\n".encode("utf-16"),
    "empty.npz": b"",
    "deep.json": b"[" * 100_000,
}


def run(case: Case) -> str:
    """One folder."""
    draw, folder, proved = drawn(case), case.folder / "published", dict[str, str]()
    for number in range(draw.randint(1, 6)):
        name, form, place = draw.choice(NAMES), draw.choice(FORMS), folder / draw.choice(("a", "b c", "a/deeper"))
        files, place = valid_files(name, form), place / str(number) if draw.random() < 0.5 else place
        is_damaged = draw.random() < 0.3
        place.mkdir(parents=True, exist_ok=True)
        if any((place / file).exists() or ("sms" in form and any(place.glob("*.sms"))) for file in files):
            continue  # sets are told apart by their names
        for file, data in files.items():
            (place / file).write_bytes(mangled_bytes(data, draw) if is_damaged else data)
        if not is_damaged:
            proved |= {str((place / file).relative_to(folder)): load(name).scheme.format for file in files}
    folder.mkdir(exist_ok=True)
    for name, data in OTHERS.items():
        if draw.random() < 0.3:
            (folder / name).write_bytes(data)
    if draw.random() < 0.2:
        (folder / "loop").symlink_to("..")
    if draw.random() < 0.2:
        (folder / "gone.json").symlink_to("nowhere")
    before = look(folder)
    if draw.random() < 0.2:
        os.mkfifo(folder / "pipe.json")
    with inside(case.folder):
        answer = call("import", "published", "--json", seconds=60)
    (folder / "pipe.json").unlink(missing_ok=True)
    if look(folder) != before or [path.name for path in case.folder.iterdir()] != ["published"]:
        raise answer.finding("a reader has written")
    told = {row["file"].partition("[")[0]: row for row in json.loads(answer.out or "[]")}
    for file, scheme_format in proved.items():
        if file not in told or told[file]["verdict"] != "proved" or scheme_format not in told[file]["what"]:
            raise answer.finding(f"{file} is {scheme_format}, and is told as {told.get(file)}")
    refused = [row for row in told.values() if row["verdict"] == "refused"]
    if bool(answer.status) is not bool(refused) and proved:
        raise answer.finding(f"status {answer.status} with {len(refused)} refused")
    return PASSED
