"""Release what a query has finished: the part of exactly-once that Spark leaves undone.

Spark tells a source that batch N is done when it begins batch N + 1. With availableNow, or while nothing comes, the last batch would stay
in its tap for ever. A query's progress is told when the batch is in Spark's commit log, so that is when it is released here, too.

A batch of a reservation is settled when the query asks where to go on, which it may do an hour later: this is sooner.

A progress names neither node nor options. The offsets in it name origin and tap (or reservation), and whoever follows releases only what
has both.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from dovetail.errors import DovetailError
from dovetail.spark import owner
from dovetail.spark.facts import survey_of
from dovetail.spark.options import options_of
from dovetail.spark.progress import offsets_of, sources
from dovetail.spark.shares import Shares
from dovetail.spark.survey import Survey

log = logging.getLogger("dovetail.spark")

FOLLOW_TIMEOUT = "5s"
"""A listener holds up the others of its session: what cannot be released soon is released with the next batch."""


class Follower(StreamingQueryListener):
    def __init__(self, survey: Survey) -> None:
        self._survey = survey

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        released(self._survey, event.progress)

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


def follow(spark: SparkSession, **options: Any) -> Follower:
    """From now on release what queries of this session finish, for the node and the tap or reservation of these options (those of the
    stream). Returns the listener; `spark.streams.removeListener` ends it."""
    follower = Follower(survey_of(options_of({"timeout": FOLLOW_TIMEOUT, **options})))
    spark.streams.addListener(follower)
    return follower


def release(progress: Any, **options: Any) -> None:
    """The same once, by hand: `release(query.lastProgress, **options)` behind an availableNow query that nobody followed."""
    released(survey_of(options_of(options)), progress)


def released(survey: Survey, progress: Any) -> None:
    for source in sources(progress):
        offsets = offsets_of(source, "endOffset")
        try:
            if isinstance(offsets, Shares):
                owner.settle(survey, offsets)
            elif offsets is not None and offsets.tap == survey.options.tap:
                survey.release(offsets)
        except DovetailError as error:
            log.warning("what was read could not be released yet: %s", error)
