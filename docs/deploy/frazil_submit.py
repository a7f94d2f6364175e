"""What spark-submit is given to run: the command `frazil`, as a file that it takes for Python."""

from frazil.cli.main import main

main()
