"""The plans that have a name. Each says which promise it attacks; docs/promises.md has the promises."""

from __future__ import annotations

from collections.abc import Mapping

from .plan import Cut, Full, Kill, Lossy, Pause, Plan, Power, Restart, Slow

_ALL = (
    Plan(
        "kill",
        "kill −9 at any moment: nothing acknowledged is lost, doubled or back",
        ((Kill("node", 0.2),), (Kill("node", 1.5),), ()),
        every_s=2.5,
    ),
    Plan(
        "pause",
        "a message is one receiver's until its lease ends, also when the node slept meanwhile; an old receipt changes nothing",
        ((Pause("node", 0.5),), (Pause("node", 2.5),), ()),
    ),
    Plan(
        "cuts",
        "a send that was cut off is stored once, and a complete that was cut off counts once or not at all",
        (
            (Lossy(1.5, 0.02),),
            (Cut(0.3),),
            (Cut(1.2, silent=True),),
            (Slow(1.5, 20, 30),),
            (),
        ),
        every_s=2.0,
    ),
    Plan(
        "restart",
        "a node that is told to stop answers what is under way, and clients go on at the next one",
        ((Restart("node", 0.1),), (Restart("node", 1.0),), ()),
    ),
    Plan(
        "full-disk",
        "a full disk refuses pushes and nothing else; what was acknowledged stays",
        ((Full(2.0),), (Full(1.0), Kill("node", 0.5)), ()),
        every_s=4.0,
    ),
    Plan(
        "power",
        "an answer that says disk: power failure, and what was not synced is gone",
        ((Power("node", 0.5),), (Power("node", 0.1),), ()),
        every_s=4.0,
    ),
    Plan(
        "power-brokers",
        "an answer that says disk×3: the power of all brokers fails at once, and what they had not synced is gone",
        ((Power("broker", 0.5),), (Power("broker", 0.5), Kill("node", 1.0)), ()),
        every_s=8.0,
    ),
    Plan(
        "everything",
        "all promises, while nodes die and sleep and wires break at the same time",
        (
            (Kill("node", 1.0), Slow(2.0, 10, 20)),
            (Pause("node", 1.5), Lossy(2.0, 0.02)),
            (Restart("node", 0.5), Cut(1.0)),
            (Cut(0.5, silent=True), Kill("node", 0.2)),
            (),
        ),
    ),
    Plan(
        "moves",
        "a dead letter arrives once in the log of its queue, whoever dies or sleeps on the way",
        ((Kill("node", 0.5),), (Pause("node", 3.0), Kill("node", 0.5)), (Kill("node", 2.0, "majority"),), (Cut(0.5),), ()),
        every_s=2.0,
        logs=3,
    ),
    Plan(
        "brokers",
        "what the engine has acknowledged outlives any minority of its brokers",
        ((Kill("broker", 3.0, "minority"),), (Pause("broker", 4.0, "minority"),), (Restart("broker", 1.0),), ()),
        every_s=8.0,
    ),
    Plan(
        "brokers-and-nodes",
        "nodes hold nothing that is lost with them, also while the engine elects",
        ((Kill("node", 1.0), Kill("broker", 3.0)), (Pause("node", 4.0), Cut(1.0)), (Kill("broker", 1.0, "majority"),), ()),
        every_s=8.0,
    ),
)
PLANS: Mapping[str, Plan] = {plan.name: plan for plan in _ALL}
