----------------------------- MODULE Progress -------------------------------
(* What is pushed is eventually completed, if consumers try: they crash, replies are lost and leases run out under their hands, but not for
   ever (`Faults` times); a consumer that lives completes what it has, and time passes.

   For this the state must not grow, so time is counted from now on: after every step the present is 1 again. Receipts of settled deliveries
   are forgotten; Fencing.tla has what they can do. *)
EXTENDS Replay

CONSTANTS Messages, Consumers, Faults, Lease

VARIABLES s, hands, pushed, faults

vars == <<s, hands, pushed, faults>>

Empty == <<0, 0>>

Init ==
  /\ s = [NewState EXCEPT !.time = 1, !.lanes = 1 :> NewLane]
  /\ hands = [c \in 1..Consumers |-> Empty]
  /\ pushed = 0
  /\ faults = Faults

Said(o, step) == The({r : r \in {Apply(s, [after |-> 0, stamp |-> s.time + step, log |-> None, writer |-> Nobody, number |-> 0,
                                            applied |-> 0, ops |-> <<o>>])}})

FromNow(t) ==
  LET until(m) == IF m.until <= t.time THEN 0 ELSE m.until - t.time + 1
      live == t.lanes[1].live
  IN  [t EXCEPT !.time = 1, !.lanes[1].live = [n \in DOMAIN live |-> [live[n] EXCEPT !.until = until(live[n])]]]

Produces ==
  /\ pushed < Messages
  /\ pushed' = pushed + 1
  /\ s' \in {FromNow(t) : t \in {Said([kind |-> "push", queues |-> <<1>>, items |-> <<[body |-> pushed + 1, delay |-> 0]>>, address |-> 0,
                        producer |-> Nobody], 0).state}}
  /\ UNCHANGED <<hands, faults>>

Receives(c) ==
  /\ hands[c] = Empty
  /\ VisibleIn(s.lanes[1], s.time) # {}
  /\ \E r \in {Said([kind |-> "pop", queue |-> 1, most |-> 1, lease |-> Lease, delete |-> FALSE, wait |-> 0, once |-> FALSE, address |-> 0], 0)} :
       /\ s' = FromNow(r.state)
       /\ hands' = [hands EXCEPT ![c] = <<r.outcomes[1].value[1][1], r.outcomes[1].value[1][2]>>]
  /\ UNCHANGED <<pushed, faults>>

Completed(c) == Said([kind |-> "complete", queue |-> 1, sequences |-> <<hands[c][1]>>, deliveries |-> <<hands[c][2]>>], 0)

Finishes(c) ==
  /\ hands[c] # Empty
  /\ s' \in {FromNow(t) : t \in {Completed(c).state}}
  /\ hands' = [hands EXCEPT ![c] = Empty]
  /\ UNCHANGED <<pushed, faults>>

(* It took effect and the consumer does not hear of it. *)
LostReply(c) ==
  /\ hands[c] # Empty /\ faults > 0
  /\ s' \in {FromNow(t) : t \in {Completed(c).state}}
  /\ faults' = faults - 1
  /\ UNCHANGED <<pushed, hands>>

Crash(c) ==
  /\ hands[c] # Empty /\ faults > 0
  /\ hands' = [hands EXCEPT ![c] = Empty]
  /\ faults' = faults - 1
  /\ UNCHANGED <<s, pushed>>

Live == s.lanes[1].live

(* Leases that run out with the next step although their consumers live. *)
Cut == {c \in 1..Consumers : hands[c][1] \in DOMAIN Live /\ Live[hands[c][1]].delivery = hands[c][2] /\ Live[hands[c][1]].until = s.time + 1}

Wait ==
  /\ \E n \in DOMAIN Live : Live[n].until > s.time
  /\ Cardinality(Cut) <= faults
  /\ faults' = faults - Cardinality(Cut)
  /\ s' \in {FromNow(t) : t \in {Said([kind |-> "tick"], 1).state}}
  /\ UNCHANGED <<hands, pushed>>

Next == Produces \/ Wait \/ \E c \in 1..Consumers : Receives(c) \/ Finishes(c) \/ LostReply(c) \/ Crash(c)

Fair == WF_vars(Wait) /\ WF_vars(\E c \in 1..Consumers : Receives(c)) /\ \A c \in 1..Consumers : WF_vars(Finishes(c))

Spec == Init /\ [][Next]_vars /\ Fair

EventuallyCompleted == \A n \in 1..Messages : (n <= pushed) ~> (n <= pushed /\ n \notin DOMAIN Live)

(* False on purpose. *)
NeverThrice == \A n \in DOMAIN Live : Live[n].receives < 3
=============================================================================
