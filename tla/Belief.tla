------------------------------- MODULE Belief -------------------------------
(***************************************************************************)
(* What the scheduler believes that storage holds, and what storage does   *)
(* hold, for one chain of pages in two pools: the KV pool, and an          *)
(* auxiliary one (SWA or Mamba) that keys only the chain's trailing pages. *)
(*                                                                         *)
(* An insert writes what is not believed to be stored, so a false belief   *)
(* is a hole that no insert fills.  A fetch of the chain is all or         *)
(* nothing; when some pool comes up short it is discarded, and the beliefs *)
(* from the first page that was not served must go (#36386), so that the   *)
(* next insert rewrites the hole.                                          *)
(*                                                                         *)
(* States and events are named as in spec/belief.toml.                     *)
(***************************************************************************)
EXTENDS Naturals

CONSTANTS
    Chain,      \* Pages of the chain.
    Trailing    \* How many of them, the last ones, the auxiliary pool keys.

(* The profile: what a version of the engine does (spec/profiles/). *)
CONSTANTS
    BelievesFailed,   \* A failed write is believed like a successful one.
    ForgetsDetached   \* Beliefs are forgotten with the backend they speak of.

ASSUME Chain \in Nat \ {0} /\ Trailing \in 0..Chain

(* Bug toggles: FALSE in a right model, each with a cfg that must fail. *)
BackupThreadDies    == FALSE  \* No write is ever acknowledged again.
DiscardKeepsBeliefs == FALSE  \* A discarded fetch teaches nothing.
KeepsUnkeyed        == FALSE  \* A discard looks at the KV pages only, not at the auxiliary keys.
HeadNeverWritten    == FALSE  \* Inserts skip the first page of the chain.

-----------------------------------------------------------------------------
First == Chain - Trailing            \* The first page that the auxiliary pool keys.
Pages == ({"kv"} \X (0..Chain - 1)) \cup ({"aux"} \X (First..Chain - 1))

VARIABLE
    \* What is believed of each page: nothing, that it is being written, that it is stored.
    belief
BeliefTypeInv == belief \in [Pages -> {"unknown", "writing", "believed"}]

VARIABLE
    \* Whether storage holds the page: the truth.
    stored
StoredTypeInv == stored \in [Pages -> BOOLEAN]

VARIABLE
    \* A fetch of the whole chain is in flight.
    fetching
FetchingTypeInv == fetching \in BOOLEAN

vars == <<belief, stored, fetching>>

\* TYPE invariant.
TypeInv == BeliefTypeInv /\ StoredTypeInv /\ FetchingTypeInv

Init ==
    /\ belief = [p \in Pages |-> "unknown"]
    /\ stored = [p \in Pages |-> FALSE]
    /\ fetching = FALSE

-----------------------------------------------------------------------------
(* What evidence does to one belief.  A write in flight will bring its own verdict. *)
Confirmed(b) == IF b = "writing" THEN b ELSE "believed"
Denied(b)    == IF b = "writing" THEN b ELSE "unknown"
Dropped(b)   == IF b = "believed" THEN "unknown" ELSE b

(* How many leading pages of the chain the KV pool holds. *)
Leading == CHOOSE n \in 0..Chain :
              /\ \A i \in 0..n - 1 : stored[<<"kv", i>>]
              /\ n < Chain => ~stored[<<"kv", n>>]

(* How many of its keys, leading ones, the auxiliary pool holds. *)
Keyed == CHOOSE n \in 0..Trailing :
            /\ \A i \in 0..n - 1 : stored[<<"aux", First + i>>]
            /\ n < Trailing => ~stored[<<"aux", First + n>>]

-----------------------------------------------------------------------------
(* System actions. *)

(* An insert of the span offers a page, which is written unless it is believed or being stored. *)
Write(p) ==
    /\ HeadNeverWritten => p[2] # 0
    /\ belief' = [belief EXCEPT ![p] = IF @ = "unknown" THEN "writing" ELSE @]
    /\ UNCHANGED <<stored, fetching>>

(* The write of a page is acknowledged. *)
Stored(p) ==
    /\ belief[p] = "writing" /\ ~BackupThreadDies
    /\ belief' = [belief EXCEPT ![p] = "believed"]
    /\ stored' = [stored EXCEPT ![p] = TRUE]
    /\ UNCHANGED fetching

(* A question speaks of the KV pages: it confirms the leading stored ones and denies the rest. *)
AskChain ==
    /\ belief' = [p \in Pages |->
                    IF p[1] # "kv" THEN belief[p]
                    ELSE IF p[2] < Leading THEN Confirmed(belief[p]) ELSE Denied(belief[p])]
    /\ UNCHANGED <<stored, fetching>>

Fetch == ~fetching /\ fetching' = TRUE /\ UNCHANGED <<belief, stored>>

(* Every pool served every page. *)
Done ==
    /\ fetching /\ Leading = Chain /\ Keyed = Trailing
    /\ belief' = [p \in Pages |-> Confirmed(belief[p])]
    /\ fetching' = FALSE
    /\ UNCHANGED stored

(* How many leading pages every pool served, if KV served `done` and the auxiliary pool `hit` keys. *)
Keep(done, hit) ==
    IF hit = Trailing \/ KeepsUnkeyed \/ done < First THEN done ELSE First

(* Some pool came up short: `done` KV pages and `hit` keys were served, at most what is there. *)
Short(done, hit) ==
    /\ fetching /\ <<done, hit>> # <<Chain, Trailing>>
    /\ belief' = [p \in Pages |->
                    IF p[2] < Keep(done, hit) \/ DiscardKeepsBeliefs
                    THEN belief[p] ELSE Dropped(belief[p])]
    /\ fetching' = FALSE
    /\ UNCHANGED stored

Discard == \E done \in 0..Leading, hit \in 0..Keyed : Short(done, hit)

(* A discard without read errors: each pool serves all that it holds. *)
DiscardHonest == Short(Leading, Keyed)

-----------------------------------------------------------------------------
(* Environment actions.  Never fair. *)

(* A write fails.  The page may be there all the same, from an earlier write. *)
WriteFailed(p) ==
    /\ belief[p] = "writing" /\ ~BackupThreadDies
    /\ belief' = [belief EXCEPT ![p] = IF BelievesFailed THEN "believed" ELSE "unknown"]
    /\ UNCHANGED <<stored, fetching>>

(* The belief falls out of its bounded set: safe, at the price of a redundant write. *)
Overflow(p) ==
    /\ belief[p] = "believed"
    /\ belief' = [belief EXCEPT ![p] = "unknown"]
    /\ UNCHANGED <<stored, fetching>>

(* Storage evicts a page. *)
Lose(p) ==
    /\ stored[p]
    /\ stored' = [stored EXCEPT ![p] = FALSE]
    /\ UNCHANGED <<belief, fetching>>

(* Storage is cleared. *)
Clear ==
    /\ belief' = [p \in Pages |-> Denied(belief[p])]
    /\ stored' = [p \in Pages |-> FALSE]
    /\ UNCHANGED fetching

(* The backend is detached; an empty one follows. *)
Detach ==
    /\ belief' = [p \in Pages |-> IF ForgetsDetached \/ belief[p] = "writing" THEN "unknown" ELSE belief[p]]
    /\ stored' = [p \in Pages |-> FALSE]
    /\ UNCHANGED fetching

(* The cache is flushed: writes in flight are no longer tracked. *)
Reset ==
    /\ belief' = [p \in Pages |-> IF belief[p] = "writing" THEN "unknown" ELSE belief[p]]
    /\ UNCHANGED <<stored, fetching>>

-----------------------------------------------------------------------------
System == (\E p \in Pages : Write(p) \/ Stored(p)) \/ AskChain \/ Fetch \/ Done \/ Discard

Environment == (\E p \in Pages : WriteFailed(p) \/ Overflow(p) \/ Lose(p)) \/ Clear \/ Detach \/ Reset

Next == System \/ Environment

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Fairness, per action: the span is inserted and fetched again and again, *)
(* writes are acknowledged, fetches end.  No loss and no failure is owed.  *)
(***************************************************************************)
InsertFairness == \A p \in Pages : WF_vars(Write(p))
AckFairness    == \A p \in Pages : WF_vars(Stored(p))
FetchFairness  == WF_vars(Fetch) /\ WF_vars(Done \/ DiscardHonest)

