"""The kinds of hostile cases. Each module has one public function `run(case) -> str`, which gives PASSED or REFUSED, or raises Finding."""
