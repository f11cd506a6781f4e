----------------------------- MODULE Snapshots ------------------------------
(* Snapshots, trimming and carrying: a node that starts, at any moment, from whatever is left, has the state that the whole log gives, and
   finds the bodies of what lives in it.

   Positions are indexes here. An entry below `first` is gone for good. Messages are pushed and leave (Replay's `cancel`; deliveries are in
   Fencing.tla); one tap needs every push from its own place on, whatever became of it. At most `Damages` snapshots go bad. *)
EXTENDS Replay

CONSTANTS
  Nodes,
  Pushes, Entries,   \* so many pushes among so many entries
  Crashes, Damages

VARIABLES
  log,      \* every operation that was ever appended
  first,    \* the first that is still there
  truth,    \* the state after all of them
  nodes,    \* what each node has: a state, or Down
  snaps,    \* the snapshots that are kept, oldest first: [state, position, good]
  crashes, damages,
  missed    \* a node looked for a body that was gone

vars == <<log, first, truth, nodes, snaps, crashes, damages, missed>>

Down == [up |-> FALSE]

(* Of a log with a tap: the replayed state, where the tap is, where the bodies lie that it still needs, and how far the log may be trimmed. *)
Fresh == [up |-> TRUE, replayed |-> [NewState EXCEPT !.lanes = 1 :> NewLane], tap |-> 1, noted |-> <<>>, trimmed |-> 1]

Live(a) == a.replayed.lanes[1].live
Position(a) == a.replayed.position

Init ==
  /\ log = <<>> /\ first = 1 /\ truth = Fresh
  /\ nodes = [x \in Nodes |-> Fresh]
  /\ snaps = <<>> /\ crashes = 0 /\ damages = 0 /\ missed = FALSE

Entry(position, o) == [after |-> position, stamp |-> 0, log |-> None, writer |-> Nobody, number |-> 0, applied |-> 0, ops |-> <<o>>]

After(a, position, o) ==
  LET at == IF o.kind \in {"push", "carry"} THEN [o EXCEPT !.address = position] ELSE o
      known == o.kind \in {"push", "carry", "cancel"}
      replayed == Apply(a.replayed, Entry(position, IF known THEN at ELSE [kind |-> "tick"])).state
      next == a.replayed.lanes[1].next
      tap == IF o.kind = "tap" THEN Max(a.tap, o.to) ELSE a.tap
      noted == IF o.kind = "push" THEN a.noted @@ (next :> position)
               ELSE a.noted
  IN  [up |-> TRUE, replayed |-> replayed, tap |-> tap, noted |-> [n \in {m \in DOMAIN noted : m >= tap} |-> noted[n]],
       trimmed |-> IF o.kind = "trim" THEN Max(a.trimmed, o.position) ELSE a.trimmed]

Appends(o) ==
  /\ Len(log) < Entries
  /\ log' = Append(log, o)
  /\ truth' = After(truth, Len(log) + 1, o)
  /\ UNCHANGED <<first, nodes, snaps, crashes, damages, missed>>

Produces == /\ truth.replayed.lanes[1].next <= Pushes
        /\ Appends([kind |-> "push", queues |-> <<1>>, items |-> <<[body |-> truth.replayed.lanes[1].next, delay |-> 0]>>, address |-> 0,
                    producer |-> Nobody])

Leaves == \E n \in DOMAIN Live(truth) : Appends([kind |-> "cancel", queue |-> 1, sequences |-> <<n>>, deliveries |-> <<>>])

Advances == /\ truth.tap < truth.replayed.lanes[1].next
           /\ Appends([kind |-> "tap", to |-> truth.tap + 1])

(* A node writes again what pins the log, as it sees it: that may be long ago. *)
Carries(x) ==
  /\ nodes[x].up
  /\ \E n \in DOMAIN Live(nodes[x]) :
       /\ Live(nodes[x])[n].address < Position(nodes[x])
       /\ Appends([kind |-> "carry", queue |-> 1, sequence |-> n, from |-> Live(nodes[x])[n].address, body |-> Live(nodes[x])[n].body,
                   address |-> 0])

Least(S, otherwise) == IF S = {} THEN otherwise ELSE CHOOSE p \in S : \A q \in S : p <= q

(* How far this node may ask for a trim: everything before that position may go. *)
Limit(x) ==
  LET a == nodes[x]
      floor == Least({Live(a)[n].address : n \in DOMAIN Live(a)}, Position(a) + 1)
      tapped == Least({a.noted[n] : n \in DOMAIN a.noted}, Position(a) + 1)
      older == IF Len(snaps) < 2 THEN 1 ELSE snaps[1].position + 1
      newest == IF Len(snaps) = 0 THEN 1 ELSE snaps[Len(snaps)].position + 1
  IN  Least({IF Keeps("the floor") THEN floor ELSE Position(a) + 1,
             IF Keeps("the tap") THEN tapped ELSE Position(a) + 1,
             IF Keeps("the older snapshot") THEN older ELSE newest}, 1)