FairSpec == Spec /\ InsertFairness /\ AckFairness /\ FetchFairness

-----------------------------------------------------------------------------
(* Properties. *)

Believed == {p \in Pages : belief[p] = "believed"}

(* What a fetch delivered that was served `done` KV pages and `hit` auxiliary keys. *)
Served(done, hit) == {p \in Pages : IF p[1] = "kv" THEN p[2] < done ELSE p[2] - First < hit}

\* id: belief-evidence.  SAFETY, on steps.  Nothing is believed that the step has just
\* contradicted: a write that stored nothing, a page that a discarded fetch was not served,
\* a storage that was cleared or detached.  It holds because each of these lowers the beliefs
\* from the first contradicted page on.
\* It does NOT say that beliefs are true: storage may lose a page without a word.
BeliefEvidenceProp ==
    [][ /\ \A p \in Pages : belief[p] = "writing" /\ belief'[p] = "believed" => stored'[p]
        /\ \A done \in 0..Leading, hit \in 0..Keyed :
               Short(done, hit) => Believed' \subseteq Served(done, hit)
        /\ Clear \/ Detach => Believed' = {}
      ]_vars

(* Every page is where it belongs, and known to be. *)
Whole == \A p \in Pages : stored[p] /\ belief[p] = "believed"

(* Steps of the system and of a storage that loses nothing and reads what it has. *)
Quiet == (\E p \in Pages : Write(p) \/ Stored(p)) \/ AskChain \/ Fetch \/ Done \/ DiscardHonest

\* id: heals.  LIVENESS.  Once storage stops losing pages, every hole is rewritten: a fetch
\* meets it and lowers the belief, and the next insert of the span writes it again.
HealsProp == <>[][Quiet]_vars => <>[]Whole

\* Deliberately false: a page can be believed and yet be absent.  Only evidence can tell.
DebugBeliefsAreTrueInv == \A p \in Believed : stored[p]

=============================================================================
