------------------------------- MODULE Ranks --------------------------------
(***************************************************************************)
(* Tensor-parallel ranks that each run the same request's prefetch.  They  *)
(* share the scheduling passes and nothing else, yet must issue the same   *)
(* questions on the same pass, or a collective of one rank waits for ever  *)
(* for the others.                                                         *)
(*                                                                         *)
(* Storage misses every question, at its own time on each rank, so that    *)
(* draining and pacing are all that ranks could disagree on.  Another      *)
(* request heads the queue, so that the head rule does not apply.  Whether *)
(* a question can be issued is agreed: it depends on the request and on    *)
(* the agreed occupancy.                                                   *)
(*                                                                         *)
(* States and events are named as in spec/prefetch.toml.                   *)
(***************************************************************************)
EXTENDS Naturals

CONSTANTS
    NumRanks    \* How many ranks there are.

(* The profile: what a version of the engine does (spec/profiles/). *)
CONSTANTS
    Interval,       \* Passes between a miss and its re-issue.
    MaxAttempts,    \* How often an attempt may ask again.
    ArmsLimited,    \* A question refused by the rate limit raises a marker.
    SpendsUnasked,  \* A re-issue that asked nothing costs budget all the same.
    Pacing,         \* What a wait is measured by: "pass" or each rank's own "clock".
    AgreedDrains    \* Ranks drain the number of answers that all of them have.

ASSUME /\ {NumRanks, Interval} \subseteq Nat \ {0} /\ MaxAttempts \in Nat
       /\ Pacing \in {"pass", "clock"}

(* Bug toggles: FALSE in a right model, each with a cfg that must fail. *)
FlagSkipsAgreement == FALSE  \* A rank to which no answer has come skips the agreement on drains.
BudgetPerRank      == FALSE  \* One rank has a re-issue less than the others.

-----------------------------------------------------------------------------
RankIds == 0..NumRanks - 1

VARIABLE
    \* Where each rank's prefetch stands (spec/prefetch.toml).
    state
StateTypeInv ==
    state \in [RankIds -> {"queued", "probing", "missed", "pending", "retrying", "exhausted"}]

VARIABLE
    \* A question of the rank is with storage.
    asking
AskingTypeInv == asking \in [RankIds -> BOOLEAN]

VARIABLE
    \* The answer has arrived at the rank and is not drained.
    arrived
ArrivedTypeInv == arrived \in [RankIds -> BOOLEAN]

VARIABLE
    \* The miss marker is up.
    marker
MarkerTypeInv == marker \in [RankIds -> BOOLEAN]

VARIABLE
    \* Re-issues spent.
    asked
AskedTypeInv == asked \in [RankIds -> 0..MaxAttempts]

VARIABLE
    \* Sweeps counted while pending.
    waited
WaitedTypeInv == waited \in [RankIds -> 0..Interval]

VARIABLE
    \* The last pass issued a question on this rank.
    asksNow
AsksNowTypeInv == asksNow \in [RankIds -> BOOLEAN]

VARIABLE
    \* The rank took part in the last pass's agreement on drains.  History; always so in a right model.
    joined
JoinedTypeInv == joined \in [RankIds -> BOOLEAN]

vars == <<state, asking, arrived, marker, asked, waited, asksNow, joined>>

\* TYPE invariant.
TypeInv ==
    /\ StateTypeInv /\ AskingTypeInv /\ ArrivedTypeInv /\ MarkerTypeInv
    /\ AskedTypeInv /\ WaitedTypeInv /\ AsksNowTypeInv /\ JoinedTypeInv

Each(value) == [k \in RankIds |-> value]

(* Every rank has just asked. *)
Init ==
    /\ state   = Each("probing")
    /\ asking  = Each(TRUE)
    /\ arrived = Each(FALSE)
    /\ marker  = Each(FALSE)
    /\ asked   = Each(0)
    /\ waited  = Each(0)
    /\ asksNow = Each(FALSE)
    /\ joined  = Each(TRUE)

-----------------------------------------------------------------------------
(* One rank as a value, so that a pass composes of a drain and a sweep. *)

Rank(k) ==
    [state |-> state[k], asking |-> asking[k], arrived |-> arrived[k], marker |-> marker[k],
     asked |-> asked[k], waited |-> waited[k], asksNow |-> FALSE, joined |-> TRUE]

(* The drained answer is a miss; it raises the marker. *)
Drain(rank) ==
    LET taken == [rank EXCEPT !.arrived = FALSE]
    IN IF rank.state \in {"probing", "retrying"}
       THEN [taken EXCEPT !.state = "missed", !.asking = FALSE, !.marker = TRUE]
       ELSE taken

AskAgain(rank) ==
    [rank EXCEPT !.state = "retrying", !.waited = 0, !.asked = @ + 1, !.asking = TRUE, !.asksNow = TRUE]

(* A re-issue that could not ask: charged for it or not, with a marker or not. *)
AskNothing(rank) ==
    [rank EXCEPT !.state = IF ArmsLimited THEN "missed" ELSE "queued", !.waited = 0,
                 !.asked = IF SpendsUnasked THEN @ + 1 ELSE @, !.marker = ArmsLimited]

WaitOn(rank) == [rank EXCEPT !.waited = IF @ < Interval THEN @ + 1 ELSE @]

(* To what one sweep may take a rank.  By the clock, each rank is due when its own clock says so. *)
Sweep(rank, asks, budget) ==
    LET ask == IF asks THEN AskAgain(rank) ELSE AskNothing(rank)
    IN CASE rank.state = "missed" /\ rank.asked >= budget ->
              {[rank EXCEPT !.state = "exhausted", !.marker = FALSE]}
         [] rank.state = "missed" ->
              {[rank EXCEPT !.state = "pending", !.marker = FALSE, !.waited = 1]}
         [] rank.state = "pending" /\ Pacing = "clock" -> {ask, WaitOn(rank)}
         [] rank.state = "pending" -> {IF rank.waited >= Interval THEN ask ELSE WaitOn(rank)}
         [] OTHER -> {rank}

-----------------------------------------------------------------------------
(* Storage action: the answer to a rank's question reaches it. *)
Arrive(k) ==
    /\ asking[k] /\ ~arrived[k]
    /\ arrived' = [arrived EXCEPT ![k] = TRUE]
    /\ UNCHANGED <<state, asking, marker, asked, waited, asksNow, joined>>

(* System action: one pass on all ranks.  Each drains as many answers as are agreed, or as it *)
(* has, then sweeps.                                                                          *)
Drained(k) ==
    IF (AgreedDrains /\ \A j \in RankIds : arrived[j]) \/ (~AgreedDrains /\ arrived[k])
    THEN Drain(Rank(k)) ELSE Rank(k)

After(k, asks) ==
    LET budget == IF BudgetPerRank /\ k = 0 THEN MaxAttempts - 1 ELSE MaxAttempts
        joins  == ~FlagSkipsAgreement \/ arrived[k]
    IN {[rank EXCEPT !.joined = joins] : rank \in Sweep(Drained(k), asks, budget)}

Pass ==
    \E asks \in BOOLEAN :
      \E next \in [RankIds -> UNION {After(k, asks) : k \in RankIds}] :
        /\ \A k \in RankIds : next[k] \in After(k, asks)
        /\ state'   = [k \in RankIds |-> next[k].state]
        /\ asking'  = [k \in RankIds |-> next[k].asking]
        /\ arrived' = [k \in RankIds |-> next[k].arrived]
        /\ marker'  = [k \in RankIds |-> next[k].marker]
        /\ asked'   = [k \in RankIds |-> next[k].asked]
        /\ waited'  = [k \in RankIds |-> next[k].waited]
        /\ asksNow' = [k \in RankIds |-> next[k].asksNow]
        /\ joined'  = [k \in RankIds |-> next[k].joined]

Next == Pass \/ \E k \in RankIds : Arrive(k)

Spec == Init /\ [][Next]_vars

(* Fairness, per action: passes go on, and storage answers every rank. *)
PassFairness    == WF_vars(Pass)
StorageFairness == \A k \in RankIds : WF_vars(Arrive(k))

FairSpec == Spec /\ PassFairness /\ StorageFairness

-----------------------------------------------------------------------------
(* Properties. *)

\* id: lockstep.  SAFETY.  All ranks issue the same questions on the same pass, and reach the
\* same collectives: pacing counts passes, which ranks share, and drains consume the agreed
\* number of answers, in an agreement that every rank joins on every pass.
LockstepInv == \A j, k \in RankIds : asksNow[j] = asksNow[k] /\ joined[j] = joined[k]

\* id: attempts-bounded.  SAFETY.  Each re-issue is guarded by the budget and spends one.
AttemptsBoundedInv == \A k \in RankIds : asked[k] <= MaxAttempts

\* id: progress.  LIVENESS.  The prefetch settles on every rank: the budget bounds the questions,
\* and each of them is answered.
SettlesProp == <>[](\A k \in RankIds : state[k] \in {"queued", "exhausted"})

=============================================================================
