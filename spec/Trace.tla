------------------------------- MODULE Trace --------------------------------
(* Is what was recorded a behaviour of Replay? `Recorded` is a module that a test writes: Runs, each a sequence of steps
   [entry, outcomes, handouts, live], as the real core answered them. Every step must be what Apply says. *)
EXTENDS Replay, Recorded

VARIABLES run, at, s, agrees

vars == <<run, at, s, agrees>>

Init == run \in 1..Len(Runs) /\ at = 0 /\ s = NewState /\ agrees = TRUE

(* What is compared of a lane: every live message with its delivery number and how often it was received. *)
Summary(l) == LET ns == Sorted(DOMAIN l.live) IN [i \in 1..Len(ns) |-> <<ns[i], l.live[ns[i]].delivery, l.live[ns[i]].receives>>]

(* The order within a lane is a promise; which lane serves first is none. *)
In(handouts, q) == SelectSeq(handouts, LAMBDA h : h.queue = q)

Same(r, step) ==
  /\ Len(r.outcomes) = Len(step.outcomes)
  /\ \A i \in 1..Len(r.outcomes) : r.outcomes[i].what = step.outcomes[i].what /\ r.outcomes[i].value = step.outcomes[i].value
  /\ \A q \in DOMAIN r.state.lanes : In(r.handouts, q) = In(step.handouts, q)
  /\ {<<q, Summary(r.state.lanes[q])>> : q \in DOMAIN r.state.lanes} = step.live

Next ==
  /\ agrees /\ at < Len(Runs[run])
  /\ \E step \in {Runs[run][at + 1]} : \E r \in {Apply(s, step.entry)} :
       /\ s' = r.state
       /\ agrees' = Same(r, step)
  /\ at' = at + 1
  /\ UNCHANGED run

Spec == Init /\ [][Next]_vars

AsRecorded == agrees
=============================================================================
