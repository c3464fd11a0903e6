---------------------------- MODULE MCAdmission ----------------------------
(* Bounds for Admission.  The cfgs choose the sizes and the profile. *)
EXTENDS Admission

CONSTANT
    Attempts    \* Attempts of a request, the first included.

(* Only the environment is bounded: nothing that helps a request on is ever cut off. *)
RetractionsBounded == \A r \in Requests : attempt[r] < Attempts

(* What the requests' pins hold. *)
OneEach  == [r \in Requests |-> 1]
OneMore  == [r \in Requests |-> r + 1]

(* Without faults: requests come, write-backs commit, and nobody gives up or takes anything *)
(* away.  Small enough for liveness of two requests; what is stuck here is stuck for good.   *)
Calm      == System \/ Storage \/ Wack \/ \E r \in Requests : Enqueue(r)
CalmSpec  == Init /\ [][Calm]_vars /\ SchedulerFairness /\ StorageFairness

\* id: headroom.  SAFETY.  Not everyone holds a part of the chain and waits for room for the rest,
\* which only the others could give back: nothing that the system does on its own would end it.
NoHoldAndWaitInv ==
    ~ \A r \in Requests :
        /\ state[r] = "parked" /\ hold[r] > 0 /\ pages[r] > hostFree
        /\ filling[r] = 0 /\ ~Orphaned(r)

(* With one part of the fairness removed, for cfgs that must fail. *)
UnfairSchedulerSpec == Spec /\ StorageFairness
UnfairStorageSpec   == Spec /\ SchedulerFairness
UnfairOrphansSpec ==
    /\ Spec /\ SchedulerFairness
    /\ \A r \in Requests : WF_vars(Hit(r) \/ Miss(r)) /\ WF_vars(Done(r) \/ Fail(r))
UnfairFillsSpec ==
    /\ Init /\ [][Calm]_vars /\ StorageFairness /\ WF_vars(Tick)
    /\ \A r \in Requests : WF_vars(Admit(r)) /\ WF_vars(Finish(r)) /\ WF_vars(Unpark(r))

=============================================================================
