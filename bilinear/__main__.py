"""python -m bilinear"""

from bilinear.cli import main

main()
