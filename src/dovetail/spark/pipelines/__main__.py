"""A pipeline as a program that spark-submit starts:

    spark-submit --master yarn --archives environment.tar.gz#environment …/dovetail/spark/pipelines/__main__.py archive --queue orders …

The session is then the one that spark-submit says, and settings are those of `dovetail pipeline run`.
"""

from __future__ import annotations

import sys

from dovetail.errors import DovetailError
from dovetail.spark.pipelines import PIPELINES, flags


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        flags.say(f"usage: NAME [--SETTING VALUE …]; there are {', '.join(PIPELINES)}")
        return 2
    try:
        flags.run(arguments[0], arguments[0], arguments[1:])
    except DovetailError as error:
        print(f"dovetail: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
