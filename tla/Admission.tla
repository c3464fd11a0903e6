----------------------------- MODULE Admission -----------------------------
(***************************************************************************)
(* Requests that wait for admission and prefetch their common prefix from  *)
(* storage (L3) meanwhile.                                                 *)
(*                                                                         *)
(* A request asks storage for a chain of pages.  The answer is a hit, which*)
(* takes host pages and becomes a read, or a miss, which raises a one-shot *)
(* marker.  A sweep of the queue, once per scheduling pass, turns a marker *)
(* into a wait and, when the wait is over, asks again.  Storage commits    *)
(* late, so the second question may find what the first one missed.  The   *)
(* device node that the fetched pages will hang on (the anchor) is pinned  *)
(* meanwhile.  An operation whose request no longer wants it goes on as an *)
(* orphan, and keeps its pages until its last answer.                      *)
(*                                                                         *)
(* States, events and effects are named as in spec/prefetch.toml,          *)
(* spec/operation.toml and spec/pin.toml.  An effect is an operator that   *)
(* takes the world (all variables as one record) and a request, and gives  *)
(* the world after it, so that a row of the table reads here as it does    *)
(* there, from the inside out.  All amounts are pages.                     *)
(***************************************************************************)
EXTENDS Integers

-----------------------------------------------------------------------------
(* Sizes. *)
CONSTANTS
    NumRequests,    \* How many requests may come; 0 heads the queue.
    Chain,          \* Length of the prefix chain that every request asks for.
    Host,           \* Size of the host pool.
    Device,         \* Size of the device pool.
    Context,        \* The largest context length.
    Anchors         \* What each request's pin holds: a function on requests.

(* The profile: what a version of the engine does (spec/profiles/). *)
CONSTANTS
    Interval,            \* Passes between a miss and its re-issue; 0 turns retries off.
    MaxAttempts,         \* How often an attempt may ask again.
    Dense,               \* The dense path: markers are inert.
    MarksWhenDisabled,   \* Markers are raised even with interval 0.
    SweepsWhenDisabled,  \* Passes sweep these markers: paced ones are dropped, known hits asked for.
    ArmsTooShort,        \* A span too short to be asked about raises a marker.
    ArmsLimited,         \* A question refused by the rate limit raises a marker.
    ArmsCut,             \* A question that the stop policy cuts raises a marker.
    SpendsUnasked,       \* A re-issue that asked nothing costs budget all the same.
    Parks,               \* A hit without room is parked, not revoked.
    ParksPinned,         \* A parked hit keeps the pin that its question took.
    RetriesFailed,       \* A failed read raises a marker like a miss.
    ImmediateKnownHit,   \* A known hit is asked for again without pacing.
    RequeriesTail,       \* A partial hit asks again for its tail.
    RequeriesLostMatch,  \* A shrunken device match asks again at admission.
    HeadRule,            \* No speculative miss may delay the head of the queue.
    LeakyDoor,           \* One way out of the queue releases nothing.
    Scope,               \* What an answer is matched by: "attempt" or "rid".
    ResetsBudget,        \* A retraction gives the budget back.
    ResetsUnder,         \* What a flush and a detach may happen under: "queue", "pause" or "idle".
    PinsEarly,           \* The anchor is pinned at issue, not only at the hit.
    PinPercent,          \* The share of the device pool that pins may take.
    HeadroomSlack        \* What the pin cap leaves free beyond Context.

ASSUME /\ NumRequests \in Nat \ {0}
       /\ {Chain, Device, Context} \subseteq Nat \ {0}
       /\ Host \in Nat /\ Interval \in Nat /\ MaxAttempts \in Nat
       /\ PinPercent \in 0..100 /\ HeadroomSlack \in Nat
       /\ Scope \in {"attempt", "rid"}
       /\ ResetsUnder \in {"queue", "pause", "idle"}

-----------------------------------------------------------------------------
(***************************************************************************)
(* Bug toggles.  Each is FALSE in a right model; a cfg that sets one to    *)
(* TRUE must fail, with the verdict that manifest.json records beside the  *)
(* upstream reports that the toggle stands for.                            *)
(***************************************************************************)
AbortKeepsHold       == FALSE  \* Abort forgets the staged hold.
AbortKeepsMarker     == FALSE  \* Abort leaves the marker up.
AbortKeepsOccupancy  == FALSE  \* Abort frees pages but not what was charged for them.
AbortKeepsParked     == FALSE  \* Abort leaves a parked hit in its queue.
AbortKeepsPin        == FALSE  \* Abort leaves the pin.
AbortLosesPages      == FALSE  \* Abort in mid-read drops the operation, and its pages with it.
AbortFreesUnderIO    == FALSE  \* Abort frees pages that storage still writes.
AdmitKeepsMarker     == FALSE  \* Admission leaves the marker up.
AdmitsInFlight       == FALSE  \* Admission does not wait for an operation in flight.
CompletesAtHeadOnly  == FALSE  \* The end of a read is seen only for the head of the queue.
CompletesUnplanned   == FALSE  \* Nothing done of nothing planned counts as done.
DrainsWithQueueOnly  == FALSE  \* Acknowledgements are drained only while requests wait.
EvictsPinned         == FALSE  \* Eviction does not look at pins.
FailKeepsPages       == FALSE  \* A failed read gives nothing back.
FlushForgetsAnswer   == FALSE  \* A flush drops the question, and the request still waits for it.
FlushFreesUnderIO    == FALSE  \* A flush frees pages that a surviving worker still writes.
FreesHoldTwice       == FALSE  \* Two clean-ups both free the hold.
IgnoresBudget        == FALSE  \* A re-issue does not look at the budget.
IgnoresInterval      == FALSE  \* A sweep re-issues at once.
LimitedLimbo         == FALSE  \* A rate-limited question leaves the request waiting for no operation.
OrphanKeepsPages     == FALSE  \* The last answer to an orphan frees nothing.
OrphanNeverEnds      == FALSE  \* The last answer to an orphan is never seen.
PagesBeforeHit       == FALSE  \* Host pages are taken by the question, not by the hit.
ParksHolding         == FALSE  \* Who holds a part of the chain parks for the rest all the same.
PinsUncapped         == FALSE  \* A pin does not look at the cap.
RejectedRuns         == FALSE  \* A rejected request is admitted all the same.
SweepKeepsMarker     == FALSE  \* The sweep serves a marker without lowering it.
UnpinsTooLittle      == FALSE  \* An unpin takes off less than its pin put on.

