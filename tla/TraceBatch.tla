----------------------------- MODULE TraceBatch -----------------------------
(***************************************************************************)
(* Trace validation: event logs of live engines (docs/event-log.md) held   *)
(* up to the tables, many logs in one run.                                 *)
(*                                                                         *)
(* TraceData is generated: Rows are those of spec/prefetch.toml, Logs the  *)
(* events of each log beside the constants of its profile.  Each log is a  *)
(* behaviour of its own, chosen by tr; l is the next event.  What an event *)
(* leads to is determined by what the log says, so a log is accepted if    *)
(* its behaviour gets past the last event, and rejected at the first event *)
(* that breaks a rule.  Both are printed, since one run is to judge all:   *)
(*     <<"accepted", tr>>   <<"rejected", tr, l, rules>>                    *)
(* A rule is named by the invariant of spec/invariants.toml that it serves,*)
(* or by "legal", "guard", "facts", "attempt", "order", "threshold".       *)
(***************************************************************************)
EXTENDS Naturals, Integers, Sequences, FiniteSets, TLC, TraceData

VARIABLE
    tr    \* Which log this behaviour follows.
VARIABLE
    l     \* The next event, from 1; 0 once the log is rejected.
VARIABLE
    \* What the events so far have led to: see Start.
    world

vars == <<tr, l, world>>

-----------------------------------------------------------------------------
Waiting  == {"queued", "probing", "missed", "pending", "retrying", "parked",
             "transferring", "loaded", "exhausted"}
Over     == {"scheduled", "aborted"}
InFlight == {"probing", "retrying", "parked", "transferring"}
Armed    == {"missed", "pending"}

