"""spec/Replay.tla once more, operator by operator, under the same names and in the same order: what replaying a log gives.

A record of the specification is a dict here, a sequence a tuple, a function a dict. Safeguards cannot be left out. `test_replay.py` holds
this file to the names of the operators there, and TLC and this to the same answers about the same logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Record = dict[str, Any]

SILENCE = 3_000
STEP_MOST = 1_000
CLOSE_AFTER = 3_600_000
RESULTS_KEPT = 64
NONE = -1
NOBODY = ""


def lowest(numbers: Iterable[int], most: int) -> tuple[int, ...]:
    return tuple(sorted(numbers)[:most])


def drop(function: Mapping[Any, Any], keys: Iterable[Any]) -> dict[Any, Any]:
    gone = set(keys)
    return {key: value for key, value in function.items() if key not in gone}


def new_lane() -> Record:
    return {"next": 1, "delivery": 1, "live": {}, "line": ()}


def new_writer(time: int) -> Record:
    return {"last": 0, "silent": 0, "seen": time, "handed": frozenset()}


def new_state() -> Record:
    return {"time": 0, "position": 0, "lanes": {}, "writers": {}, "closed": frozenset(), "producers": {}}


def refused() -> Record:
    return {"what": "refused", "value": ()}


def done(value: int) -> Record:
    return {"what": "done", "value": value}


def result(s: Record, outcome: Record) -> Record:
    return {"state": s, "outcome": outcome}


def with_lane(s: Record, queue: int, lane: Record) -> Record:
    """[s EXCEPT !.lanes[queue] = lane]"""
    return {**s, "lanes": {**s["lanes"], queue: lane}}


# Messages


def visible(m: Record, time: int) -> bool:
    return bool(m["until"] <= time)


def leased(m: Record, time: int) -> bool:
    return m["delivery"] != 0 and not visible(m, time)


def visible_in(lane: Record, time: int) -> set[int]:
    return {n for n, m in lane["live"].items() if visible(m, time)}


def delivered(lane: Record, n: int, d: int) -> bool:
    return n in lane["live"] and d != 0 and lane["live"][n]["delivery"] == d


def leased_by(lane: Record, n: int, d: int, time: int) -> bool:
    return delivered(lane, n, d) and leased(lane["live"][n], time)


def at(after: int, time: int) -> int:
    return time + after if after > 0 else 0


def returned(m: Record, until: int) -> Record:
    return {**m, "until": until, "delivery": 0}


def undone(m: Record) -> Record:
    return {**m, "until": 0, "delivery": 0, "receives": m["receives"] - 1}


# Handing out


def take(lane: Record, ns: tuple[int, ...], until: int, delete: bool, taken: tuple[Any, ...]) -> Record:
    if not ns:
        return {"lane": lane, "taken": taken}
    n, m = ns[0], lane["live"][ns[0]]
    d = 0 if delete else lane["delivery"]
    given = {**m, "until": until, "delivery": d, "receives": m["receives"] + 1}
    if delete:
        after = {**lane, "live": drop(lane["live"], {n})}
    else:
        after = {**lane, "live": {**lane["live"], n: given}, "delivery": lane["delivery"] + 1}
    return take(after, ns[1:], until, delete, (*taken, (n, d, given["receives"], m["address"])))


def line(waiters: tuple[Record, ...], time: int) -> tuple[Record, ...]:
    return tuple(w for w in waiters if w["until"] > time)


def popped(s: Record, e: Record, o: Record, given: Record) -> Record:
    waits = not given["taken"] and o["wait"] > 0 and e["writer"] != NOBODY
    waiter = {
        "writer": e["writer"],
        "waiter": o["address"],
        "most": o["most"],
        "lease": o["lease"],
        "until": s["time"] + o["wait"],
        "once": o["once"],
    }
    lane = {**given["lane"], "line": (*given["lane"]["line"], waiter)} if waits else given["lane"]
    return result(with_lane(s, o["queue"], lane), {"what": "waiting" if waits else "popped", "value": given["taken"]})


def pop(s: Record, e: Record, o: Record) -> Record:
    if o["queue"] not in s["lanes"]:
        return result(s, refused())
    lane = s["lanes"][o["queue"]]
    lane = {**lane, "line": line(lane["line"], s["time"])}
    first = not lane["line"]
    given = take(lane, lowest(visible_in(lane, s["time"]), o["most"]) if first else (), s["time"] + o["lease"], o["delete"], ())
    return popped(s, e, o, given)


def withdraw(s: Record, e: Record, o: Record) -> Record:
    if o["queue"] not in s["lanes"]:
        return result(s, refused())
    lane = s["lanes"][o["queue"]]
    waiting = line(lane["line"], s["time"])
    stay = tuple(w for w in waiting if w["writer"] != e["writer"] or w["waiter"] not in o["waiters"])
    return result(with_lane(s, o["queue"], {**lane, "line": stay}), done(len(waiting) - len(stay)))


def given(s: Record, q: int, w: Record, took: Record) -> Record:
    count = len(took["taken"])
    rest = ({**w, "most": w["most"] - count},) if count < w["most"] and not w["once"] else ()
    handed = {(s["position"], q, taken[0], taken[1]) for taken in took["taken"]}
    writers = s["writers"]
    if w["writer"] in writers:
        known = writers[w["writer"]]
        writers = {**writers, w["writer"]: {**known, "handed": known["handed"] | handed}}
    return {**with_lane(s, q, {**took["lane"], "line": took["lane"]["line"] + rest}), "writers": writers}


def hand_out(s: Record, q: int, ns: tuple[int, ...], handouts: tuple[Record, ...]) -> Record:
    lane = s["lanes"][q]
    if not lane["line"] or not ns:
        return {"state": s, "handouts": handouts}
    w = lane["line"][0]
    count = min(w["most"], len(ns))
    took = take({**lane, "line": lane["line"][1:]}, ns[:count], s["time"] + w["lease"], False, ())
    handout = {"writer": w["writer"], "waiter": w["waiter"], "queue": q, "taken": took["taken"]}
    return hand_out(given(s, q, w, took), q, ns[count:], (*handouts, handout))


def serve_lanes(s: Record, qs: tuple[int, ...], handouts: tuple[Record, ...]) -> Record:
    if not qs:
        return {"state": s, "handouts": handouts}
    q = qs[0]
    lane = {**s["lanes"][q], "line": line(s["lanes"][q]["line"], s["time"])}
    one = hand_out(with_lane(s, q, lane), q, tuple(sorted(visible_in(lane, s["time"]))), handouts)
    return serve_lanes(one["state"], qs[1:], one["handouts"])


def serve(s: Record) -> Record:
    return serve_lanes(s, tuple(sorted(q for q, lane in s["lanes"].items() if lane["line"])), ())


# Settling: each receipt by itself


def settle_one(lane: Record, o: Record, n: int, d: int, time: int) -> tuple[Record, bool]:
    m = lane["live"].get(n)
    by = leased_by(lane, n, d, time)
    known = m is not None
    is_leased = m is not None and leased(m, time)

    def live(new: Record) -> tuple[Record, bool]:
        return {**lane, "live": {**lane["live"], n: new}}, True

    gone = {**lane, "live": drop(lane["live"], {n})}
    kind = o["kind"]
    if kind == "complete" and delivered(lane, n, d):
        return gone, True
    if kind == "requeue" and by:
        return live(returned(m or {}, at(o["amount"], time)))
    if kind == "extend" and by:
        return live({**(m or {}), "until": time + o["amount"]} if o["amount"] > 0 else returned(m or {}, 0))
    if kind == "release" and by:
        return live(undone(m or {}))
    if kind == "reclaim" and is_leased:
        return live(returned(m or {}, 0))
    if kind == "cancel" and known and not is_leased:
        return gone, True
    if kind == "reschedule" and known and not is_leased:
        return live({**(m or {}), "until": at(o["amount"], time), "delivery": 0})
    return lane, False


def settle_all(lane: Record, o: Record, time: int, settled: tuple[bool, ...]) -> tuple[Record, tuple[bool, ...]]:
    i = len(settled)
    if i == len(o["sequences"]):
        return lane, settled
    after, one = settle_one(lane, o, o["sequences"][i], o["deliveries"][i] if i < len(o["deliveries"]) else 0, time)
    return settle_all(after, o, time, (*settled, one))


def settle(s: Record, o: Record) -> Record:
    if o["queue"] not in s["lanes"]:
        return result(s, refused())
    lane, settled = settle_all(s["lanes"][o["queue"]], o, s["time"], ())
    return result(with_lane(s, o["queue"], lane), {"what": "settled", "value": settled})


# Pushing


def push_lane(lane: Record, o: Record, known: int, time: int) -> Record:
    items = o["items"][known:]
    new = {
        lane["next"] + i: {
            "until": at(item["delay"], time),
            "delivery": 0,
            "receives": 0,
            "body": item["body"],
            "address": o["address"],
        }
        for i, item in enumerate(items)
    }
    return {**lane, "live": {**lane["live"], **new}, "next": lane["next"] + len(items)}


def push_items(s: Record, o: Record, known: int) -> Record:
    named = set(o["queues"])
    if not named <= set(s["lanes"]):
        return result(s, refused())
    lanes = {q: push_lane(lane, o, known, s["time"]) if q in named else lane for q, lane in s["lanes"].items()}
    count = len(o["items"]) - known

    def joined(q: int) -> Record:
        return {"queue": q, "sequences": tuple(range(s["lanes"][q]["next"], s["lanes"][q]["next"] + count)), "again": frozenset()}

    return result({**s, "lanes": lanes}, {"what": "pushed", "value": tuple(map(joined, o["queues"]))})


def judge(s: Record, producer: str, epoch: int, number: int) -> str:
    known = s["producers"].get(producer)
    if known is None or known["epoch"] != epoch:
        return "not open"
    return "gap" if number < 1 or number > known["last"] + 1 else ""


def push_numbered(s: Record, o: Record) -> Record:
    if judge(s, o["producer"], o["epoch"], o["number"]):
        return result(s, refused())
    p = s["producers"][o["producer"]]
    count = len(o["items"])
    named = set(o["queues"])
    known = max(0, min(count, p["last"] - o["number"] + 1))
    made = push_items(s, o, known) if known < count else result(s, done(0))
    stored = made["outcome"]["what"] == "pushed"

    def new(i: int) -> dict[int, int]:
        return {q: s["lanes"][q]["next"] + i - known - 1 for q in named} if stored else {}

    def old(i: int) -> dict[int, int]:
        return dict(p["results"].get(o["number"] + i - 1, dict.fromkeys(named, 0)))

    outcome = {i: old(i) if i <= known else new(i) for i in range(1, count + 1)}
    last = max(p["last"], o["number"] + count - 1)
    results = {
        n: new(n - o["number"] + 1)
        if o["number"] + known - 1 < n <= o["number"] + count - 1
        else p["results"].get(n, dict.fromkeys(named, 0))
        for n in range(max(1, last - RESULTS_KEPT + 1), last + 1)
    }
    none = {i for i in outcome if not outcome[i]}
    after = {**made["state"], "producers": {**made["state"]["producers"], o["producer"]: {**p, "last": last, "results": results}}}

    def answer(q: int) -> Record:
        sequences = tuple(outcome[i].get(q, 0) for i in range(1, count + 1))
        return {"queue": q, "sequences": sequences, "again": frozenset(range(1, known + 1)) - none}

    return result(after, refused() if len(none) == count else {"what": "pushed", "value": tuple(map(answer, o["queues"]))})


def push(s: Record, o: Record) -> Record:
    return push_items(s, o, 0) if o["producer"] == NOBODY else push_numbered(s, o)


def open_producer(s: Record, o: Record) -> Record:
    p = s["producers"].get(o["producer"], {"epoch": 0, "last": 0, "results": {}})
    p = {**p, "epoch": p["epoch"] + 1}
    after = {**s, "producers": {**s["producers"], o["producer"]: p}}
    return result(after, {"what": "opened", "value": (p["epoch"], p["last"])})


def skip(s: Record, o: Record) -> Record:
    if judge(s, o["producer"], o["epoch"], o["number"]):
        return result(s, refused())
    p = s["producers"][o["producer"]]
    if o["number"] <= p["last"]:
        return result(s, done(0))
    results = {n: p["results"].get(n, {}) for n in range(max(1, o["number"] - RESULTS_KEPT + 1), o["number"] + 1)}
    return result({**s, "producers": {**s["producers"], o["producer"]: {**p, "last": o["number"], "results": results}}}, done(1))


def complete_push(s: Record, o: Record) -> Record:
    c = o["complete"]
    if c["queue"] not in s["lanes"]:
        return result(s, refused())
    lane = s["lanes"][c["queue"]]
    alive = len(set(c["sequences"])) == len(c["sequences"])
    alive = alive and all(delivered(lane, n, d) for n, d in zip(c["sequences"], c["deliveries"], strict=True))
    p = o["push"]
    numbered = p["producer"] != NOBODY and not judge(s, p["producer"], p["epoch"], p["number"])
    if numbered and p["number"] + len(p["items"]) - 1 <= s["producers"][p["producer"]]["last"]:
        return push(s, p)
    if not alive:
        return result(s, refused())
    pushed = push(s, p)
    if pushed["outcome"]["what"] != "pushed":
        return pushed
    return result(settle(pushed["state"], c)["state"], pushed["outcome"])


# The rest


def purge(s: Record, o: Record) -> Record:
    if o["queue"] not in s["lanes"]:
        return result(s, refused())
    lane = s["lanes"][o["queue"]]
    return result(with_lane(s, o["queue"], {**lane, "live": {}}), done(len(lane["live"])))


def carry(s: Record, o: Record) -> Record:
    lane = s["lanes"].get(o["queue"])
    m = lane["live"].get(o["sequence"]) if lane is not None else None
    if lane is None or m is None or m["address"] != o["from"]:
        return result(s, done(0))
    live = {**lane["live"], o["sequence"]: {**m, "address": o["address"]}}
    return result(with_lane(s, o["queue"], {**lane, "live": live}), done(1))


def create(s: Record, o: Record) -> Record:
    return result({**s, "lanes": {o["queue"]: new_lane(), **s["lanes"]}}, done(o["queue"]))


def do(s: Record, e: Record, o: Record) -> Record:
    match o["kind"]:
        case "push":
            return push(s, o)
        case "pop":
            return pop(s, e, o)
        case "withdraw":
            return withdraw(s, e, o)
        case "complete" | "requeue" | "extend" | "release" | "reclaim" | "cancel" | "reschedule":
            return settle(s, o)
        case "completepush":
            return complete_push(s, o)
        case "producer":
            return open_producer(s, o)
        case "skip":
            return skip(s, o)
        case "purge":
            return purge(s, o)
        case "carry":
            return carry(s, o)
        case "create":
            return create(s, o)
        case "retime":
            return result({**s, "time": max(s["time"], o["time"])}, done(0))
        case "tick":
            return result(s, done(0))
    raise ValueError(o["kind"])


def take_effect(r: Record, e: Record, i: int) -> Record:
    if i > len(e["ops"]):
        return r
    one = do(r["state"], e, e["ops"][i - 1])
    served = serve(one["state"])
    after = {"state": served["state"], "outcomes": (*r["outcomes"], one["outcome"]), "handouts": r["handouts"] + served["handouts"]}
    return take_effect(after, e, i + 1)


# Writers


def left(s: Record, gone: set[str], handed: set[tuple[int, int, int, int]]) -> Record:
    names = {(q, n, d) for _, q, n, d in handed}

    def lane(q: int, known: Record) -> Record:
        live = {n: undone(m) if (q, n, m["delivery"]) in names and leased(m, s["time"]) else m for n, m in known["live"].items()}
        return {**known, "live": live, "line": tuple(w for w in known["line"] if w["writer"] not in gone)}

    return {**s, "lanes": {q: lane(q, known) for q, known in s["lanes"].items()}} if gone else s


def pass_time(s: Record, step: int, speaker: str) -> Record:
    others = set(s["writers"]) - {speaker}
    over = {w for w in others if s["time"] - s["writers"][w]["seen"] >= CLOSE_AFTER}

    def silent(w: str) -> int:
        return min(SILENCE, int(s["writers"][w]["silent"]) + min(step, STEP_MOST))

    fallen = {w for w in others if s["writers"][w]["silent"] < SILENCE and (w in over or silent(w) == SILENCE)}
    handed = {hand for w in fallen for hand in s["writers"][w]["handed"]}
    writers = {
        w: known if w == speaker else {**known, "silent": silent(w), "handed": frozenset() if w in fallen else known["handed"]}
        for w, known in s["writers"].items()
        if w not in over
    }
    return left({**s, "writers": writers, "closed": s["closed"] | over}, fallen, handed)


def fate(s: Record, e: Record) -> str:
    known = s["writers"].get(e["writer"])
    if known is None or e["number"] > known["last"] + 1:
        return "void"
    return "again" if e["number"] <= known["last"] else "taken"


def heard(s: Record, e: Record) -> Record:
    handed = frozenset(hand for hand in s["writers"][e["writer"]]["handed"] if hand[0] > e["applied"])
    writer = {"last": e["number"], "silent": 0, "seen": s["time"], "handed": handed}
    return {**s, "writers": {**s["writers"], e["writer"]: writer}}


def open_writer(s: Record, e: Record, o: Record) -> Record:
    if o["writer"] != e["writer"] or o["writer"] in s["closed"]:
        return result(s, refused())
    writers = {o["writer"]: new_writer(s["time"]), **s["writers"]}
    if o["before"] in (NOBODY, o["writer"]):
        return result({**s, "writers": writers}, done(0))
    known = s["writers"].get(o["before"], new_writer(0))
    unseen = {hand for hand in known["handed"] if hand[0] > e["applied"]}
    after = {**s, "writers": drop(writers, {o["before"]}), "closed": s["closed"] | {o["before"]}}
    return result(left(after, {o["before"]}, unseen), done(0))


# The law


def entry_time(s: Record, e: Record) -> int:
    return max(s["time"], e["stamp"] if e["log"] == NONE else min(e["log"], e["stamp"]))


def begin(s: Record) -> Record:
    return {"state": s, "outcomes": (), "handouts": ()}


def nothing(s: Record, e: Record) -> Record:
    return {"state": s, "outcomes": tuple(refused() for _ in e["ops"]), "handouts": ()}


def apply_of(s: Record, e: Record) -> Record:
    if e["ops"] and e["ops"][0]["kind"] == "open":
        opened = open_writer(s, e, e["ops"][0])
        after = nothing(opened["state"], e)
        return {**after, "outcomes": (opened["outcome"], *after["outcomes"][1:])}
    return take_effect(begin(heard(s, e)), e, 1) if fate(s, e) == "taken" else nothing(s, e)


def apply(s: Record, e: Record) -> Record:
    time = entry_time(s, e)
    step = time - s["time"] if s["time"] else 0
    now = {**s, "time": time, "position": e["after"]}
    return take_effect(begin(now), e, 1) if e["writer"] == NOBODY else apply_of(pass_time(now, step, e["writer"]), e)
