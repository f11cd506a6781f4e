------------------------------ MODULE Fencing -------------------------------
(* Fencing and time: who may settle a delivery, what a late or repeated append does, and when a lease is over.

   Nodes do not know one another. Here they are their writers: a process that crashes appends nothing more, and the receipts that it gave
   stay in the world; one that gives up opens anew. An append has no certain outcome: what was sent may land at once, later, twice or never,
   also after its process is gone. So what is on its way is not in the state: whatever a writer can have sent may land next (Land), and
   what has landed may land again (Again). Replies may be lost, so no receipt is ever forgotten: it may be used at any time, by any writer.

   Replaying is a function: every node that has read this log to its end has the state `s`. *)
EXTENDS Replay

CONSTANTS
  Entries,   \* so many entries land for the first time
  Pushes,    \* so many of them are pushes
  Clock,     \* the log's clock goes up to here
  Ahead,     \* how far the fastest clock of a writer is ahead of it
  Lease

VARIABLES
  s,          \* the state at the end of the log
  now,        \* the log's clock
  sent,       \* how many entries each writer has sent that landed
  landed,     \* what may land again: entries, and whose receipt they name
  given,      \* every receipt that was handed out: [sequence, delivery, to]
  holder,     \* who got each message last, until that delivery is settled or given back
  stored,     \* how often each push is in the queue, or was
  completed,  \* pushes whose message was completed by its holder
  gone,       \* writers that were given up: of what had not taken effect by then their process has said "refused"
  wrong       \* what must never happen and did

vars == <<s, now, sent, landed, given, holder, stored, completed, gone, wrong>>

TheirOwn == <<"nobody", 0>>   \* stands where no receipt is named, and where nobody holds a message

Entry(w, number, stamp, op) == [after |-> 0, stamp |-> stamp, log |-> 0, writer |-> w, number |-> number, applied |-> 0, ops |-> <<op>>]
Opening(w, before) == Entry(w, 0, 0, [kind |-> "open", writer |-> w, before |-> before])

Init ==
  /\ s = [NewState EXCEPT !.time = 1, !.lanes = 1 :> NewLane, !.writers = [w \in {"A", "B"} |-> NewWriter(1)]]
  /\ now = 1
  /\ sent = [w \in {"A", "B", "C"} |-> 0]
  /\ landed = {[entry |-> Opening("A", Nobody), by |-> TheirOwn]}
  /\ given = {} /\ holder = <<>> /\ stored = <<>> /\ completed = {} /\ gone = {} /\ wrong = {}

Live == s.lanes[1].live

