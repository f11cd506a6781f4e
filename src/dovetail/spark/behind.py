"""Nodes that share a log are not all equally far in replaying it. What one of them has told us, another one may not know yet: the driver
asks one and its tasks read from another, and whoever loses its node goes on at the next.

So nothing that a node does not know is taken for gone before it has replayed as far as there is. An append comes back behind everything
that was answered before it, wherever: `confirm` appends what changes nothing. (Waiting a while was refused: how long is long enough?) A
read is different, it names how far it must come, so it is simply asked again until the node has come there.
"""

from __future__ import annotations

from dovetail.doors.native.codec import requests
from dovetail.errors import BatchRefused, Fenced, NoSuchReservation, Unavailable
from dovetail.spark.options import Options
from dovetail.spark.reach import Reach

NOBODY = 0
"""As an epoch: no owner has it."""


class Behind(Unavailable):
    """The node has not replayed its log as far as what is to be read, and it is worth asking again."""


def confirm(reach: Reach, options: Options, queue: int) -> None:
    """The node that is talked to now knows everything that any node had told anybody before. To be called within `patiently`."""
    if options.facts:
        reach.line.ask(requests.FactsAdvance(options.tap, 0, options.namespace))
    elif options.tap:
        reach.line.ask(requests.TapAdvance(queue, options.tap, 0))
    elif options.reservation:
        try:
            reach.line.ask(requests.ReserveSettle(queue, options.reservation, NOBODY, 0))
        except (Fenced, NoSuchReservation, BatchRefused):
            pass  # Refused when it was replayed, which is what it was for.
