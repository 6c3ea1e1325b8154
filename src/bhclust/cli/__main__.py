"""``python -m bhclust.cli`` is the command ``bhclust``."""

from bhclust.cli import main

if __name__ == "__main__":
    main(prog_name="bhclust")
