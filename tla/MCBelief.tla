------------------------------ MODULE MCBelief ------------------------------
(* Bounds for Belief: the cfgs choose the chain.  The system is finite as it is. *)
EXTENDS Belief

(* With one part of the fairness removed, for cfgs that must fail. *)
NeverInsertedSpec == Spec /\ AckFairness /\ FetchFairness
NeverAckedSpec    == Spec /\ InsertFairness /\ FetchFairness
NeverFetchedSpec  == Spec /\ InsertFairness /\ AckFairness

=============================================================================
