"""python -m bilinear.cli"""

from bilinear.cli import main

main()
