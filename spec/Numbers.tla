------------------------------ MODULE Numbers -------------------------------
(* Numbered producers, and complete-and-push: once, whatever is lost, repeated or late, and whoever carries it.

   What a producer has sent may land at any time, any number of times, through any node: `sent` only grows. A producer that restarts
   remembers nothing; it opens again, and what its old self had sent is still on its way. *)
EXTENDS Replay

CONSTANTS
  Bodies,      \* so many messages
  Opens,       \* so many lives of the producer
  Deliveries,  \* SpecTogether: so many hand-outs
  Clock, Lease

VARIABLES
  s,
  me,        \* the producer as it lives now: its epoch, its next number
  sent,      \* every request: [epoch, number, body]
  used,      \* bodies so far
  acked,     \* bodies of which their producer was told that they are stored
  refused,   \* ... that they are not, and never will be
  given      \* SpecTogether: every receipt

vars == <<s, me, sent, used, acked, refused, given>>

Said(o, stamp) == Apply(s, [after |-> 0, stamp |-> stamp, log |-> None, writer |-> Nobody, number |-> 0, applied |-> 0, ops |-> <<o>>])

Pushing(q, body) == [kind |-> "push", queues |-> <<q>>, items |-> <<[body |-> body, delay |-> 0]>>, address |-> 0, producer |-> Nobody]

(* Numbered producers *)

Init ==
  /\ s = [NewState EXCEPT !.time = 1, !.lanes = 1 :> NewLane]
  /\ me = [epoch |-> 0, next |-> 0] /\ sent = {} /\ used = 0 /\ acked = {} /\ refused = {} /\ given = {}

Open ==
  /\ me.epoch < Opens
  /\ LET r == Said([kind |-> "producer", producer |-> "p"], 1)
     IN  /\ s' = r.state
         /\ me' = [epoch |-> r.outcomes[1].value[1], next |-> r.outcomes[1].value[2] + 1]
  /\ UNCHANGED <<sent, used, acked, refused, given>>

Send ==
  /\ me.epoch > 0 /\ used < Bodies
  /\ used' = used + 1
  /\ sent' = sent \cup {[epoch |-> me.epoch, number |-> me.next, body |-> used + 1]}
  /\ me' = [me EXCEPT !.next = @ + 1]
  /\ UNCHANGED <<s, acked, refused, given>>

(* The producer hears an answer only if it is still the one that asked. A refusal for a gap says nothing yet: it sends again. *)
Lands(a) ==
  LET r == Said([Pushing(1, a.body) EXCEPT !.producer = "p"] @@ [epoch |-> a.epoch, number |-> a.number], 1)
      p == s.producers["p"]
      hears == a.epoch = me.epoch
      skipped == r.outcomes[1].what = "refused" /\ a.epoch = p.epoch /\ a.number <= p.last
  IN  /\ s' = r.state
      /\ acked' = IF hears /\ r.outcomes[1].what = "pushed" THEN acked \cup {a.body} ELSE acked
      /\ refused' = IF hears /\ skipped THEN refused \cup {a.body} ELSE refused
      /\ UNCHANGED <<me, sent, used, given>>

(* It has waited long enough: the number is given up, and only then does it say "refused". *)
GivesUp(a) ==
  /\ a.epoch = me.epoch /\ a.body \notin acked
  /\ LET r == Said([kind |-> "skip", producer |-> "p", epoch |-> a.epoch, number |-> a.number], 1)
     IN  IF Keeps("a number that is given up is skipped")
         THEN s' = r.state /\ refused' = IF r.outcomes[1].what = "done" /\ r.outcomes[1].value = 1 THEN refused \cup {a.body} ELSE refused
         ELSE s' = s /\ refused' = refused \cup {a.body}
  /\ UNCHANGED <<me, sent, used, acked, given>>

Next == Open \/ Send \/ \E a \in sent : Lands(a) \/ GivesUp(a)

Spec == Init /\ [][Next]_vars

Live(q) == s.lanes[q].live
Stored(b) == Cardinality({n \in DOMAIN Live(1) : Live(1)[n].body = b})

NoAckedPushLost == \A b \in acked : Stored(b) >= 1
RepeatsNotStoredTwice == \A b \in 1..Bodies : Stored(b) <= 1
RefusedMeansNothing == \A b \in refused : Stored(b) = 0
InTheirOrder == \A a, b \in sent : a.epoch = b.epoch /\ a.number < b.number =>
                  \A m, n \in DOMAIN Live(1) : Live(1)[m].body = a.body /\ Live(1)[n].body = b.body => m < n

(* False on purpose: two lives of the producer have each stored something, and a number was given up. *)
NeverAll == ~(me.epoch = 2 /\ refused # {} /\ \E a, b \in sent : a.epoch = 1 /\ b.epoch = 2 /\ a.body \in acked /\ b.body \in acked)

(* Complete-and-push: jobs in lane 1, results in lane 2 *)

InitTogether ==
  /\ s = [NewState EXCEPT !.time = 1,
                          !.lanes = (1 :> [NewLane EXCEPT !.next = Bodies + 1,
                                             !.live = [n \in 1..Bodies |-> [until |-> 0, delivery |-> 0, receives |-> 0, body |-> n, address |-> 0]]])
                                    @@ (2 :> NewLane)]
  /\ me = [epoch |-> 0, next |-> 0] /\ sent = {} /\ used = 0 /\ acked = {} /\ refused = {} /\ given = {}

Receives ==
  /\ used < Deliveries
  /\ LET r == Said([kind |-> "pop", queue |-> 1, most |-> 1, lease |-> Lease, delete |-> FALSE, wait |-> 0, once |-> FALSE, address |-> 0], s.time)
     IN  /\ r.outcomes[1].value # <<>>
         /\ s' = r.state
         /\ given' = given \cup {<<r.outcomes[1].value[1][1], r.outcomes[1].value[1][2]>>}
  /\ used' = used + 1
  /\ UNCHANGED <<me, sent, acked, refused>>

Completing(g) == [kind |-> "complete", queue |-> 1, sequences |-> <<g[1]>>, deliveries |-> <<g[2]>>]

(* Whoever has had the job is done with it, perhaps long after its lease, and says so as often as it likes. *)
Finishes(g) ==
  /\ s' = IF Keeps("one operation") THEN Said([kind |-> "completepush", complete |-> Completing(g), push |-> Pushing(2, g[1])], s.time).state
          ELSE Said(Completing(g), s.time).state
  /\ UNCHANGED <<me, sent, used, acked, refused, given>>

Waits ==
  /\ s.time < Clock
  /\ s' = Said([kind |-> "tick"], s.time + 1).state
  /\ UNCHANGED <<me, sent, used, acked, refused, given>>

NextTogether == Receives \/ Waits \/ \E g \in given : Finishes(g)

SpecTogether == InitTogether /\ [][NextTogether]_vars

Results(b) == Cardinality({n \in DOMAIN Live(2) : Live(2)[n].body = b})

OneResultForEachJob == \A b \in 1..Bodies : Results(b) = (IF b \in DOMAIN Live(1) THEN 0 ELSE 1)

NeverStaleFirst == ~\E g, h \in given : g[1] = h[1] /\ g # h /\ Results(g[1]) = 1
=============================================================================
