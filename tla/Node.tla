-------------------------------- MODULE Node --------------------------------
(***************************************************************************)
(* Nodes of the radix tree: on the device, pinned by holders, tombstoned   *)
(* (the SWA side is freed, the full side alive), evicted, or claimed by a  *)
(* load-back that brings what is missing to the device.  A node takes one  *)
(* slot of the full pool and one of the SWA pool.                          *)
(*                                                                         *)
(* States and events are named as in spec/node.toml.                       *)
(***************************************************************************)
EXTENDS Integers, FiniteSets

CONSTANTS
    Nodes,      \* The nodes, all on the device at first.
    Loaders,    \* Load-backs that may be in flight, each for one node at a time.
    Holders,    \* How many holders may pin a node at once.
    Full,       \* Slots of the full pool.
    Swa         \* Slots of the SWA pool.

ASSUME Holders \in Nat /\ Full >= Cardinality(Nodes) /\ Swa >= Cardinality(Nodes)

(* Bug toggles: FALSE in a right model, each with a cfg that must fail. *)
AcksForeignLoad  == FALSE  \* An acknowledgement is taken for whichever load-back claims the node.
ClaimsClaimed    == FALSE  \* A load-back claims a node that another one in flight has claimed.
EvictsLoading    == FALSE  \* A node is evicted while a load-back copies to it.
EvictsPinned     == FALSE  \* Eviction does not look at holders.
FreesTombTwice   == FALSE  \* Evicting a tombstone frees its SWA side again.
LoadNeverAcked   == FALSE  \* The acknowledgement of a load-back is never drained.
RefusedIsLoaded  == FALSE  \* A refused load-back reports success.

-----------------------------------------------------------------------------
VARIABLE
    \* Where each node stands (spec/node.toml).
    state
StateTypeInv == state \in [Nodes -> {"resident", "pinned", "loading", "tombstoned", "evicted"}]

VARIABLE
    \* How many holders pin the node.
    holders
HoldersTypeInv == holders \in [Nodes -> 0..Holders]

VARIABLE
    \* The node owns a slot of the full pool.
    full
FullTypeInv == full \in [Nodes -> BOOLEAN]

VARIABLE
    \* The node owns a slot of the SWA pool.
    swa
SwaTypeInv == swa \in [Nodes -> BOOLEAN]

VARIABLE
    \* The load-backs that have claimed the node and are not acknowledged.
    claims
ClaimsTypeInv == claims \in [Nodes -> SUBSET Loaders]

VARIABLE
    \* Free slots of the full pool.
    fullFree
FullFreeTypeInv == fullFree \in 0..Full

VARIABLE
    \* Free slots of the SWA pool.
    swaFree
SwaFreeTypeInv == swaFree \in 0..Swa

vars == <<state, holders, full, swa, claims, fullFree, swaFree>>

\* TYPE invariant.
TypeInv ==
    /\ StateTypeInv /\ HoldersTypeInv /\ FullTypeInv /\ SwaTypeInv /\ ClaimsTypeInv
    /\ FullFreeTypeInv /\ SwaFreeTypeInv

Init ==
    /\ state    = [n \in Nodes |-> "resident"]
    /\ holders  = [n \in Nodes |-> 0]
    /\ full     = [n \in Nodes |-> TRUE]
    /\ swa      = [n \in Nodes |-> TRUE]
    /\ claims   = [n \in Nodes |-> {}]
    /\ fullFree = Full - Cardinality(Nodes)
    /\ swaFree  = Swa - Cardinality(Nodes)

-----------------------------------------------------------------------------
Goto(n, dest) == state' = [state EXCEPT ![n] = dest]

Missing(side, n) == IF side[n] THEN 0 ELSE 1

(* Both sides of a node go back to their pools. *)
FreeBoth(n) ==
    /\ full' = [full EXCEPT ![n] = FALSE] /\ fullFree' = fullFree + 1
    /\ swa'  = [swa EXCEPT ![n] = FALSE]  /\ swaFree'  = swaFree + 1

