------------------------------- MODULE Replay -------------------------------
(* What replaying a log gives: `Apply(s, e)`, the state after one entry and what its operations are answered.

   It is core/state.py without what does not bear on the promises that are checked here: one plain order, no groups, deduplication, dead
   letters, limits, taps, stages or reservations. tests/spec/replay.py is the same function once more, operator by operator, in Python;
   logs that were recorded from the real core are put through both.

   A state      time, position, lanes, writers, closed (writers), producers
   A lane       next (sequence), delivery (the next number), live: sequence -> message, line: the receivers that wait
   A message    until: when it is visible; delivery: the number of its last delivery, 0 where no receipt counts; receives; body; address
   A writer     last (number), silent, seen, handed: what was handed to its waiters above the position that it has named
   An entry     after (its end), stamp (the writer's), log (the log's stamp, or None), writer, number, applied (the position it names), ops

   One rule of time: a message is visible if until <= time, and leased if it is not visible and a delivery of it counts. Nothing happens when
   a lease lapses.

   `Without` leaves one safeguard out, by name. Each must be missed by some invariant: spec/README.md has the schedules. *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
  Without,      \* the safeguard that is left out, or "nothing"
  Silence,      \* a writer is silent after so much entry time without an entry of its own ...
  StepMost,     \* ... of which each step counts as at most this
  CloseAfter,   \* and is closed after so much
  ResultsKept   \* so many outcomes of a producer's numbers are kept

Keeps(safeguard) == Without # safeguard

None   == -1   \* no log stamp
Nobody == ""   \* no writer (local), no producer, no writer before

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b

RECURSIVE Sorted(_)
Sorted(S) == IF S = {} THEN <<>> ELSE LET least == CHOOSE x \in S : \A y \in S : x <= y IN <<least>> \o Sorted(S \ {least})

Lowest(S, most) == LET all == Sorted(S) IN SubSeq(all, 1, Min(most, Len(all)))

(* `The({f(x) : x \in {v}})` says LET x == v IN f(x), which TLC would evaluate again wherever x stands. *)
The(S) == CHOOSE x \in S : TRUE

Drop(f, keys) == [x \in DOMAIN f \ keys |-> f[x]]

NewLane      == [next |-> 1, delivery |-> 1, live |-> <<>>, line |-> <<>>]
NewWriter(t) == [last |-> 0, silent |-> 0, seen |-> t, handed |-> {}]
NewState     == [time |-> 0, position |-> 0, lanes |-> <<>>, writers |-> <<>>, closed |-> {}, producers |-> <<>>]

Refused          == [what |-> "refused", value |-> <<>>]
Done(value)      == [what |-> "done", value |-> value]
Result(s, what)  == [state |-> s, outcome |-> what]

(* Messages *)

Visible(m, t) == m.until <= t /\ (Keeps("leases lapse") \/ m.delivery = 0)
Leased(m, t)  == m.delivery # 0 /\ ~Visible(m, t)
VisibleIn(l, t) == {n \in DOMAIN l.live : Visible(l.live[n], t) \/ ~Keeps("a lease hides its message")}

(* Is this the receipt of its last delivery? *)
Delivered(l, n, d) == n \in DOMAIN l.live /\ (Keeps("the fence") => d # 0 /\ l.live[n].delivery = d)
LeasedBy(l, n, d, t) == Delivered(l, n, d) /\ Leased(l.live[n], t)

At(after, t)       == IF after > 0 THEN t + after ELSE 0
Returned(m, until) == [m EXCEPT !.until = until, !.delivery = IF Keeps("giving back ends the receipt") THEN 0 ELSE @]
Undone(m)          == [m EXCEPT !.until = 0, !.delivery = 0, !.receives = @ - 1]

(* Handing out *)

RECURSIVE Take(_, _, _, _, _)
Take(l, ns, until, delete, taken) ==
  IF ns = <<>> THEN [lane |-> l, taken |-> taken]
  ELSE LET n == Head(ns)
           m == l.live[n]
           d == IF delete THEN 0 ELSE l.delivery
           given == [m EXCEPT !.until = until, !.delivery = d, !.receives = @ + 1]
           lane == IF delete THEN [l EXCEPT !.live = Drop(@, {n})]
                   ELSE [l EXCEPT !.live[n] = given, !.delivery = @ + 1]
       IN  Take(lane, Tail(ns), until, delete, Append(taken, <<n, d, given.receives, m.address>>))

Line(line, t) == SelectSeq(line, LAMBDA w : w.until > t)

Popped(s, e, o, popped) ==
  LET waits == popped.taken = <<>> /\ o.wait > 0 /\ e.writer # Nobody
      waiter == [writer |-> e.writer, waiter |-> o.address, most |-> o.most, lease |-> o.lease, until |-> s.time + o.wait, once |-> o.once]
      lane == IF waits THEN [popped.lane EXCEPT !.line = Append(@, waiter)] ELSE popped.lane
  IN  Result([s EXCEPT !.lanes[o.queue] = lane], [what |-> IF waits THEN "waiting" ELSE "popped", value |-> popped.taken])

Pop(s, e, o) ==
  IF o.queue \notin DOMAIN s.lanes THEN Result(s, Refused)
  ELSE LET l == [s.lanes[o.queue] EXCEPT !.line = Line(@, s.time)]
           first == l.line = <<>> \/ ~Keeps("no overtaking")
           popped == Take(l, IF first THEN Lowest(VisibleIn(l, s.time), o.most) ELSE <<>>, s.time + o.lease, o.delete, <<>>)
       IN  The({Popped(s, e, o, p) : p \in {popped}})

(* Receivers that have left are withdrawn by their writer. *)
Withdraw(s, e, o) ==
  LET line == Line(s.lanes[o.queue].line, s.time)
      stay == IF Keeps("withdrawing") THEN SelectSeq(line, LAMBDA w : w.writer # e.writer \/ w.waiter \notin o.waiters) ELSE line
  IN  IF o.queue \notin DOMAIN s.lanes THEN Result(s, Refused)
      ELSE Result([s EXCEPT !.lanes[o.queue].line = stay], Done(Len(line) - Len(stay)))

(* A lane gives what is visible to those who wait there; one with count left goes to the end of the line, unless it takes once. *)
Given(s, q, w, popped) ==
  LET count == Len(popped.taken)
      rest == IF count < w.most /\ ~(w.once /\ Keeps("taking once")) THEN <<[w EXCEPT !.most = @ - count]>> ELSE <<>>
      handed == {[position |-> s.position, queue |-> q, sequence |-> popped.taken[i][1], delivery |-> popped.taken[i][2]] : i \in 1..count}
      writers == IF w.writer \in DOMAIN s.writers THEN [s.writers EXCEPT ![w.writer].handed = @ \cup handed] ELSE s.writers
  IN  [s EXCEPT !.lanes[q] = [popped.lane EXCEPT !.line = @ \o rest], !.writers = writers]

RECURSIVE HandOut(_, _, _, _)
HandOut(s, q, ns, handouts) ==
  LET l == s.lanes[q]
      w == Head(l.line)
      count == Min(w.most, Len(ns))
      popped == Take([l EXCEPT !.line = Tail(@)], SubSeq(ns, 1, count), s.time + w.lease, FALSE, <<>>)
  IN  IF l.line = <<>> \/ ns = <<>> THEN [state |-> s, handouts |-> handouts]
      ELSE The({HandOut(Given(s, q, w, p), q, SubSeq(ns, count + 1, Len(ns)),
                        Append(handouts, [writer |-> w.writer, waiter |-> w.waiter, queue |-> q, taken |-> p.taken])) : p \in {popped}})

RECURSIVE ServeLanes(_, _, _)
ServeLanes(s, qs, handouts) ==
  IF qs = <<>> THEN [state |-> s, handouts |-> handouts]
  ELSE LET q == Head(qs)
           l == [s.lanes[q] EXCEPT !.line = Line(@, s.time)]
       IN  The({ServeLanes(one.state, Tail(qs), one.handouts) :
                one \in {HandOut([s EXCEPT !.lanes[q] = l], q, Sorted(VisibleIn(l, s.time)), handouts)}})

(* After every operation every lane serves those who wait, in the order in which they came. *)
Serve(s, o) ==
  LET waiting == {q \in DOMAIN s.lanes : s.lanes[q].line # <<>>} IN
  IF waiting = {} \/ (~Keeps("serving after every operation") /\ o.kind # "push") THEN [state |-> s, handouts |-> <<>>]
  ELSE ServeLanes(s, Sorted(waiting), <<>>)

(* Settling: each receipt by itself *)

SettleOne(l, o, n, d, t) ==
  LET m == l.live[n]
      by == LeasedBy(l, n, d, t)
      known == n \in DOMAIN l.live
      leased == known /\ Leased(m, t)
      live(new) == [l EXCEPT !.live[n] = new]
  IN  CASE o.kind = "complete"   -> IF Delivered(l, n, d) THEN <<[l EXCEPT !.live = Drop(@, {n})], TRUE>> ELSE <<l, FALSE>>
        [] o.kind = "requeue"    -> IF by THEN <<live(Returned(m, At(o.amount, t))), TRUE>> ELSE <<l, FALSE>>
        [] o.kind = "extend"     -> IF ~by THEN <<l, FALSE>>
                                    ELSE <<live(IF o.amount > 0 THEN [m EXCEPT !.until = t + o.amount] ELSE Returned(m, 0)), TRUE>>
        [] o.kind = "release"    -> IF ~by THEN <<l, FALSE>>
                                    ELSE IF Keeps("a number is given once") THEN <<live(Undone(m)), TRUE>>
                                    ELSE <<[live(Undone(m)) EXCEPT !.delivery = IF @ = d + 1 THEN d ELSE @], TRUE>>
        [] o.kind = "reclaim"    -> IF leased THEN <<live(Returned(m, 0)), TRUE>> ELSE <<l, FALSE>>
        [] o.kind = "cancel"     -> IF known /\ ~leased THEN <<[l EXCEPT !.live = Drop(@, {n})], TRUE>> ELSE <<l, FALSE>>
        [] o.kind = "reschedule" -> IF known /\ ~leased THEN <<live([m EXCEPT !.until = At(o.amount, t), !.delivery = 0]), TRUE>>
                                    ELSE <<l, FALSE>>

RECURSIVE SettleAll(_, _, _, _)
SettleAll(l, o, t, done) ==
  LET i == Len(done) + 1 IN
  IF i > Len(o.sequences) THEN <<l, done>>
  ELSE The({SettleAll(one[1], o, t, Append(done, one[2])) :
            one \in {SettleOne(l, o, o.sequences[i], IF i <= Len(o.deliveries) THEN o.deliveries[i] ELSE 0, t)}})

Settle(s, o) ==
  IF o.queue \notin DOMAIN s.lanes THEN Result(s, Refused)
  ELSE The({Result([s EXCEPT !.lanes[o.queue] = all[1]], [what |-> "settled", value |-> all[2]]) :
            all \in {SettleAll(s.lanes[o.queue], o, s.time, <<>>)}})

(* Pushing *)

PushLane(l, o, known, t) ==
  LET count == Len(o.items) - known
      new == [n \in l.next..(l.next + count - 1) |->
               LET item == o.items[known + n - l.next + 1]
               IN  [until |-> At(item.delay, t), delivery |-> 0, receives |-> 0, body |-> item.body, address |-> o.address]]
  IN  [l EXCEPT !.live = @ @@ new, !.next = @ + count]

(* The messages from the one behind `known` on join every lane that is named, or none does. *)
PushItems(s, o, known) ==
  LET named == {o.queues[i] : i \in 1..Len(o.queues)} IN
  IF ~(named \subseteq DOMAIN s.lanes) THEN Result(s, Refused)
  ELSE LET lanes == [q \in DOMAIN s.lanes |-> IF q \in named THEN PushLane(s.lanes[q], o, known, s.time) ELSE s.lanes[q]]
           joined(q) == [queue |-> q, sequences |-> [i \in 1..(Len(o.items) - known) |-> s.lanes[q].next + i - 1], again |-> {}]
       IN  Result([s EXCEPT !.lanes = lanes], [what |-> "pushed", value |-> [i \in 1..Len(o.queues) |-> joined(o.queues[i])]])

(* "" where the number may be used, or was; else why not. *)
Judge(s, producer, epoch, number) ==
  IF producer \notin DOMAIN s.producers THEN "not open"
  ELSE IF s.producers[producer].epoch # epoch /\ Keeps("epochs") THEN "not open"
  ELSE IF number < 1 \/ (number > s.producers[producer].last + 1 /\ Keeps("gaps are refused")) THEN "gap"
  ELSE ""

(* Each number has one outcome: those that were used are answered with it, the others get theirs now. A refused number is in no queue. *)
PushNumbered(s, o) ==
  IF Judge(s, o.producer, o.epoch, o.number) # "" THEN Result(s, Refused)
  ELSE LET p == s.producers[o.producer]
           count == Len(o.items)
           named == {o.queues[j] : j \in 1..Len(o.queues)}
           known == IF Keeps("the numbers of producers") THEN Max(0, Min(count, p.last - o.number + 1)) ELSE 0
           made == IF known < count THEN PushItems(s, o, known) ELSE Result(s, Done(0))
           stored == made.outcome.what = "pushed"
           new(i) == IF ~stored THEN <<>>
                     ELSE [q \in named |-> s.lanes[q].next + i - known - 1]
           old(i) == LET n == o.number + i - 1
                     IN  IF n \in DOMAIN p.results THEN p.results[n] ELSE [q \in named |-> 0]
           outcome == [i \in 1..count |-> IF i <= known THEN old(i) ELSE new(i)]
           last == Max(p.last, o.number + count - 1)
           results == [n \in Max(1, last - ResultsKept + 1)..last |->
                        IF n > o.number + known - 1 /\ n <= o.number + count - 1 THEN new(n - o.number + 1)
                        ELSE IF n \in DOMAIN p.results THEN p.results[n] ELSE [q \in named |-> 0]]
           refused == {i \in 1..count : outcome[i] = <<>>}
           after == [made.state EXCEPT !.producers[o.producer].last = last, !.producers[o.producer].results = results]
           answer(q) == [queue |-> q,
                         sequences |-> [i \in 1..count |-> IF i \in refused \/ q \notin DOMAIN outcome[i] THEN 0 ELSE outcome[i][q]],
                         again |-> (1..known) \ refused]
       IN  Result(after, IF Cardinality(refused) = count THEN Refused
                         ELSE [what |-> "pushed", value |-> [j \in 1..Len(o.queues) |-> answer(o.queues[j])]])

Push(s, o) == IF o.producer = Nobody THEN PushItems(s, o, 0) ELSE PushNumbered(s, o)

OpenProducer(s, o) ==
  LET known == o.producer \in DOMAIN s.producers
      p == IF known THEN [s.producers[o.producer] EXCEPT !.epoch = @ + 1] ELSE [epoch |-> 1, last |-> 0, results |-> <<>>]
  IN  Result([s EXCEPT !.producers = (o.producer :> p) @@ @], [what |-> "opened", value |-> <<p.epoch, p.last>>])

Skip(s, o) ==
  IF Judge(s, o.producer, o.epoch, o.number) # "" THEN Result(s, Refused)
  ELSE IF o.number <= s.producers[o.producer].last THEN Result(s, Done(0))
  ELSE LET p == s.producers[o.producer]
           results == [n \in Max(1, o.number - ResultsKept + 1)..o.number |-> IF n \in DOMAIN p.results THEN p.results[n] ELSE <<>>]
       IN  Result([s EXCEPT !.producers[o.producer].last = o.number, !.producers[o.producer].results = results], Done(1))

(* Complete and push in one operation: every receipt is alive and every target exists, or nothing happens. *)
CompletePush(s, o) ==
  LET c == o.complete
      ns == {c.sequences[i] : i \in 1..Len(c.sequences)}
  IN  IF c.queue \notin DOMAIN s.lanes THEN Result(s, Refused)
      ELSE LET alive == /\ Cardinality(ns) = Len(c.sequences)
                        /\ \A i \in 1..Len(c.sequences) : Delivered(s.lanes[c.queue], c.sequences[i], c.deliveries[i])
               numbered == o.push.producer # Nobody /\ Judge(s, o.push.producer, o.push.epoch, o.push.number) = ""
               repeat == numbered /\ o.push.number + Len(o.push.items) - 1 <= s.producers[o.push.producer].last
               pushed == Push(s, o.push)
           IN  IF repeat THEN pushed
               ELSE IF ~alive /\ Keeps("both or neither") THEN Result(s, Refused)
               ELSE IF pushed.outcome.what # "pushed" THEN pushed
               ELSE Result(Settle(pushed.state, c).state, pushed.outcome)

(* The rest *)

Purge(s, o) == IF o.queue \notin DOMAIN s.lanes THEN Result(s, Refused)
               ELSE Result([s EXCEPT !.lanes[o.queue].live = <<>>], Done(Cardinality(DOMAIN s.lanes[o.queue].live)))

(* A message was written again further on: it lies there now, if it still lives where it was read. *)
Carry(s, o) ==
  LET l == s.lanes[o.queue]
      again == [until |-> 0, delivery |-> 0, receives |-> 0, body |-> o.body, address |-> o.address]
  IN  IF o.queue \notin DOMAIN s.lanes THEN Result(s, Done(0))
      ELSE IF o.sequence \in DOMAIN l.live
           THEN IF l.live[o.sequence].address = o.from
                THEN Result([s EXCEPT !.lanes[o.queue].live[o.sequence].address = o.address], Done(1))
                ELSE Result(s, Done(0))
           ELSE IF Keeps("carrying only what lives") THEN Result(s, Done(0))
           ELSE Result([s EXCEPT !.lanes[o.queue].live = @ @@ (o.sequence :> again)], Done(1))

Create(s, o) == Result([s EXCEPT !.lanes = @ @@ (o.queue :> NewLane)], Done(o.queue))

Do(s, e, o) ==
  CASE o.kind = "push"         -> Push(s, o)
    [] o.kind = "pop"          -> Pop(s, e, o)
    [] o.kind = "withdraw"     -> Withdraw(s, e, o)
    [] o.kind \in {"complete", "requeue", "extend", "release", "reclaim", "cancel", "reschedule"} -> Settle(s, o)
    [] o.kind = "completepush" -> CompletePush(s, o)
    [] o.kind = "producer"     -> OpenProducer(s, o)
    [] o.kind = "skip"         -> Skip(s, o)
    [] o.kind = "purge"        -> Purge(s, o)
    [] o.kind = "carry"        -> Carry(s, o)
    [] o.kind = "create"       -> Create(s, o)
    [] o.kind = "retime"       -> Result([s EXCEPT !.time = Max(@, o.time)], Done(0))
    [] o.kind = "tick"         -> Result(s, Done(0))

RECURSIVE TakeEffect(_, _, _)
TakeEffect(r, e, i) ==
  IF i > Len(e.ops) THEN r
  ELSE LET after(one, served) == [state |-> served.state, outcomes |-> Append(r.outcomes, one.outcome),
                                  handouts |-> r.handouts \o served.handouts]
       IN  The({The({TakeEffect(after(one, served), e, i + 1) : served \in {Serve(one.state, e.ops[i])}}) : one \in {Do(r.state, e, e.ops[i])}})

(* Writers *)

(* Nobody waits for these writers any more, and what they were handed unseen goes back. *)
Left(s, gone, handed) ==
  LET back(q, n, m) == \E h \in handed : h.queue = q /\ h.sequence = n /\ h.delivery = m.delivery /\ Leased(m, s.time)
      last(q, l) == ~Keeps("a number is given once") /\ \E n \in DOMAIN l.live : back(q, n, l.live[n]) /\ l.live[n].delivery = l.delivery - 1
      lane(q, l) == [l EXCEPT !.line = SelectSeq(@, LAMBDA w : w.writer \notin gone),
                              !.delivery = IF last(q, l) THEN @ - 1 ELSE @,
                              !.live = [n \in DOMAIN l.live |-> IF back(q, n, l.live[n]) THEN Undone(l.live[n]) ELSE l.live[n]]]
  IN  IF gone = {} THEN s ELSE [s EXCEPT !.lanes = [q \in DOMAIN s.lanes |-> lane(q, s.lanes[q])]]

PassTime(s, step, speaker) ==
  LET others == DOMAIN s.writers \ {speaker}
      counted == IF Keeps("a long step counts as a short one") THEN Min(step, StepMost) ELSE step
      over == {w \in others : s.time - s.writers[w].seen >= CloseAfter}
      silent(w) == Min(Silence, s.writers[w].silent + counted)
      fallen == {w \in others : s.writers[w].silent < Silence /\ (w \in over \/ silent(w) = Silence)}
      writers == [w \in DOMAIN s.writers \ over |->
                   IF w = speaker THEN s.writers[w]
                   ELSE [s.writers[w] EXCEPT !.silent = silent(w), !.handed = IF w \in fallen THEN {} ELSE @]]
      closed == IF Keeps("the closed are remembered") THEN s.closed \cup over ELSE s.closed
  IN  IF step = 0 /\ over = {} THEN s
      ELSE Left([s EXCEPT !.writers = writers, !.closed = closed], fallen, UNION {s.writers[w].handed : w \in fallen})

Fate(s, e) ==
  IF e.writer \notin DOMAIN s.writers THEN "void"
  ELSE IF ~Keeps("the numbers of writers") THEN "taken"
  ELSE IF e.number > s.writers[e.writer].last + 1 THEN "void"
  ELSE IF e.number <= s.writers[e.writer].last THEN "again"
  ELSE "taken"

Heard(s, e) ==
  LET seen(h) == h.position <= e.applied /\ Keeps("the position that was named")
  IN  [s EXCEPT !.writers[e.writer] = [last |-> e.number, silent |-> 0, seen |-> s.time, handed |-> {h \in @.handed : ~seen(h)}]]

OpenWriter(s, e, o) ==
  LET writers == IF o.writer \in DOMAIN s.writers THEN s.writers ELSE (o.writer :> NewWriter(s.time)) @@ s.writers
      given == IF o.before \in DOMAIN s.writers THEN {h \in s.writers[o.before].handed : h.position > e.applied} ELSE {}
      replaces == o.before # Nobody /\ o.before # o.writer /\ Keeps("opening closes the one before")
  IN  IF o.writer # e.writer \/ o.writer \in s.closed THEN Result(s, Refused)
      ELSE IF ~replaces THEN Result([s EXCEPT !.writers = writers], Done(0))
      ELSE Result(Left([s EXCEPT !.writers = Drop(writers, {o.before}), !.closed = @ \cup {o.before}], {o.before}, given), Done(0))

(* The law *)

EntryTime(s, e) == Max(s.time, IF e.log = None \/ ~Keeps("the log's stamp") THEN e.stamp ELSE Min(e.log, e.stamp))

Begin(s) == [state |-> s, outcomes |-> <<>>, handouts |-> <<>>]
Nothing(s, e) == [state |-> s, outcomes |-> [i \in 1..Len(e.ops) |-> Refused], handouts |-> <<>>]

ApplyOf(s, e) ==
  IF e.ops # <<>> /\ e.ops[1].kind = "open"
  THEN LET opened == OpenWriter(s, e, e.ops[1]) IN [Nothing(opened.state, e) EXCEPT !.outcomes[1] = opened.outcome]
  ELSE IF Fate(s, e) = "taken" THEN The({TakeEffect(Begin(heard), e, 1) : heard \in {Heard(s, e)}})
  ELSE Nothing(s, e)

Apply(s, e) ==
  LET time == EntryTime(s, e)
      step == IF s.time = 0 THEN 0 ELSE time - s.time
      of(now) == IF e.writer = Nobody THEN TakeEffect(Begin(now), e, 1)
                 ELSE The({ApplyOf(passed, e) : passed \in {PassTime(now, step, e.writer)}})
  IN  The({of(now) : now \in {[s EXCEPT !.time = time, !.position = e.after]}})
=============================================================================