(* An entry takes effect, or does not; what it names was given to `by`. (`\E r \in {...}` in place of LET: TLC evaluates it once.) *)
Lands(entry, by) ==
  \E r \in {Apply(s, [entry EXCEPT !.log = now])} :
  LET o == entry.ops[1]
      outcome == r.outcomes[1]
      n == IF o.kind \in {"complete", "requeue", "extend", "release"} THEN o.sequences[1] ELSE 0
      settled == outcome.what = "settled" /\ outcome.value[1]
      took == IF outcome.what = "popped" THEN {outcome.value[i] : i \in 1..Len(outcome.value)} ELSE {}
      to == <<entry.writer, entry.number>>
      body == IF outcome.what = "pushed" THEN {o.items[1].body} ELSE {}
      early == \E t \in took : Live[t[1]].until > r.state.time
  IN  /\ s' = [r.state EXCEPT !.position = 0]
      /\ given' = given \cup {[sequence |-> t[1], delivery |-> t[2], to |-> to] : t \in took}
      /\ holder' = [m \in {t[1] : t \in took} |-> to] @@ (IF settled /\ o.kind # "extend" THEN n :> TheirOwn ELSE <<>>) @@ holder
      /\ stored' = [b \in body |-> IF b \in DOMAIN stored THEN stored[b] + 1 ELSE 1] @@ stored
      /\ completed' = IF settled /\ o.kind = "complete" /\ holder[n] = by THEN completed \cup {Live[n].body} ELSE completed
      /\ wrong' = wrong \cup (IF settled /\ holder[n] # by THEN {"a stale receipt changed something"} ELSE {})
                        \cup (IF early THEN {"somebody was given what another has"} ELSE {})
                        \cup (IF entry.writer \in gone /\ o.kind # "open" /\ outcome.what # "refused" THEN {"what was refused took effect"} ELSE {})

Settling(kind, g) == [kind |-> kind, queue |-> 1, sequences |-> <<g.sequence>>, deliveries |-> <<g.delivery>>, amount |-> Lease]

Pushing(body) == [kind |-> "push", queues |-> <<1>>, items |-> <<[body |-> body, delay |-> 0]>>, address |-> 0, producer |-> Nobody]
Popping == [kind |-> "pop", queue |-> 1, most |-> 1, lease |-> Lease, delete |-> FALSE, wait |-> 0, once |-> FALSE, address |-> 0]
Giving(kind, g) == [Settling(kind, g) EXCEPT !.amount = 0]

Says(w) ==
  {<<Popping, TheirOwn>>}
  \cup {<<Pushing(<<w, sent[w] + 1>>), TheirOwn>> : x \in 1..(IF Cardinality(DOMAIN stored) < Pushes THEN 1 ELSE 0)}
  \cup {<<Settling(kind, g), g.to>> : kind \in {"complete", "extend"}, g \in given}
  \cup {<<Giving(kind, g), g.to>> : kind \in {"requeue", "release"}, g \in given}

Total == sent["A"] + sent["B"] + sent["C"]

(* The clock of A stands still, those of the others run ahead. *)
Stamp(w) == IF w = "A" THEN 0 ELSE now + Ahead

Land(w) ==
  /\ Total < Entries
  /\ w \in DOMAIN s.writers
  /\ \E said \in Says(w) :
       LET entry == Entry(w, sent[w] + 1, Stamp(w), said[1]) IN
       /\ Lands(entry, said[2])
       \* A copy's stamp says nothing new: entry time has passed it.
       /\ landed' = landed \cup {[entry |-> [entry EXCEPT !.stamp = 0], by |-> said[2]]}
  /\ sent' = [sent EXCEPT ![w] = @ + 1]
  /\ UNCHANGED <<now, gone>>

Again ==
  /\ \E one \in landed : Lands(one.entry, one.by)
  /\ UNCHANGED <<now, sent, landed, gone>>

(* The process of A does not hear what became of its entries: it goes on as C. *)
GiveUp ==
  /\ gone = {}
  /\ Lands(Opening("C", "A"), TheirOwn)
  /\ gone' = {"A"}
  /\ landed' = landed \cup {[entry |-> Opening("C", "A"), by |-> TheirOwn]}
  /\ UNCHANGED <<now, sent>>

Pass ==
  /\ now < Clock
  /\ now' = now + 1
  /\ UNCHANGED <<s, sent, landed, given, holder, stored, completed, gone, wrong>>

Next == Pass \/ GiveUp \/ Again \/ \E w \in {"A", "B", "C"} : Land(w)

Spec == Init /\ [][Next]_vars

(* A delivery is alive while its receipt counts. *)
Alive(g) == g.sequence \in DOMAIN Live /\ g.delivery # 0 /\ Live[g.sequence].delivery = g.delivery

NoAckedPushLost == \A b \in DOMAIN stored : b \in completed \/ \E n \in DOMAIN Live : Live[n].body = b
AtMostOneLiveDelivery == \A g, h \in given : g.sequence = h.sequence /\ Alive(g) /\ Alive(h) => g.to = h.to
CompletedNeverReturns == \A n \in DOMAIN Live : Live[n].body \notin completed
StaleReceiptChangesNothing == "a stale receipt changed something" \notin wrong
RepeatsNotStoredTwice == \A b \in DOMAIN stored : stored[b] = 1
LeasesAreKept == "somebody was given what another has" \notin wrong
RefusedMeansNothing == "what was refused took effect" \notin wrong
TimeIsTheLogs == s.time <= now

(* False on purpose: each names a state that must be reached, or the model says nothing about it. *)
NeverRedelivered == \A n \in DOMAIN Live : Live[n].receives < 2
NeverClosedBySilence == "A" \in DOMAIN s.writers \/ gone # {}
=============================================================================
