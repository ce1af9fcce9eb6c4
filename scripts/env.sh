# Sourced by the scripts beside it, with $root set: goes to the checkout and makes .venv there, or leaves it where it is up to date. A script
# that needs another environment names its folder in $bilinear_venv, and what to install with pip there in $bilinear_wants.
# shellcheck shell=sh

unset PYTHONDONTWRITEBYTECODE # what is installed is compiled when it is first imported, and kept: most of it never is
cd "$root"
bilinear_venv=${bilinear_venv:-.venv}
bilinear_wants=${bilinear_wants:-".[nvrtc] --group dev"}
venv=$root/$bilinear_venv
stamp=$venv/made-for
wanted="$root $(cksum <pyproject.toml)" # an editable install holds the path of the checkout

# The newest Python that is new enough and can make virtual environments; a name on PATH may be there and not run.
find_python() {
    for python in python3.13 python3.12 python3.11 python3; do
        if "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            return
        fi
    done
    echo "bilinear needs Python 3.11 or newer with its venv module, and none of python3.13, python3.12, python3.11, python3 is one." >&2
    echo "Install it, for instance on Debian or Ubuntu: apt-get install python3 python3-venv" >&2
    exit 1
}

if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || ! "$venv/bin/python" -c '' 2>/dev/null; then
    find_python
    if [ -L "$venv" ]; then rm "$venv"; fi # what it points to is not ours to empty
    echo "making $bilinear_venv with $("$python" --version) (once; a minute or two)" >&2
    case $("$venv/bin/pip" --version 2>/dev/null) in
    *" from $venv/"*) ;; # one that was moved here would run the programs of its old place
    *) "$python" -m venv --clear "$venv" ;;
    esac
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --upgrade 'pip>=25.1' # older ones know no --group
    # shellcheck disable=SC2086 # several words
    rm -f "$stamp"
    {
        "$venv/bin/python" -m pip install --disable-pip-version-check --progress-bar off --no-compile --editable $bilinear_wants &&
            echo "$wanted" >"$stamp"
    } | sed -un 's/^Collecting \([^][ <>=!~;]*\).*/  fetching \1/p; s/^Installing collected .*/  installing all of it/p' >&2
    if [ ! -f "$stamp" ]; then exit 1; fi # pip has said why
    "$venv/bin/python" -m bilinear verify strassen >/dev/null # compiles what is imported most
fi
PATH=$venv/bin:$PATH
export PATH