(***************************************************************************)
(* An attempt that no event has begun.  An attempt is lost once something  *)
(* happened to it that its profile is known for and no table describes: an *)
(* orphan's answer was taken for its own (#39318), or it was queued again  *)
(* with the marker of its last attempt.  It is only watched for its end,   *)
(* and its operations are doubtful.                                        *)
(***************************************************************************)
Absent ==
    [state |-> "absent", op |-> 0, spent |-> 0, sweptAt |-> 0, marker |-> FALSE, immediate |-> FALSE,
     asked |-> FALSE, tail |-> FALSE, hold |-> FALSE, running |-> FALSE, lost |-> FALSE, pins |-> FALSE, pinTokens |-> 0]

(* Attempts and request ids are numbered by the generator; newest has 0 where an id was never queued. *)
Start(log) ==
    [pass |-> 0, lastOp |-> 0, pinned |-> 0, orphans |-> {}, doubtful |-> {}, ended |-> {},
     attempts |-> [a \in 1..log.attempts |-> Absent],
     newest   |-> [r \in 1..log.rids |-> 0],
     writes   |-> [pool \in log.pools |-> 0]]

Init == tr \in 1..Len(Logs) /\ l = 1 /\ world = Start(Logs[tr])

(* What an event leads to: the rules that it breaks, and the world after it. *)
To(broken, w) == [broken |-> broken, world |-> w]
If(broken, rule) == IF broken THEN {rule} ELSE {}

-----------------------------------------------------------------------------
(* Guards, as far as the profile, the attempt and the event tell: "yes", "no" or "unsaid". *)

Arms(c) == ~c.dense /\ (c.interval > 0 \/ c.marks_when_disabled)

Truth(c, w, x, e, guard) ==
    LET said(value) == IF value THEN "yes" ELSE "no"
    IN CASE guard = "arms"           -> said(Arms(c))
         [] guard = "arms_unasked"   ->
              IF ~Arms(c) THEN "no"
              ELSE IF e.why = "" THEN IF c.arms_limited = c.arms_too_short THEN said(c.arms_limited) ELSE "unsaid"
              ELSE said(IF e.why = "too_short" THEN c.arms_too_short ELSE c.arms_limited)
         [] guard = "arms_cut"       -> said(Arms(c) /\ c.arms_cut)
         [] guard = "arms_shrunk"    -> said(Arms(c) /\ c.requeries_lost_match)
         [] guard = "paces"          -> said(~c.dense /\ c.interval > 0)
         [] guard = "parks"          -> said(c.parks /\ c.buffer)
         [] guard = "parks_pinned"   -> said(c.parks_pinned)
         [] guard = "retries_failed" -> said(c.retries_failed /\ Arms(c))
         [] guard = "leaky_door"     -> said(c.leaky_door)
         [] guard = "asks_tail"      -> said(x.tail /\ c.requeries_tail /\ Arms(c) /\ x.spent < c.max_attempts)
         [] guard = "budget_left"    -> said(x.spent < c.max_attempts)
         [] guard = "due"            -> said(e.pass - x.sweptAt >= c.interval)
         [] guard = "immediate"      -> said(x.immediate)
         [] guard \in e.yes          -> "yes"
         [] guard \in e.no           -> "no"
         [] OTHER                    -> "unsaid"

MayTake(c, w, x, e, row) ==
    /\ row.source = x.state /\ row.event = e.event
    /\ \A guard \in row.yes : Truth(c, w, x, e, guard) # "no"
    /\ \A guard \in row.no  : Truth(c, w, x, e, guard) # "yes"

(* The row that an event takes: a question that went out tells rows apart that facts do not. *)
Asks(w, e) == e.op > w.lastOp

Open(c, w, x, e) ==
    LET may == {row \in Rows : MayTake(c, w, x, e, row)}
    IN IF Cardinality(may) > 1
       THEN {row \in may : ("ask" \in row.effects) <=> Asks(w, e)}
       ELSE may

(* Which rule is broken if no row, or more than one, is open. *)
Blocked(c, w, x, e, open) ==
    LET rows      == {row \in Rows : row.source = x.state /\ row.event = e.event}
        asking    == {row \in rows : "ask" \in row.effects}
        blames(g) == \E row \in IF Asks(w, e) THEN asking ELSE rows :
                       \/ g \in row.yes /\ Truth(c, w, x, e, g) = "no"
                       \/ g \in row.no  /\ Truth(c, w, x, e, g) = "yes"
    IN IF rows = {} THEN {"legal"}
       ELSE IF Cardinality(open) > 1 THEN {"facts"}
       ELSE IF open # {} /\ ~(Asks(w, e) /\ \A row \in open : "ask" \notin row.effects) THEN {}
       ELSE LET why == If(blames("due"), "paced") \cup If(blames("budget_left"), "attempts-bounded")
                       \cup If(blames("arms"), "disabled-inert") \cup If(blames("arms_unasked"), "asked-armed")
            IN IF why # {} THEN why ELSE IF Asks(w, e) /\ asking = {} THEN {"one-in-flight"} ELSE {"guard"}

-----------------------------------------------------------------------------
(* Effects of a row on what is known of its attempt. *)
Apply(c, x, e, row) ==
    LET does(effect) == effect \in row.effects
        raises == does("raise_marker") \/ does("raise_immediate")
        frees  == \E effect \in {"stage_hold", "cut_operation", "end_operation", "free_pages", "orphan_operation"} :
                    does(effect)
    IN [x EXCEPT
          !.state     = row.dest,
          !.running   = row.dest = "scheduled",
          !.op        = IF does("ask") THEN e.op ELSE IF frees THEN 0 ELSE @,
          !.asked     = @ \/ does("ask"),
          !.marker    = raises \/ (@ /\ ~does("lower_marker")),
          !.immediate = IF raises THEN does("raise_immediate") /\ c.immediate_known_hit ELSE @ /\ ~does("ask"),
          !.tail      = IF does("take_pages") THEN e.tokens < e.wanted ELSE @ /\ ~does("ask"),
          !.sweptAt   = IF does("start_wait") THEN e.pass ELSE @,
          !.spent     = @ + (IF does("spend") \/ (does("spend_unasked") /\ c.spends_unasked) THEN 1 ELSE 0),
          !.hold      = IF does("stage_hold") THEN TRUE
                        ELSE IF does("cut_operation") THEN @ \/ e.tokens > 0
                        ELSE @ /\ ~does("consume_hold") /\ ~does("release_hold")]

(* What the writer saw in the engine, held against what the tables say; it may have seen less. *)
Sees(e, name, value) == name \in DOMAIN e.seen => e.seen[name] = value

Observed(c, w, x, e) ==
    LET over == x.state \in Over
    IN If(~Sees(e, "entry", x.state \in InFlight), IF over THEN "no-residue" ELSE "one-in-flight")
       \cup If(~Sees(e, "armed", x.state \in Armed), IF over THEN "marker-owned" ELSE "marker-once")
       \cup If(~Sees(e, "spent", x.spent), "attempts-bounded")
       \cup If(~Sees(e, "parked", x.state = "parked"), "no-residue")
       \cup If(c.buffer /\ ~Sees(e, "hold", x.hold), "no-residue")
       \cup If(~Sees(e, "pinned_tokens", w.pinned), "pin-owned")
       \cup If(x.marker /\ x.state # "missed", "marker-once")
       \cup If(x.marker /\ ~x.asked /\ "asked-armed" \notin c.findings, "asked-armed")
       \cup If(x.state \in Armed /\ ~Arms(c), "disabled-inert")

-----------------------------------------------------------------------------
(* The machines. *)

Lose(w, a) == [w EXCEPT !.attempts[a].lost = TRUE, !.doubtful = @ \cup {w.attempts[a].op}]

Enqueue(c, w, e) ==
    LET before  == w.newest[e.rid]
        old     == IF before = 0 THEN Absent ELSE w.attempts[before]
        number  == IF before = 0 THEN 0 ELSE c.numbers[before] + 1
        renewed == c.resets_budget /\ (c.scope = "attempt" \/ e.again = "retracted")
        x       == [Absent EXCEPT !.state = "queued",
                                  !.spent = IF before # 0 /\ e.again # "" /\ ~renewed THEN old.spent ELSE 0]
        after   == [w EXCEPT !.attempts[e.who] = x, !.newest[e.rid] = e.who]
        broken  == If(c.numbers[e.who] # number \/ (old.state \in Waiting /\ ~old.lost), "attempt") \cup Observed(c, w, x, e)
        armed   == broken = {"marker-once"} /\ e.again # "" /\ "marker-once" \in c.findings
    IN IF armed THEN To({}, Lose(after, e.who)) ELSE To(broken, after)

LeaveBatch(c, w, e) ==
    LET x == [w.attempts[e.who] EXCEPT !.running = FALSE]
    IN To(IF x.lost THEN {} ELSE If(~w.attempts[e.who].running, "legal") \cup Observed(c, w, x, e),
          [w EXCEPT !.attempts[e.who] = x])

Lost(w, e) ==
    LET over == e.event \in {"admit", "abort", "abandon"}
        x    == w.attempts[e.who]
    IN To({}, [w EXCEPT
          !.attempts[e.who] = IF ~over THEN x
                              ELSE [x EXCEPT !.state   = IF e.event = "admit" THEN "scheduled" ELSE "aborted",
                                             !.running = e.event = "admit"],
          !.doubtful = @ \cup {e.op},
          !.lastOp   = IF e.op > @ THEN e.op ELSE @])

Step(c, w, e) ==
    LET x       == w.attempts[e.who]
        open    == Open(c, w, x, e)
        blocked == Blocked(c, w, x, e, open)
    IN IF blocked # {} THEN To(blocked, w)
       ELSE LET row  == CHOOSE row \in open : TRUE
                asks == "ask" \in row.effects
                y    == Apply(c, x, e, row)
                out  == row.effects \cap {"cut_operation", "orphan_operation"} # {} /\ x.op # 0
                v    == [w EXCEPT !.attempts[e.who] = y,
                                  !.lastOp  = IF e.op > @ THEN e.op ELSE @,
                                  !.orphans = IF out THEN @ \cup {x.op} ELSE @,
                                  !.ended   = IF y.state \in Over THEN @ \cup {e.who} ELSE @]
            IN To(If(asks /\ (e.op # w.lastOp + 1 \/ x.op # 0), "one-in-flight")
                  \cup If(~asks /\ e.op # 0 /\ e.op # x.op /\ e.event \in {"hit", "miss", "unpark", "done", "fail"},
                          "one-in-flight")
                  \cup If(e.event = "hit" /\ e.tokens < c.threshold, "threshold")
                  \cup Observed(c, v, y, e), v)

Prefetch(c, w, e) ==
    CASE e.event = "enqueue"                -> Enqueue(c, w, e)
      [] w.newest[e.rid] = 0                -> To({"attempt"}, w)
      [] w.newest[e.rid] # e.who            -> To({"one-in-flight"}, w)
      [] e.event \in {"retract", "finish"}  -> LeaveBatch(c, w, e)
      [] w.attempts[e.who].lost             -> Lost(w, e)
      [] OTHER                              -> Step(c, w, e)

Operation(c, w, e) ==
    LET left == [w EXCEPT !.orphans = @ \ {e.op}]
    IN IF e.event = "end" THEN To(If(e.op \notin w.orphans \cup w.doubtful, "one-in-flight"), left)
       ELSE To(If("one-in-flight" \notin c.findings, "one-in-flight"),
               IF w.newest[e.rid] = 0 THEN left ELSE Lose(left, w.newest[e.rid]))

Pin(c, w, e) ==
    LET x     == w.attempts[e.who]
        taken == [w EXCEPT !.attempts[e.who].pins = TRUE, !.attempts[e.who].pinTokens = e.tokens,
                           !.pinned = @ + e.tokens]
        given == [w EXCEPT !.attempts[e.who].pins = FALSE, !.attempts[e.who].pinTokens = 0,
                           !.pinned = @ - x.pinTokens]
        seen(v) == If(~Sees(e, "pinned_tokens", v.pinned), "pin-owned")
    IN IF e.who = 0 \/ w.newest[e.rid] # e.who THEN To({"pin-owned"}, w)
       ELSE CASE e.event # "pin"     -> To(If(~x.pins \/ e.tokens # x.pinTokens, "pin-owned") \cup seen(given), given)
              [] e.why = "locked"    -> To(If(x.pins \/ x.state \in Over, "pin-owned")
                                           \cup If(c.cap >= 0 /\ taken.pinned > c.cap, "pin-cap") \cup seen(taken), taken)
              [] e.why = "held"      -> To(If(~x.pins \/ x.state \in Over, "pin-owned") \cup seen(w), w)
              [] OTHER               -> To(If(x.pins, "pin-owned") \cup seen(w), w)

Belief(c, w, e) ==
    CASE e.event = "write" -> To({}, [w EXCEPT !.writes[e.pool] = @ + e.pages])
      [] e.event \in {"stored", "write_failed"} ->
           To(If(w.writes[e.pool] < e.pages, "belief-evidence"), [w EXCEPT !.writes[e.pool] = @ - e.pages])
      [] e.event = "discard" -> To(If(e.keep \notin 0..e.pages, "belief-evidence"), w)
      [] OTHER -> To({}, w)

(* The end of a log that its writer closed while the engine was idle: nothing is left of anybody. *)
Trailer(c, w, e) ==
    To(If(e.residue # {}, "no-residue")
       \cup If(\E a \in DOMAIN w.attempts : w.attempts[a].state \in Waiting /\ ~w.attempts[a].lost, "progress"), w)

-----------------------------------------------------------------------------
(* With a new pass, what ended in the last one has let go of its pin. *)
Settled(w, e) ==
    LET leaks == \E a \in w.ended : w.attempts[a].pins
    IN CASE e.pass < w.pass -> To({"order"}, w)
         [] e.pass > w.pass -> To(If(leaks, "pin-owned"), [w EXCEPT !.pass = e.pass, !.ended = {}])
         [] OTHER           -> To(If(leaks /\ e.machine = "trailer", "pin-owned"), w)

Judged(c, w, e) ==
    LET s == Settled(w, e)
        j == CASE e.machine = "prefetch"  -> Prefetch(c, s.world, e)
               [] e.machine = "operation" -> Operation(c, s.world, e)
               [] e.machine = "pin"       -> Pin(c, s.world, e)
               [] e.machine = "belief"    -> Belief(c, s.world, e)
               [] e.machine = "trailer"   -> Trailer(c, s.world, e)
               [] OTHER                   -> To({}, s.world)
    IN IF s.broken # {} THEN s ELSE j

Read ==
    /\ l \in 1..Len(Logs[tr].events)
    /\ LET result == Judged(Logs[tr], world, Logs[tr].events[l])
       IN IF result.broken = {}
          THEN l' = l + 1 /\ world' = result.world
          ELSE PrintT(<<"rejected", tr, l, result.broken>>) /\ l' = 0 /\ UNCHANGED world
    /\ UNCHANGED tr

Accept ==
    /\ l = Len(Logs[tr].events) + 1
    /\ PrintT(<<"accepted", tr>>)
    /\ l' = l + 1 /\ UNCHANGED <<tr, world>>

Next == Read \/ Accept

Spec == Init /\ [][Next]_vars

\* id: trace-followed.  SAFETY.  No log breaks a rule.  Only for a run that is to stop at the first that does.
FollowedInv == l # 0

=============================================================================