(* The SWA side of a tombstone is gone already (#36637). *)
FreeFull(n) ==
    /\ full' = [full EXCEPT ![n] = FALSE] /\ fullFree' = fullFree + 1
    /\ UNCHANGED <<swa, swaFree>>

Busy(l) == \E n \in Nodes : l \in claims[n]

-----------------------------------------------------------------------------
(* System actions: holders come and go, load-backs are acknowledged. *)

Pin(n) ==
    /\ state[n] \in {"resident", "pinned"} /\ holders[n] < Holders
    /\ Goto(n, "pinned")
    /\ holders' = [holders EXCEPT ![n] = @ + 1]
    /\ UNCHANGED <<full, swa, claims, fullFree, swaFree>>

Unpin(n) ==
    /\ state[n] = "pinned"
    /\ Goto(n, IF holders[n] <= 1 THEN "resident" ELSE "pinned")
    /\ holders' = [holders EXCEPT ![n] = @ - 1]
    /\ UNCHANGED <<full, swa, claims, fullFree, swaFree>>

(* A load-back takes the slots that are missing, and owns the node until it is acknowledged. *)
Claim(n, l) ==
    /\ Goto(n, "loading")
    /\ claims' = [claims EXCEPT ![n] = @ \cup {l}]
    /\ full' = [full EXCEPT ![n] = TRUE] /\ fullFree' = fullFree - Missing(full, n)
    /\ swa'  = [swa EXCEPT ![n] = TRUE]  /\ swaFree'  = swaFree - Missing(swa, n)
    /\ UNCHANGED holders

(* A load-back that claims a node of another one in flight is refused (#35931). *)
Refuse(n) ==
    /\ IF RefusedIsLoaded THEN Goto(n, "resident") ELSE UNCHANGED state
    /\ UNCHANGED <<holders, full, swa, claims, fullFree, swaFree>>

Load(n, l) ==
    /\ state[n] \in {"evicted", "tombstoned", "loading"}
    /\ ~Busy(l)
    /\ Missing(full, n) <= fullFree /\ Missing(swa, n) <= swaFree
    /\ IF claims[n] = {} \/ ClaimsClaimed THEN Claim(n, l) ELSE Refuse(n)

Loaded(n, l) ==
    /\ state[n] = "loading" /\ Busy(l) /\ ~LoadNeverAcked
    /\ l \in claims[n] \/ AcksForeignLoad
    /\ Goto(n, "resident")
    /\ claims' = [claims EXCEPT ![n] = @ \ {l}]
    /\ UNCHANGED <<holders, full, swa, fullFree, swaFree>>

-----------------------------------------------------------------------------
(* Environment actions: the device needs slots, the window moves on. *)

Tombstone(n) ==
    /\ state[n] = "resident"
    /\ Goto(n, "tombstoned")
    /\ swa' = [swa EXCEPT ![n] = FALSE] /\ swaFree' = swaFree + 1
    /\ UNCHANGED <<holders, full, claims, fullFree>>

Evict(n) ==
    /\ \/ state[n] \in {"resident", "tombstoned"}
       \/ EvictsLoading /\ state[n] = "loading"
       \/ EvictsPinned /\ state[n] = "pinned"
    /\ Goto(n, "evicted")
    /\ IF state[n] = "tombstoned" /\ ~FreesTombTwice THEN FreeFull(n) ELSE FreeBoth(n)
    /\ UNCHANGED <<holders, claims>>

-----------------------------------------------------------------------------
Next ==
    \E n \in Nodes :
      \/ Pin(n) \/ Unpin(n) \/ Tombstone(n) \/ Evict(n)
      \/ \E l \in Loaders : Load(n, l) \/ Loaded(n, l)

Spec == Init /\ [][Next]_vars

(* Fairness, per action: the copy of a load-back ends, and its acknowledgement is drained. *)
AckFairness == \A n \in Nodes, l \in Loaders : WF_vars(Loaded(n, l))

FairSpec == Spec /\ AckFairness

-----------------------------------------------------------------------------
(* Properties. *)

Owned(side) == Cardinality({n \in Nodes : side[n]})

\* id: load-exclusive.  SAFETY.  At most one load-back in flight has claimed a node, and a
\* claimed node is loading: a load is enabled only on a node that nobody has claimed (#35931),
\* and only its owner's acknowledgement ends it.
LoadExclusiveInv ==
    \A n \in Nodes : /\ Cardinality(claims[n]) <= 1
                     /\ claims[n] # {} <=> state[n] = "loading"

\* id: tombstone-once.  SAFETY.  A node owns exactly the slots that its state stands for, and
\* no slot is freed beyond the pools' sizes: a tombstone is evicted by its full side only (#36637).
TombstoneOnceInv ==
    /\ \A n \in Nodes : /\ full[n] <=> state[n] # "evicted"
                        /\ swa[n] <=> state[n] \notin {"evicted", "tombstoned"}
    /\ fullFree + Owned(full) <= Full
    /\ swaFree + Owned(swa) <= Swa

\* id: conservation.  SAFETY.  Free and owned slots make the pool, in both pools: each step
\* that takes a slot has exactly one that gives it back.
ConservationInv == fullFree + Owned(full) = Full /\ swaFree + Owned(swa) = Swa

\* id: pin-owned.  SAFETY.  A node is pinned exactly while somebody holds it, since only the
\* last holder lets it go and eviction passes it by.
PinOwnedInv == \A n \in Nodes : holders[n] > 0 <=> state[n] = "pinned"

\* id: progress.  LIVENESS.  Every load-back ends.
LoadsEndProp == \A n \in Nodes : state[n] = "loading" ~> state[n] # "loading"

=============================================================================