AsksToTrim(x) ==
  /\ nodes[x].up /\ Limit(x) > truth.trimmed
  /\ Appends([kind |-> "trim", position |-> Limit(x)])

(* An entry first, and physically later; nothing is left of what lies before. *)
Trims(x) ==
  /\ nodes[x].up
  /\ LET limit == IF Keeps("the trim is an entry first") THEN nodes[x].trimmed ELSE Limit(x)
     IN  limit > first /\ first' = limit
  /\ UNCHANGED <<log, truth, nodes, snaps, crashes, damages, missed>>

Replays(x) ==
  /\ nodes[x].up /\ Position(nodes[x]) < Len(log) /\ Position(nodes[x]) + 1 >= first
  /\ nodes' = [nodes EXCEPT ![x] = After(@, Position(@) + 1, log[Position(@) + 1])]
  /\ UNCHANGED <<log, first, truth, snaps, crashes, damages, missed>>

LastTwo(all) == SubSeq(all, Max(1, Len(all) - 1), Len(all))

(* The state after exactly one entry, written, then read back: one that came back bad does not exist. *)
Snapshots(x, good) ==
  LET a == nodes[x]
      state == IF Keeps("a snapshot is the state after one entry") THEN a ELSE [a EXCEPT !.replayed.position = @ - 1]
  IN  /\ a.up /\ Position(a) > (IF Len(snaps) = 0 THEN 0 ELSE snaps[Len(snaps)].position)
      /\ good \/ (damages < Damages /\ ~Keeps("what was written is read back"))
      /\ snaps' = LastTwo(Append(snaps, [state |-> state, position |-> Position(state), good |-> good]))
      /\ UNCHANGED <<log, first, truth, nodes, crashes, damages, missed>>

Damage ==
  /\ damages < Damages
  /\ \E i \in 1..Len(snaps) : snaps[i].good /\ snaps' = [snaps EXCEPT ![i].good = FALSE]
  /\ damages' = damages + 1
  /\ UNCHANGED <<log, first, truth, nodes, crashes, missed>>

Crash(x) ==
  /\ nodes[x].up /\ crashes < Crashes
  /\ nodes' = [nodes EXCEPT ![x] = Down]
  /\ crashes' = crashes + 1
  /\ UNCHANGED <<log, first, truth, snaps, damages, missed>>

(* So far behind that the next entry is gone: drop the state and load. *)
FallsBehind(x) ==
  /\ nodes[x].up /\ Position(nodes[x]) + 1 < first
  /\ nodes' = [nodes EXCEPT ![x] = Down]
  /\ UNCHANGED <<log, first, truth, snaps, crashes, damages, missed>>

Usable == {i \in 1..Len(snaps) : snaps[i].good /\ snaps[i].position >= first - 1}

Starts(x) ==
  /\ ~nodes[x].up
  /\ Usable # {} \/ first = 1
  /\ nodes' = [nodes EXCEPT ![x] = IF Usable = {} THEN Fresh ELSE snaps[CHOOSE i \in Usable : \A j \in Usable : j <= i].state]
  /\ UNCHANGED <<log, first, truth, snaps, crashes, damages, missed>>

(* Somebody asks for a body. One that is not there is waited for until the Trim that took it is applied here, and looked up again. *)
Misses(x) ==
  /\ nodes[x].up /\ ~missed
  /\ Keeps("a miss waits for the trim") => nodes[x].trimmed >= first
  /\ \E n \in DOMAIN Live(nodes[x]) : Live(nodes[x])[n].address < first
  /\ missed' = TRUE
  /\ UNCHANGED <<log, first, truth, nodes, snaps, crashes, damages>>

Next ==
  \/ Produces \/ Leaves \/ Advances \/ Damage
  \/ \E x \in Nodes : \/ Carries(x) \/ AsksToTrim(x) \/ Trims(x) \/ Replays(x) \/ Crash(x) \/ FallsBehind(x) \/ Starts(x) \/ Misses(x)
                      \/ \E good \in BOOLEAN : Snapshots(x, good)

Spec == Init /\ [][Next]_vars

NodesAgree == \A x \in Nodes : nodes[x].up /\ Position(nodes[x]) = Len(log) => nodes[x] = truth
NoAckedPushLost == ~missed
ANodeCanStart == first = 1 \/ Usable # {}
TapLosesNothing == \A x \in Nodes : nodes[x].up /\ nodes[x].trimmed >= first => \A n \in DOMAIN nodes[x].noted : nodes[x].noted[n] >= first
EveryTrimIsInTheLog == first <= truth.trimmed
CompletedNeverReturns == \A n \in DOMAIN Live(truth) : Cardinality({i \in 1..Len(log) : log[i].kind = "cancel" /\ log[i].sequences[1] = n}) = 0

(* False on purpose: a node has started from a snapshot of a trimmed log with a carried message in it, and has caught up. *)
NeverRestarted == ~\E x \in Nodes : /\ nodes[x].up /\ first > 1 /\ crashes > 0 /\ Position(nodes[x]) = Len(log)
                                    /\ \E n \in DOMAIN Live(nodes[x]) : n < Live(nodes[x])[n].address
=============================================================================
