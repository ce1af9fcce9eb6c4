"""The kinds of hostile cases. Each module has one public function `run(case) -> str`, which gives PASSED or REFUSED, or raises Finding.

It may have a number `MOST_SECONDS`, how long a case may take, and a function `skip_reason() -> str | None`, why no case can run here.
"""