-----------------------------------------------------------------------------
Requests == 0..NumRequests - 1

Waiting  == {"queued", "probing", "missed", "pending", "retrying", "parked",
             "transferring", "loaded", "exhausted"}
Over     == {"scheduled", "aborted"}
States   == Waiting \cup Over

Asking      == {"probing", "retrying"}            \* A question is in flight.
Undecided   == Asking \cup {"parked"}             \* No host page is owned yet.
Admissible  == {"queued", "missed", "pending", "exhausted", "loaded"}

Retries  == Interval > 0 /\ ~Dense
Arms     == ~Dense /\ (Interval > 0 \/ MarksWhenDisabled)
Sweeps   == Retries \/ (Arms /\ SweepsWhenDisabled)

(* Whether a marker may be raised (or left alone) although no question was issued. *)
MayArmUnasked   == Arms /\ (ArmsTooShort \/ ArmsLimited)
MayNotArmUnasked == ~(Arms /\ ArmsTooShort /\ ArmsLimited)

(* What the largest admissible request needs: up to a page more than its context (#37464). *)
Demand   == Context + 1

Smaller(a, b) == IF a <= b THEN a ELSE b
Larger(a, b)  == IF a >= b THEN a ELSE b

(* How many pages may be pinned at once: a share of the pool, with headroom for one request. *)
Cap      == Larger(0, Smaller((PinPercent * Device) \div 100, Device - Context - HeadroomSlack))

RECURSIVE SumTo(_, _)
SumTo(f, n) == IF n = 0 THEN 0 ELSE f[n - 1] + SumTo(f, n - 1)
Sum(f)      == SumTo(f, NumRequests)

-----------------------------------------------------------------------------
VARIABLE
    \* Where each attempt stands (spec/prefetch.toml); "absent" before its request arrives.
    state
StateTypeInv == state \in [Requests -> States \cup {"absent"}]

VARIABLE
    \* The request is in a batch and occupies its demand on the device.
    running
RunningTypeInv == running \in [Requests -> BOOLEAN]

VARIABLE
    \* Which attempt this is: a retraction begins the next.
    attempt
AttemptTypeInv == attempt \in [Requests -> Nat]

VARIABLE
    \* Re-issues spent by the attempt.
    asked
AskedTypeInv == asked \in [Requests -> Nat]

VARIABLE
    \* Sweeps counted while pending.
    waited
WaitedTypeInv == waited \in [Requests -> 0..Interval]

VARIABLE
    \* Whose miss marker is up: 0 for none, n + 1 for attempt n.
    marker
MarkerTypeInv == marker \in [Requests -> Nat]

VARIABLE
    \* The marker stands for a known hit, which needs no pacing.
    immediate
ImmediateTypeInv == immediate \in [Requests -> BOOLEAN]

VARIABLE
    \* This attempt has issued a question.  History: only an invariant reads it.
    issued
IssuedTypeInv == issued \in [Requests -> BOOLEAN]

VARIABLE
    \* The attempt's live operation (spec/operation.toml); an ended one is "none".
    op
OpTypeInv == op \in [Requests -> {"none", "asking", "known", "reading"}]

VARIABLE
    \* Length of the live operation's hit; owned host pages once it is reading.
    pages
PagesTypeInv == pages \in [Requests -> 0..Chain]

VARIABLE
    \* A terminated question has still to be answered.
    orphanAsking
OrphanAskingTypeInv == orphanAsking \in [Requests -> BOOLEAN]

VARIABLE
    \* Host pages of terminated reads, owned until the last answer.
    orphanPages
OrphanPagesTypeInv == orphanPages \in [Requests -> 0..Host]

VARIABLE
    \* Host pages that are staged and wait for admission.
    hold
HoldTypeInv == hold \in [Requests -> 0..Host]

VARIABLE
    \* Host pages being copied to the device, until the acknowledgement.
    filling
FillingTypeInv == filling \in [Requests -> 0..Host]

VARIABLE
    \* The attempt's pin on the anchor (spec/pin.toml).
    pin
PinTypeInv == pin \in [Requests -> {"unpinned", "pinned", "capped", "lost", "released"}]

VARIABLE
    \* Passes since the marker rose, counted up to Interval.  History.
    since
SinceTypeInv == since \in [Requests -> 0..Interval]

VARIABLE
    \* Host pages that storage may still write.  History.
    io
IoTypeInv == io \in [Requests -> 0..Host]

VARIABLE
    \* The anchor node is on the device.
    anchored
AnchoredTypeInv == anchored \in BOOLEAN

VARIABLE
    \* How many leading pages of the chain storage holds.
    stored
StoredTypeInv == stored \in 0..Chain

VARIABLE
    \* Free pages of the host pool.
    hostFree
HostFreeTypeInv == hostFree \in 0..Host

VARIABLE
    \* Pages charged to prefetches: the budget that rate-limits them.
    occupied
OccupiedTypeInv == occupied \in 0..Host

VARIABLE
    \* Pages counted against the pin cap.
    pinned
PinnedTypeInv == pinned \in 0..Sum(Anchors)

vars == <<state, running, attempt, asked, waited, marker, immediate, issued, op, pages,
          orphanAsking, orphanPages, hold, filling, pin, since, io,
          anchored, stored, hostFree, occupied, pinned>>

\* TYPE invariant.
TypeInv ==
    /\ StateTypeInv /\ RunningTypeInv /\ AttemptTypeInv /\ AskedTypeInv /\ WaitedTypeInv
    /\ MarkerTypeInv /\ ImmediateTypeInv /\ IssuedTypeInv /\ OpTypeInv /\ PagesTypeInv
    /\ OrphanAskingTypeInv /\ OrphanPagesTypeInv /\ HoldTypeInv /\ FillingTypeInv
    /\ PinTypeInv /\ SinceTypeInv /\ IoTypeInv
    /\ AnchoredTypeInv /\ StoredTypeInv /\ HostFreeTypeInv /\ OccupiedTypeInv /\ PinnedTypeInv

Init ==
    /\ state        = [r \in Requests |-> "absent"]
    /\ running      = [r \in Requests |-> FALSE]
    /\ attempt      = [r \in Requests |-> 0]
    /\ asked        = [r \in Requests |-> 0]
    /\ waited       = [r \in Requests |-> 0]
    /\ marker       = [r \in Requests |-> 0]
    /\ immediate    = [r \in Requests |-> FALSE]
    /\ issued       = [r \in Requests |-> FALSE]
    /\ op           = [r \in Requests |-> "none"]
    /\ pages        = [r \in Requests |-> 0]
    /\ orphanAsking = [r \in Requests |-> FALSE]
    /\ orphanPages  = [r \in Requests |-> 0]
    /\ hold         = [r \in Requests |-> 0]
    /\ filling      = [r \in Requests |-> 0]
    /\ pin          = [r \in Requests |-> "unpinned"]
    /\ since        = [r \in Requests |-> 0]
    /\ io           = [r \in Requests |-> 0]
    /\ anchored     = TRUE
    /\ stored       = 0
    /\ hostFree     = Host
    /\ occupied     = 0
    /\ pinned       = 0

-----------------------------------------------------------------------------
(* The world as a value, and a step to another one. *)

World ==
    [state |-> state, running |-> running, attempt |-> attempt, asked |-> asked, waited |-> waited,
     marker |-> marker, immediate |-> immediate, issued |-> issued, op |-> op, pages |-> pages,
     orphanAsking |-> orphanAsking, orphanPages |-> orphanPages, hold |-> hold, filling |-> filling,
     pin |-> pin, since |-> since, io |-> io, anchored |-> anchored, stored |-> stored,
     hostFree |-> hostFree, occupied |-> occupied, pinned |-> pinned]

Become(w) ==
    /\ state' = w.state /\ running' = w.running /\ attempt' = w.attempt /\ asked' = w.asked
    /\ waited' = w.waited /\ marker' = w.marker /\ immediate' = w.immediate /\ issued' = w.issued
    /\ op' = w.op /\ pages' = w.pages /\ orphanAsking' = w.orphanAsking
    /\ orphanPages' = w.orphanPages /\ hold' = w.hold /\ filling' = w.filling /\ pin' = w.pin
    /\ since' = w.since /\ io' = w.io /\ anchored' = w.anchored /\ stored' = w.stored
    /\ hostFree' = w.hostFree /\ occupied' = w.occupied /\ pinned' = w.pinned

(* Entering a state.  What nobody reads of a request that is gone is forgotten. *)
Forget(w, r) == [w EXCEPT !.asked[r] = 0, !.issued[r] = FALSE, !.attempt[r] = 0]

Enter(w, r, dest) ==
    LET there == [w EXCEPT !.state[r]   = dest,
                           !.waited[r]  = IF dest = "pending" THEN @ ELSE 0,
                           !.since[r]   = IF dest \in {"missed", "pending"} THEN @ ELSE 0,
                           !.running[r] = @ \/ dest = "scheduled"]
    IN IF dest = "aborted" THEN Forget(there, r) ELSE there

(* The queue. *)
Queued(w, r)  == w.state[r] \in Waiting
Heads(w, r)   == \A q \in 0..r - 1 : ~Queued(w, q)
BudgetLeft(w, r) == IgnoresBudget \/ w.asked[r] < MaxAttempts

-----------------------------------------------------------------------------
(* Effects on pins (spec/pin.toml). *)

PinAnchor(w, r) ==
    IF w.pin[r] \notin {"unpinned", "capped"} THEN w      \* #36227: a second pin changes nothing.
    ELSE IF ~w.anchored THEN [w EXCEPT !.pin[r] = "lost"]
    ELSE IF PinsUncapped \/ w.pinned + Anchors[r] <= Cap
         THEN [w EXCEPT !.pin[r] = "pinned", !.pinned = @ + Anchors[r]]
    ELSE [w EXCEPT !.pin[r] = "capped"]

Unpin(w, r) ==
    LET taken == IF w.pin[r] # "pinned" THEN 0 ELSE IF UnpinsTooLittle THEN Anchors[r] - 1 ELSE Anchors[r]
    IN [w EXCEPT !.pin[r] = "released", !.pinned = @ - taken]

(* Who waits for room gives its pin back, and may take it again. *)
YieldPin(w, r) == IF w.pin[r] = "pinned" THEN [Unpin(w, r) EXCEPT !.pin[r] = "unpinned"] ELSE w

(* Effects on operations (spec/operation.toml). *)

GiveBack(w, n) == [w EXCEPT !.hostFree = @ + n, !.occupied = @ - n]

EndOperation(w, r) == [w EXCEPT !.op[r] = "none", !.pages[r] = 0]

OrphanOperation(w, r) ==
    LET gone == EndOperation(w, r)
    IN CASE w.op[r] = "asking"  -> [gone EXCEPT !.orphanAsking[r] = TRUE]
         [] w.op[r] = "reading" -> [gone EXCEPT !.orphanPages[r] = @ + w.pages[r]]
         [] OTHER               -> gone

(* A question begins with a pin of its own, unless the attempt still holds one. *)
Ask(w, r) ==
    LET n     == IF PagesBeforeHit THEN 1 ELSE 0
        fresh == [w EXCEPT !.op[r] = "asking", !.pages[r] = 0, !.issued[r] = TRUE,
                           !.hostFree = @ - n, !.occupied = @ + n,
                           !.pin[r] = IF @ = "pinned" THEN @ ELSE "unpinned"]
    IN IF PinsEarly THEN PinAnchor(fresh, r) ELSE fresh

TakePages(w, r) ==
    [w EXCEPT !.op[r] = "reading", !.io[r] = @ + w.pages[r],
              !.hostFree = @ - w.pages[r], !.occupied = @ + w.pages[r]]

StageHold(w, r)   == EndOperation([w EXCEPT !.hold[r] = @ + w.pages[r]], r)
FreePages(w, r)   == EndOperation(IF FailKeepsPages THEN w ELSE GiveBack(w, w.pages[r]), r)
ReleaseHold(w, r) == GiveBack([w EXCEPT !.hold[r] = 0], w.hold[r])
ConsumeHold(w, r) == [w EXCEPT !.filling[r] = @ + w.hold[r], !.hold[r] = 0]

(* `read` pages of a read have arrived and become the hold; the rest is the orphan's. *)
CutOperation(w, r, read) ==
    OrphanOperation([w EXCEPT !.hold[r] = @ + read, !.pages[r] = @ - read, !.io[r] = @ - read], r)

(* Effects on markers and waits (spec/prefetch.toml). *)

RaiseMarker(w, r) ==
    [w EXCEPT !.marker[r] = w.attempt[r] + 1, !.immediate[r] = FALSE, !.since[r] = 0]
RaiseImmediate(w, r) == [RaiseMarker(w, r) EXCEPT !.immediate[r] = ImmediateKnownHit]
LowerMarker(w, r)    == [w EXCEPT !.marker[r] = 0, !.immediate[r] = FALSE]
Spend(w, r)          == [w EXCEPT !.asked[r] = @ + 1]
SpendUnasked(w, r)   == IF SpendsUnasked THEN Spend(w, r) ELSE w

(* A resolved question that gave nothing: back to the queue, with a marker if that is armed. *)
Missed(w, r)    == IF Arms THEN Enter(RaiseMarker(w, r), r, "missed") ELSE Enter(w, r, "queued")
WasCut(w, r)    == IF ArmsCut THEN Missed(w, r) ELSE Enter(w, r, "queued")
LostHit(w, r)   == IF Arms THEN Enter(RaiseImmediate(w, r), r, "missed") ELSE Enter(w, r, "queued")

-----------------------------------------------------------------------------
(* System actions: the scheduler and the cache.  Each is one event. *)

(* The first question of an attempt, put as the request is queued. *)
Issue(w, r) ==
    \/ Become(Enter(Ask(w, r), r, "probing"))
    \/ MayArmUnasked    /\ Become(Enter(RaiseMarker(w, r), r, "missed"))
    \/ MayNotArmUnasked /\ Become(Enter(w, r, IF LimitedLimbo THEN "probing" ELSE "queued"))

(* A re-issued question. *)
AskAgain(w, r) == Enter(Ask(Spend(w, r), r), r, "retrying")

(* The worlds after an attempt to re-issue one: it goes out, or cannot, with or without a marker. *)
Reissue(w, r) ==
    LET unasked == SpendUnasked(w, r)
    IN {AskAgain(w, r)}
       \cup (IF MayArmUnasked    THEN {Enter(RaiseMarker(unasked, r), r, "missed")} ELSE {})
       \cup (IF MayNotArmUnasked THEN {Enter(unasked, r, "queued")} ELSE {})

(* The worlds to which one sweep may take request r. *)
SweepMissed(w, r) ==
    LET served == IF SweepKeepsMarker THEN w ELSE LowerMarker(w, r)
    IN CASE w.marker[r] = 0 -> {w}
         [] ~w.immediate[r] /\ HeadRule /\ Heads(w, r) -> {Enter(served, r, "queued")}
         [] ~BudgetLeft(w, r) -> {Enter(served, r, "exhausted")}
         [] w.immediate[r] -> {AskAgain(served, r), Enter(SpendUnasked(served, r), r, "queued")}
         [] ~Retries -> {Enter(served, r, "queued")}
         [] OTHER -> {Enter([served EXCEPT !.waited[r] = 1], r, "pending")}

SweepPending(w, r) ==
    IF HeadRule /\ Heads(w, r) THEN {Enter(w, r, "queued")}
    ELSE IF IgnoresInterval \/ w.waited[r] >= Interval THEN Reissue(w, r)
    ELSE {Enter([w EXCEPT !.waited[r] = @ + 1], r, "pending")}

Sweep(w, r) ==
    LET passed == [w EXCEPT !.since[r] = Smaller(@ + 1, Interval)]
    IN CASE w.state[r] = "missed"  -> SweepMissed(passed, r)
         [] w.state[r] = "pending" -> SweepPending(passed, r)
         [] OTHER                  -> {w}

(* Sweeping the requests from r on, in the order of the queue. *)
RECURSIVE SweepFrom(_, _)
SweepFrom(worlds, r) ==
    IF r = NumRequests THEN worlds
    ELSE SweepFrom(UNION {Sweep(w, r) : w \in worlds}, r + 1)

(* One scheduling pass: the only clock that pacing knows. *)
Tick ==
    /\ Sweeps
    /\ \E r \in Requests : state[r] \in {"missed", "pending"}
    /\ \E w \in SweepFrom({World}, 0) : Become(w)

(* At admission the device holds less of the prefix than when it was matched. *)
LoseMatch(r) ==
    /\ RequeriesLostMatch /\ ~anchored /\ hold[r] = 0
    /\ state[r] \in {"queued", "missed", "pending", "loaded"}
    /\ LET w == LowerMarker(World, r)
       IN \E after \in IF BudgetLeft(w, r) THEN Reissue(w, r) ELSE {Enter(w, r, "exhausted")} :
            Become(after)

(* Its own pin is part of a request's demand: the anchor is its prefix. *)
FitsDevice(r) ==
    LET own    == IF pin[r] = "pinned" THEN Anchors[r] ELSE 0
        inUse  == Sum([q \in Requests |-> IF running[q] THEN Demand ELSE 0])
    IN pinned - own + inUse + Demand <= Device

(* The scan passes requests that wait for their prefetch, and stops at the first that does not fit. *)
ScanReaches(r) == \A q \in 0..r - 1 : state[q] \notin Admissible

Admit(r) ==
    /\ \/ state[r] \in Admissible
       \/ AdmitsInFlight /\ state[r] \in Undecided \cup {"transferring"}
       \/ RejectedRuns /\ state[r] = "aborted"
    /\ FitsDevice(r) /\ ScanReaches(r)
    /\ LET w == IF AdmitKeepsMarker THEN World ELSE LowerMarker(World, r)
       IN Become(Enter(Unpin(ConsumeHold(w, r), r), r, "scheduled"))

(* A running request is done. *)
Finish(r) == running[r] /\ Become(Forget([World EXCEPT !.running[r] = FALSE], r))

(* A hold has been copied to the device: its host pages go back. *)
Filled(r) ==
    /\ filling[r] > 0
    /\ DrainsWithQueueOnly => \E q \in Requests : Queued(World, q)
    /\ Become(GiveBack([World EXCEPT !.filling[r] = 0], filling[r]))

(* Room came free for a parked hit: an idempotent second chance for its pin. *)
Unpark(r) ==
    /\ state[r] = "parked" /\ op[r] = "known" /\ hostFree >= pages[r]
    /\ Become(Enter(TakePages(PinAnchor(World, r), r), r, "transferring"))

-----------------------------------------------------------------------------
(* Storage actions: the answers that storage owes. *)

Found(r) == op[r] = "asking" /\ stored > hold[r]

(* Who holds a part already does not park for the rest: two such would hold and wait. *)
Hit(r) ==
    /\ state[r] \in Asking /\ Found(r)
    /\ LET w == [World EXCEPT !.pages[r] = stored - hold[r]]
       IN Become(IF hostFree >= w.pages[r]
                 THEN Enter(TakePages(PinAnchor(w, r), r), r, "transferring")
                 ELSE IF Parks /\ (hold[r] = 0 \/ ParksHolding)
                 THEN LET known == [w EXCEPT !.op[r] = "known"]
                      IN Enter(IF ParksPinned THEN known ELSE YieldPin(known, r), r, "parked")
                 ELSE Missed(Unpin(EndOperation(w, r), r), r))

Miss(r) ==
    /\ state[r] \in Asking /\ op[r] = "asking" /\ stored <= hold[r]
    /\ Become(Missed(Unpin(EndOperation(World, r), r), r))

(* A read ends with usable pages, all that were asked for; its I/O is over. *)
Done(r) ==
    /\ \/ state[r] = "transferring" /\ op[r] = "reading"
       \/ CompletesUnplanned /\ state[r] = "probing"
    /\ CompletesAtHeadOnly => Heads(World, r)
    /\ LET partial == hold[r] + pages[r] < Chain
           again   == RequeriesTail /\ Arms /\ partial /\ BudgetLeft(World, r)
           staged  == StageHold([World EXCEPT !.io[r] = @ - pages[r]], r)
       IN Become(IF again THEN Enter(RaiseMarker(staged, r), r, "missed") ELSE Enter(staged, r, "loaded"))

(* A read ends with nothing usable: a read error, a short read, a hybrid discard. *)
Fail(r) ==
    /\ state[r] = "transferring" /\ op[r] = "reading"
    /\ CompletesAtHeadOnly => Heads(World, r)
    /\ LET w == Unpin(FreePages([World EXCEPT !.io[r] = @ - pages[r]], r), r)
       IN Become(IF RetriesFailed THEN Missed(w, r) ELSE Enter(w, r, "queued"))

(* The orphans of one request are one: it ends with the last answer of all. *)
Orphaned(r) == orphanAsking[r] \/ orphanPages[r] > 0

OrphanEnd(r) ==
    /\ Orphaned(r) /\ ~OrphanNeverEnds
    /\ DrainsWithQueueOnly => \E q \in Requests : Queued(World, q)
    /\ LET w == [World EXCEPT !.orphanAsking[r] = FALSE, !.orphanPages[r] = 0, !.io[r] = @ - orphanPages[r]]
       IN Become(IF OrphanKeepsPages THEN w ELSE GiveBack(w, orphanPages[r]))

(* By request id, the late answer to an older question is taken for the newer one's (#39318). *)
OrphanAnswer(r) ==
    /\ Scope = "rid"
    /\ state[r] \in Asking /\ op[r] = "asking" /\ orphanAsking[r]
    /\ Become(Missed(Unpin(EndOperation(World, r), r), r))

-----------------------------------------------------------------------------
(* Environment actions: clients, operators, other requests' use of the device.  Never fair. *)

(* Requests arrive in the order of the queue. *)
Enqueue(r) ==
    /\ state[r] = "absent" /\ (r > 0 => state[r - 1] # "absent")
    /\ Issue([World EXCEPT !.state[r] = "queued"], r)

(* A running request is sent back to the queue, as its next attempt. *)
Retract(r) ==
    /\ running[r]
    /\ Issue([World EXCEPT !.state[r] = "queued", !.running[r] = FALSE, !.attempt[r] = @ + 1,
                           !.issued[r] = FALSE, !.pin[r] = "unpinned",
                           !.asked[r] = IF ResetsBudget THEN 0 ELSE @], r)

(* The anchor is gone, so that a known hit has nothing to hang on. *)
LoseAnchor(r) ==
    /\ ~anchored /\ state[r] \in Undecided /\ (Found(r) \/ op[r] = "known")
    /\ Become(LostHit(Unpin(EndOperation(World, r), r), r))

(* A known hit is not worth fetching. *)
Revoke(r) ==
    \/ /\ state[r] \in Undecided /\ (Found(r) \/ op[r] = "known")
       /\ Become(Enter(Unpin(EndOperation(World, r), r), r, "queued"))
    \/ /\ state[r] = "loaded"
       /\ Become(Enter(Unpin(ReleaseHold(World, r), r), r, "queued"))

(* The stop policy ends the wait; `read` pages, never all of them, have arrived. *)
Cut(r) ==
    \/ /\ state[r] \in Undecided
       /\ Become(WasCut(Unpin(OrphanOperation(World, r), r), r))
    \/ /\ state[r] = "transferring"
       /\ \E read \in 0..pages[r] - 1 : Become(Enter(CutOperation(World, r, read), r, "loaded"))

(* The deadline has passed: like a cut, but a deadline is not a miss. *)
Expire(r) ==
    \/ /\ state[r] \in Undecided
       /\ Become(Enter(Unpin(OrphanOperation(World, r), r), r, "exhausted"))
    \/ /\ state[r] = "transferring"
       /\ \E read \in 0..pages[r] - 1 : Become(Enter(CutOperation(World, r, read), r, "loaded"))

(* The device base under a staged hold shrank, so that the hold no longer fits. *)
Shrink(r) ==
    /\ ~anchored
    /\ \/ /\ state[r] = "loaded"
          /\ LET dropped == Unpin(ReleaseHold(World, r), r)
             IN Become(IF RequeriesLostMatch THEN LostHit(dropped, r) ELSE Enter(dropped, r, "queued"))
       \* A part held while its tail is asked for again may lose its base too.
       \/ /\ state[r] \in {"queued", "missed", "pending", "exhausted"}
          /\ Become(ReleaseHold(World, r))

(* What every way out of the queue has to give back. *)
Release(w, r) == Unpin(ReleaseHold(OrphanOperation(LowerMarker(w, r), r), r), r)

Abort(r) ==
    /\ Queued(World, r)
    /\ LET w0 == IF AbortKeepsMarker THEN World ELSE LowerMarker(World, r)
           w1 == CASE AbortKeepsParked /\ op[r] = "known" -> w0
                   [] AbortLosesPages -> EndOperation(w0, r)
                   [] AbortFreesUnderIO /\ op[r] = "reading" -> FreePages(w0, r)
                   [] OTHER -> OrphanOperation(w0, r)
           w2 == CASE AbortKeepsHold -> w1
                   [] FreesHoldTwice -> GiveBack(ReleaseHold(w1, r), hold[r])
                   [] AbortKeepsOccupancy -> [ReleaseHold(w1, r) EXCEPT !.occupied = occupied]
                   [] OTHER -> ReleaseHold(w1, r)
           w3 == IF AbortKeepsPin THEN w2 ELSE Unpin(w2, r)
       IN Become(Enter(w3, r, "aborted"))

(* The request leaves through a door that upstream does not guard. *)
Abandon(r) ==
    /\ Queued(World, r)
    /\ Become(Enter(IF LeakyDoor THEN World ELSE Release(World, r), r, "aborted"))

(* The cache is reset under the queue. *)
RECURSIVE ReleaseFrom(_, _)
ReleaseFrom(w, r) ==
    IF r = NumRequests THEN w
    ELSE LET kept == CASE FlushFreesUnderIO /\ op[r] = "reading" ->
                            Enter(FreePages(Release([w EXCEPT !.op[r] = "none"], r), r), r, "queued")
                       [] FlushForgetsAnswer /\ w.state[r] \in Asking ->
                            Release(w, r)
                       [] OTHER -> Enter(Release(w, r), r, "queued")
         IN ReleaseFrom(IF Queued(w, r) THEN kept ELSE w, r + 1)

SomeQueued == \E r \in Requests : Queued(World, r)

(* What upstream refuses a flush and a detach for; in a pause, a flush ignores who only waits. *)
Busy == \E r \in Requests : running[r] \/ op[r] # "none" \/ hold[r] > 0 \/ filling[r] > 0

Flush ==
    /\ SomeQueued
    /\ CASE ResetsUnder = "queue" -> TRUE
         [] ResetsUnder = "pause" -> ~Busy
         [] OTHER                 -> FALSE
    /\ Become(ReleaseFrom(World, 0))

(* The storage backend is detached under the queue; an empty one is attached. *)
Detach ==
    /\ SomeQueued \/ stored # 0
    /\ ResetsUnder = "queue" \/ ~(Busy \/ SomeQueued)
    /\ Become([ReleaseFrom(World, 0) EXCEPT !.stored = 0])

(* The lease of a pin whose holder is gone has run out. *)
Lapse(r) == pin[r] = "pinned" /\ ~Queued(World, r) /\ Become(Unpin(World, r))

(* A write-back commits: storage has one more page of the chain. *)
Wack == stored < Chain /\ Become([World EXCEPT !.stored = @ + 1])

(* The anchor comes back to the device. *)
Insert == ~anchored /\ Become([World EXCEPT !.anchored = TRUE])

(* The anchor leaves the device, unless somebody pins it. *)
Evict ==
    /\ anchored
    /\ EvictsPinned \/ \A r \in Requests : pin[r] # "pinned"
    /\ Become([World EXCEPT
           !.anchored = FALSE,
           !.pin = [r \in Requests |-> IF state[r] # "absent" /\ @[r] \in {"unpinned", "capped"}
                                       THEN "lost" ELSE @[r]]])

-----------------------------------------------------------------------------
System ==
    \/ Tick
    \/ \E r \in Requests :
         \/ LoseMatch(r) \/ Admit(r) \/ Finish(r) \/ Filled(r) \/ Unpark(r) \/ Lapse(r)

Storage ==
    \E r \in Requests :
      \/ Hit(r) \/ Miss(r) \/ Done(r) \/ Fail(r) \/ OrphanEnd(r) \/ OrphanAnswer(r)

Environment ==
    \/ \E r \in Requests :
         \/ Enqueue(r) \/ Retract(r) \/ LoseAnchor(r) \/ Revoke(r) \/ Cut(r) \/ Expire(r)
         \/ Shrink(r) \/ Abort(r) \/ Abandon(r)
    \/ Flush \/ Detach \/ Wack \/ Insert \/ Evict

Next == System \/ Storage \/ Environment

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* Fairness, per action.  The scheduler goes on passing, admitting,        *)
(* draining and finishing; storage answers what it was asked.  Nothing     *)
(* else is owed: no write-back ever commits, no client ever gives up.      *)
(***************************************************************************)
SchedulerFairness ==
    /\ WF_vars(Tick)
    /\ \A r \in Requests :
         /\ WF_vars(Admit(r))
         /\ WF_vars(Finish(r))
         /\ WF_vars(Filled(r))
         /\ WF_vars(Unpark(r))

StorageFairness ==
    \A r \in Requests :
      /\ WF_vars(Hit(r) \/ Miss(r))
      /\ WF_vars(Done(r) \/ Fail(r))
      /\ WF_vars(OrphanEnd(r))

FairSpec == Spec /\ SchedulerFairness /\ StorageFairness

-----------------------------------------------------------------------------
(* Safety properties, by their ids in spec/invariants.toml. *)

Idle == \A r \in Requests : ~running[r]
Here(r) == Queued(World, r)

\* id: marker-owned.  SAFETY.  A marker belongs to a live, queued attempt: every exit lowers it,
\* and it is raised only for the attempt whose question resolved.
MarkerOwnedInv == \A r \in Requests : marker[r] # 0 => Here(r) /\ marker[r] = attempt[r] + 1

\* id: marker-once.  SAFETY.  One miss is served once: a queued request's marker is up exactly
\* in missed, since the sweep that serves it lowers it in the same step.
MarkerOnceInv == \A r \in Requests : Here(r) => (marker[r] # 0 <=> state[r] = "missed")

\* id: attempts-bounded.  SAFETY.  Every re-issue is guarded by the budget and spends one.
AttemptsBoundedInv == \A r \in Requests : asked[r] <= MaxAttempts

\* id: paced.  SAFETY, on steps.  At least Interval passes lie between a paced miss and its
\* re-issue by a pass: only a sweep re-issues it, only when due, and a pass sweeps once.
\* A lost match re-issues without waiting: that is a new reason to ask, not the old miss.
PacedProp ==
    [][ \A r \in Requests :
          (/\ state[r] \in {"missed", "pending"} /\ op'[r] = "asking"
           /\ since[r] < Interval /\ ~immediate[r]) => ~Tick ]_vars

\* id: one-in-flight.  SAFETY.  A queued attempt has a live operation exactly in the states that
\* wait for one, and it is as far as the state says; so none can be added to it.
OneInFlightInv ==
    \A r \in Requests : Here(r) =>
        op[r] = CASE state[r] \in Asking        -> "asking"
                  [] state[r] = "parked"       -> "known"
                  [] state[r] = "transferring" -> "reading"
                  [] OTHER                     -> "none"

\* id: one-in-flight.  SAFETY, on steps.  Nobody asks while an operation is live, and the answer
\* of an orphan leaves every attempt as it is, since answers are matched by operation.
OneInFlightProp ==
    [][ \A r \in Requests :
          /\ asked'[r] > asked[r] => op[r] = "none" \/ op'[r] # "asking"
          /\ OrphanEnd(r) \/ OrphanAnswer(r) => UNCHANGED state ]_vars

\* id: disabled-inert.  SAFETY.  Without retries no marker is raised and nothing is paced: all
\* of it is guarded by Arms, which is false then.
DisabledInertInv ==
    ~Retries => \A r \in Requests :
        marker[r] = 0 /\ waited[r] = 0 /\ state[r] \notin {"missed", "pending"}

\* id: pin-cap.  SAFETY.  A pin is taken only if the count with it still fits.
PinCapInv == pinned <= Cap

\* id: headroom.  SAFETY.  With nothing running, the largest request fits beside the pins of
\* the others: the cap leaves its demand outside.  HeadroomProp says what that is good for.
HeadroomInv == Idle => \A r \in Requests : Here(r) => FitsDevice(r)

\* id: pin-owned.  SAFETY.  Every pin has one live holder, is counted once, and keeps the anchor
\* on the device: every exit unpins, and an unpin takes off exactly what its own pin put on.
PinOwnedInv ==
    /\ pinned = Sum([r \in Requests |-> IF pin[r] = "pinned" THEN Anchors[r] ELSE 0])
    /\ \A r \in Requests : pin[r] = "pinned" => Here(r) /\ anchored

\* id: no-residue.  SAFETY.  What is over holds no marker, pin, operation, page or hold: every
\* edge out of the queue carries the releases.  What I/O still touches is the orphan's.
NoResidueInv ==
    \A r \in Requests : state[r] \in Over =>
        marker[r] = 0 /\ pin[r] # "pinned" /\ op[r] = "none" /\ pages[r] = 0 /\ hold[r] = 0

(* Host pages that the live read of a request owns. *)
Read(r) == IF op[r] = "reading" THEN pages[r] ELSE 0
Owned   == Sum([r \in Requests |-> Read(r) + hold[r] + filling[r] + orphanPages[r]])

\* id: conservation.  SAFETY.  Free and owned host pages make the pool, owned pages are charged,
\* and storage writes into owned pages only: an orphan keeps its pages until its last answer.
ConservationInv ==
    /\ hostFree + Owned = Host /\ hostFree >= 0
    /\ occupied = Owned
    /\ \A r \in Requests : io[r] <= Read(r) + orphanPages[r]

\* id: asked-armed.  SAFETY.  A marker is up only for an attempt that issued a question: a
\* decline arms nothing (#40042).
AskedArmedInv == \A r \in Requests : marker[r] # 0 => issued[r]

-----------------------------------------------------------------------------
(* Refinement: each attempt lives the life that spec/prefetch.toml describes. *)

Lifecycle == INSTANCE PrefetchLifecycle

ASSUME States = Lifecycle!States /\ Over = Lifecycle!Terminal

(* From which state to which some edge leads. *)
Moves == {<<e[1], e[3]>> : e \in Lifecycle!Edges}

(* A new attempt is queued and asks in one step. *)
Begins(r) ==
    /\ state[r] = "absent" \/ attempt'[r] = attempt[r] + 1
    /\ \/ state'[r] = Lifecycle!Initial
       \/ <<Lifecycle!Initial, "issue", state'[r]>> \in Lifecycle!Edges

\* SAFETY, on steps.  Whatever happens, each attempt moves along an edge of the lifecycle, and
\* a terminal state is left only by a new attempt.
LifecycleProp ==
    [][ \A r \in Requests :
          \/ state'[r] = state[r]
          \/ Begins(r)
          \/ <<state[r], state'[r]>> \in Moves ]_vars

Takes(event, r) == <<state[r], event, state'[r]>> \in Lifecycle!Edges

\* SAFETY, on steps.  The edge is one of the event that happens.  Dearer than LifecycleProp,
\* since it looks up the action of each step.
LifecycleEventsProp ==
    [][ /\ \A r \in Requests :
             /\ Hit(r)        => Takes("hit", r)
             /\ Miss(r)       => Takes("miss", r)
             /\ LoseAnchor(r) => Takes("lose_anchor", r)
             /\ Revoke(r)     => Takes("revoke", r)
             /\ Unpark(r)     => Takes("unpark", r)
             /\ Done(r)       => Takes("done", r)
             /\ Fail(r)       => Takes("fail", r)
             /\ Cut(r)        => Takes("cut", r)
             /\ Expire(r)     => Takes("expire", r)
             /\ LoseMatch(r)  => Takes("lose_match", r)
             /\ Shrink(r)     => Takes("shrink", r)
             /\ Admit(r)      => Takes("admit", r)
             /\ Abort(r)      => Takes("abort", r)
             /\ Abandon(r)    => Takes("abandon", r)
        /\ Tick   => \A r \in Requests : state[r] \in {"missed", "pending"} => Takes("sweep", r)
        /\ Flush  => \A r \in Requests : Here(r) => Takes("flush", r)
        /\ Detach => \A r \in Requests : Here(r) => Takes("detach", r)
      ]_vars

-----------------------------------------------------------------------------
(* Liveness properties, under FairSpec. *)

\* id: progress.  LIVENESS.  Every queued request is eventually admitted or leaves: the budget
\* bounds its questions, storage answers them, and the scan reaches it once those before it ran.
ProgressProp == \A r \in Requests : Here(r) ~> ~Here(r)

\* id: progress.  LIVENESS.  Every armed marker is eventually served or dropped: by the next
\* sweep at the latest.
MarkerServedProp == \A r \in Requests : marker[r] # 0 ~> marker[r] = 0

\* id: progress.  LIVENESS.  Every orphan ends: storage answers even what nobody waits for.
OrphansEndProp == \A r \in Requests : Orphaned(r) ~> ~Orphaned(r)

\* id: headroom.  LIVENESS.  Never wedged: with nothing running and somebody queued, somebody
\* runs eventually, or all leave.
HeadroomProp == Idle /\ SomeQueued ~> ~Idle \/ ~SomeQueued

-----------------------------------------------------------------------------
(* Witnesses: deliberately false, so that a counterexample shows the state to be reachable. *)

DebugNeverRetriesInv  == \A r \in Requests : state[r] # "retrying"
DebugNeverParksInv    == \A r \in Requests : state[r] # "parked"
DebugNeverLoadsInv    == \A r \in Requests : state[r] # "loaded"
DebugNeverExpiresInv  == \A r \in Requests : state[r] # "exhausted"
DebugNeverOrphansInv  == \A r \in Requests : orphanPages[r] = 0

\* A retried question can find what the first one missed: the point of it all (#36227).
DebugRetryIsVainInv   == \A r \in Requests : ~(state[r] = "loaded" /\ asked[r] > 0 /\ hold[r] = Chain)

=============================================================================
