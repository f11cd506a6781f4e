------------------------------ MODULE Waiting -------------------------------
(* Receivers that wait in the state of a lane: a Pop that found nothing stays, and a later entry, of anybody, hands it a message. Its writer
   hears of that by replaying; if it is dead or cut off, it never does, and what it was handed must come back.

   Entries say how far their writer has replayed (`applied`): as far as the log goes, or no further than the last time. A writer may be
   silent for as long as it likes. One that is only cut off gives its receivers, later, what it was handed: all receipts stay in the world. *)
EXTENDS Replay

CONSTANTS
  Entries, Pushes, Pops,
  Lease, Wait,   \* how long a delivery lasts, and a receiver waits
  Long           \* a long step of time: the engine had no leader

VARIABLES
  s,
  pushes, pops,
  named,    \* how far each writer has said that it has replayed
  missed,   \* how many steps of time each writer was silent for
  given,    \* every receipt: [sequence, delivery, to, writer, position]
  holder,
  gone,     \* receivers that were withdrawn
  wrong

vars == <<s, pushes, pops, named, missed, given, holder, gone, wrong>>

Writers == {"A", "B"}
NoHolder == 0

Init ==
  /\ s = [NewState EXCEPT !.time = 1, !.lanes = 1 :> NewLane, !.writers = [w \in Writers |-> NewWriter(0)]]
  /\ pushes = 0 /\ pops = 0 /\ named = [w \in Writers |-> 0] /\ missed = [w \in Writers |-> 0]
  /\ given = {} /\ holder = <<>> /\ gone = {} /\ wrong = {}

Live(t) == t.lanes[1].live
Alive(t, g) == g.sequence \in DOMAIN Live(t) /\ g.delivery # 0 /\ Live(t)[g.sequence].delivery = g.delivery

(* Everybody is named by the position of the entry in which it asked. *)
Receipts(r, w) ==
  LET one(i, taken, to, writer) == [sequence |-> taken[i][1], delivery |-> taken[i][2], to |-> to, writer |-> writer, position |-> r.state.position]
      here == IF r.outcomes[1].what = "popped" THEN r.outcomes[1].value ELSE <<>>
  IN  {one(i, here, r.state.position, w) : i \in 1..Len(here)}
      \cup UNION {{one(i, r.handouts[h].taken, r.handouts[h].waiter, r.handouts[h].writer) : i \in 1..Len(r.handouts[h].taken)} : h \in 1..Len(r.handouts)}

