------------------------------- MODULE Moves --------------------------------
(* A message moves from a queue in one log to a queue in another: dead letters, redrive, routing. No operation spans two logs, so a move is
   four: Leave (source), Arrive (target, which judges the number once), Settle (source), Forget (target).

   Any node may do any step, any number of times, however late. So there are no nodes here: every step that was ever possible stays possible,
   with what was known then. *)
EXTENDS Integers, FiniteSets, TLC

CONSTANTS
  Without,
  Messages,  \* they begin at the source
  Numbers    \* so many moves

VARIABLES
  here,     \* source: messages that wait there
  moving,   \* source: number -> message that has left and is not settled
  next,     \* source: the next number of this pair of queues
  low,      \* target: every number up to here was settled at the source
  judged,   \* target: number -> "stored" or "refused", above low
  there,    \* target: messages that wait there
  left,     \* every number that was ever given, and its message: what a late Arrive carries
  answers,  \* every answer that the target ever gave: [number, outcome]
  copies,   \* how often the target stored each message
  consumed

vars == <<here, moving, next, low, judged, there, left, answers, copies, consumed>>

Keeps(safeguard) == Without # safeguard

Max(S) == IF S = {} THEN 0 ELSE CHOOSE x \in S : \A y \in S : y <= x

Init ==
  /\ here = 1..Messages /\ moving = <<>> /\ next = 1
  /\ low = 0 /\ judged = <<>> /\ there = {}
  /\ left = <<>> /\ answers = {} /\ copies = [m \in 1..Messages |-> 0] /\ consumed = {}

Leave(m) ==
  /\ m \in here /\ next <= Numbers
  /\ here' = here \ {m}
  /\ moving' = moving @@ (next :> m)
  /\ left' = left @@ (next :> m)
  /\ next' = next + 1
  /\ UNCHANGED <<low, judged, there, answers, copies, consumed>>

(* What the target knows of a number: "" if it was not judged yet. *)
Known(n) ==
  IF n <= low THEN "settled"
  ELSE IF n \in DOMAIN judged THEN judged[n]
  ELSE IF ~Keeps("low and the set above it") /\ n <= Max(DOMAIN judged) THEN "stored"
  ELSE ""

Arrive(n, outcome) ==
  /\ n \in DOMAIN left
  /\ IF Known(n) # ""
     THEN /\ answers' = IF Known(n) = "settled" THEN answers ELSE answers \cup {[number |-> n, outcome |-> Known(n)]}
          /\ UNCHANGED <<judged, there, copies>>
     ELSE /\ judged' = (n :> outcome) @@ (IF Keeps("the set forgets nothing") THEN judged ELSE <<>>)
          /\ answers' = answers \cup {[number |-> n, outcome |-> outcome]}
          /\ there' = IF outcome = "stored" THEN there \cup {left[n]} ELSE there
          /\ copies' = IF outcome = "stored" THEN [copies EXCEPT ![left[n]] = @ + 1] ELSE copies
  /\ UNCHANGED <<here, moving, next, low, left, consumed>>

(* The numbers that this answer settles at the source. *)
Settles(a) ==
  IF Keeps("every step names its number") THEN {a.number} \cap DOMAIN moving
  ELSE {n \in DOMAIN moving : moving[n] = left[a.number]}

Settle(a) ==
  /\ LET ns == Settles(a)
     IN  /\ moving' = [n \in DOMAIN moving \ ns |-> moving[n]]
         /\ here' = IF a.outcome = "refused" THEN here \cup {moving[n] : n \in ns} ELSE here
  /\ UNCHANGED <<next, low, judged, there, left, answers, copies, consumed>>

Forget(k) ==
  /\ k \in (low + 1)..(next - 1)
  /\ Keeps("only what is settled is forgotten") => \A n \in 1..k : n \notin DOMAIN moving
  /\ low' = k
  /\ judged' = [n \in {x \in DOMAIN judged : x > k} |-> judged[n]]
  /\ UNCHANGED <<here, moving, next, there, left, answers, copies, consumed>>

Consume(m) ==
  /\ m \in there
  /\ there' = there \ {m}
  /\ consumed' = consumed \cup {m}
  /\ UNCHANGED <<here, moving, next, low, judged, left, answers, copies>>

Next ==
  \/ \E m \in 1..Messages : Leave(m) \/ Consume(m)
  \/ \E n \in 1..Numbers : Forget(n) \/ \E outcome \in {"stored", "refused"} : Arrive(n, outcome)
  \/ \E a \in answers : Settle(a)

Spec == Init /\ [][Next]_vars

Moving(m) == \E n \in DOMAIN moving : moving[n] = m

NoAckedPushLost == \A m \in 1..Messages : m \in here \/ Moving(m) \/ m \in there \/ m \in consumed
MovedOnce == \A m \in 1..Messages : copies[m] <= 1
AtMostOneLiveDelivery == \A m \in here : m \notin there /\ ~Moving(m)
CompletedNeverReturns == \A m \in consumed : m \notin here /\ m \notin there
NoneIsForgotten == \A n \in DOMAIN moving : n > low

(* False on purpose: a message was refused, moved again, stored, and its first number is forgotten. *)
NeverTwice == ~\E m \in consumed, n \in DOMAIN left : n < low /\ left[n] = m /\ left[low] = m
=============================================================================
