------------------------------ MODULE MCRanks -------------------------------
(* Bounds for Ranks: the cfgs choose the sizes.  The system is finite as it is. *)
EXTENDS Ranks

(* With one part of the fairness removed, for cfgs that must fail. *)
UnfairPassSpec    == Spec /\ StorageFairness
UnfairStorageSpec == Spec /\ PassFairness

=============================================================================