(* (`\E r \in {...}` in place of LET makes TLC evaluate it once.) *)
Lands(w, o, by, step, applied) ==
  \E r \in {Apply(s, [after |-> s.position + 1, stamp |-> s.time + step, log |-> None, writer |-> w, number |-> s.writers[w].last + 1,
                      applied |-> applied, ops |-> <<o>>])} :
  \E t \in {r.state}, new \in {Receipts(r, w)}, heard \in {[named EXCEPT ![w] = Max(@, applied)]} :
  LET settled == o.kind \in {"complete", "release"} /\ r.outcomes[1].value[1]
      n == IF settled THEN o.sequences[1] ELSE 0
      silent == {x \in Writers \ {w} : s.writers[x].silent < Silence /\ t.writers[x].silent >= Silence}
      ended == {g \in given : g.sequence # n /\ Alive(s, g) /\ Live(s)[g.sequence].until > t.time /\ ~Alive(t, g)}
      still(h) == \E i \in 1..Len(t.lanes[1].line) : t.lanes[1].line[i].waiter < h.to /\ t.lanes[1].line[i].until > t.time
  IN  /\ s' = [t EXCEPT !.writers = [x \in DOMAIN t.writers |-> [t.writers[x] EXCEPT !.seen = 0]]]
      /\ given' = given \cup new
      /\ holder' = [m \in {g.sequence : g \in new} |-> (CHOOSE g \in new : g.sequence = m).to] @@ (IF settled THEN n :> NoHolder ELSE <<>>)
                   @@ [m \in DOMAIN holder |-> IF \E g \in ended : g.sequence = m THEN NoHolder ELSE holder[m]]
      /\ named' = heard
      /\ missed' = [x \in Writers |-> IF x = w THEN 0 ELSE Min(Silence, missed[x] + (IF step > 0 THEN 1 ELSE 0))]
      /\ wrong' = wrong
           \cup (IF settled /\ holder[n] # by THEN {"a stale receipt changed something"} ELSE {})
           \cup (IF \E g \in new : g.to \in gone THEN {"somebody who had left was served"} ELSE {})
           \cup (IF \E g \in new, h \in given : g.to = h.to THEN {"somebody was served twice"} ELSE {})
           \cup (IF \E g \in new : still(g) THEN {"somebody was overtaken"} ELSE {})
           \cup (IF \E x \in silent : missed'[x] < Silence THEN {"an election made somebody look dead"} ELSE {})
           \cup (IF \E g \in ended : g.position <= heard[g.writer] THEN {"what was named as seen was taken away"} ELSE {})

SaysPush(w, step, applied) ==
  /\ pushes < Pushes /\ pushes' = pushes + 1 /\ UNCHANGED <<pops, gone>>
  /\ \E delay \in {0, 1} :
       Lands(w, [kind |-> "push", queues |-> <<1>>, items |-> <<[body |-> pushes + 1, delay |-> delay]>>, address |-> 0,
                 producer |-> Nobody], 0, step, applied)

SaysPop(w, step, applied) ==
  /\ pops < Pops /\ pops' = pops + 1 /\ UNCHANGED <<pushes, gone>>
  /\ \E wait \in IF w = "A" THEN {Wait} ELSE {0, Wait} :
       Lands(w, [kind |-> "pop", queue |-> 1, most |-> 2, lease |-> Lease, delete |-> FALSE, wait |-> wait, once |-> TRUE,
                address |-> s.position + 1], 0, step, applied)

SaysWithdraw(w, applied) ==
  /\ UNCHANGED <<pushes, pops>>
  /\ \E i \in DOMAIN s.lanes[1].line :
       /\ s.lanes[1].line[i].writer = w
       /\ gone' = gone \cup {s.lanes[1].line[i].waiter}
       /\ Lands(w, [kind |-> "withdraw", queue |-> 1, waiters |-> {s.lanes[1].line[i].waiter}], 0, 0, applied)

SaysSettle(w, step, applied) ==
  /\ UNCHANGED <<pushes, pops, gone>>
  /\ \E g \in given, kind \in {"complete", "release"} :
       Lands(w, [kind |-> kind, queue |-> 1, sequences |-> <<g.sequence>>, deliveries |-> <<g.delivery>>, amount |-> 0], g.to, step, applied)

SaysTick(w, step, applied) ==
  /\ UNCHANGED <<pushes, pops, gone>>
  /\ Lands(w, [kind |-> "tick"], 0, step, applied)

(* How far the writer says that it has replayed: it matters only where something was handed to it. *)
Applied(w) == IF s.writers[w].handed = {} THEN {named[w]} ELSE {named[w], s.position}

Next ==
  /\ s.position < Entries
  /\ \E w \in Writers : \E applied \in Applied(w) :
       \/ SaysPush(w, 0, applied) \/ SaysWithdraw(w, applied) \/ SaysSettle(w, 0, applied)
       \/ \E step \in {0, 1} : SaysPop(w, step, applied)
       \/ \E step \in {1, Long} : SaysTick(w, step, applied)

Spec == Init /\ [][Next]_vars

NoLostWakeUp == Line(s.lanes[1].line, s.time) = <<>> \/ VisibleIn(s.lanes[1], s.time) = {}
AtMostOneLiveDelivery == \A g, h \in given : g.sequence = h.sequence /\ Alive(s, g) /\ Alive(s, h) => g.to = h.to
StaleReceiptChangesNothing == "a stale receipt changed something" \notin wrong
WhoLeftIsServedNoMore == "somebody who had left was served" \notin wrong
EachIsServedOnce == "somebody was served twice" \notin wrong
NobodyIsOvertaken == "somebody was overtaken" \notin wrong
AnElectionKillsNobody == "an election made somebody look dead" \notin wrong
WhatWasSeenStays == "what was named as seen was taken away" \notin wrong

(* False on purpose: a hand-out was undone because its writer was silent, and the message went to somebody else. *)
NeverUndone == \A g, h \in given : g.sequence = h.sequence /\ g.delivery < h.delivery => Live(s) # <<>> /\ Live(s)[g.sequence].receives # 1
=============================================================================
