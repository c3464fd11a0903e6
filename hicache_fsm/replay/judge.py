"""Judges an event log, line by line, against the machines: what a live engine did, held up to the spec."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hicache_fsm.replay.guards import Moment, Setting, failing, truth
from hicache_fsm.replay.tracked import ARMED, IN_FLIGHT, Tracked
from hicache_fsm.replay.verdict import Verdict, Violation
from hicache_fsm.runtime.logread import Line, LogError
from hicache_fsm.spec import Constants, Profile, Spec, Transition, set_constant

RULE_OF_GUARD: Mapping[str, str] = {
    "due": "paced",
    "budget_left": "attempts-bounded",
    "arms": "disabled-inert",
    "arms_unasked": "asked-armed",
}
OP_EVENTS = frozenset({"hit", "miss", "unpark", "done", "fail"})
COUNTED: Mapping[str, str] = {
    "miss": "misses",
    "done": "loads",
    "abort": "aborts",
    "abandon": "aborts",
    "retract": "retractions",
    "evict": "evictions",
    "enqueue": "attempts",
    "admit": "admissions",
}


class Judge:
    """Follows one log: built from its header, fed every following line in order, then closed.

    Raises LogError for a header that names an unknown profile or constant.
    """

    def __init__(self, spec: Spec, header: Line, path: str) -> None:
        profile, constants = _profile(spec, header, path)
        self._spec = spec
        self._prefetch = spec.machines["prefetch"]
        self._pin = spec.machines["pin"]
        self._setting = Setting(constants, str(header.data.get("mode", "buffer_only")))
        self._threshold = int(header.data.get("threshold_tokens", 1))
        self._cap = header.data.get("pin_cap_tokens")
        self._findings = {f.invariant for f in profile.findings}
        self._latest: dict[str, Tracked] = {}
        self._orphans: dict[int, Tracked] = {}
        self._previous: Tracked | None = None
        self._ended: list[Tracked] = []
        self._doubtful: set[int] = set()
        self._writes: dict[str, int] = {}
        self._last_op = self._previous_op = 0
        self._pinned = 0
        self._pass = 0
        self.verdict = Verdict(
            path=path,
            source=str(header.data.get("source", "")),
            version=str(header.data.get("version", "")),
            profile=profile.name,
            mode=self._setting.mode,
        )

    def feed(self, line: Line) -> None:
        """Judge one line; what it breaks is added to the verdict."""
        if line.kind == "trailer":
            self._trailer(line)
            return
        if line.pass_ < self._pass:
            message = f"pass {line.pass_} after pass {self._pass}: passes never decrease"
            self._break(line, "order", message, self._latest.get(line.rid, self._previous))
        elif line.pass_ > self._pass:
            self._settle(line)
            self._pass = line.pass_
        if line.data.get("illegal"):
            self.verdict.counts["refused events"] += 1
            return
        self.verdict.events += 1
        self.verdict.passes = max(self.verdict.passes, line.pass_ + 1)
        if line.event in COUNTED:
            self.verdict.counts[COUNTED[line.event]] += 1
        handler = self._handlers().get(line.machine)
        if handler is not None:
            handler(line)
        self._previous = self._latest.get(line.rid, self._previous)

    def close(self) -> Verdict:
        """The verdict; states no attempt was in are named with the rows that would have led there."""
        for state in self._prefetch.states:
            if not self.verdict.states[state]:
                ways: dict[str, list[str]] = {}
                for row in self._prefetch.transitions:
                    if row.dest == state != row.source:
                        ways.setdefault(_shown(row), []).append(row.source)
                shown = [f"{event} in {_states(sources)}" for event, sources in ways.items()]
                self.verdict.not_reached[state] = "needs " + ", or ".join(shown)
        return self.verdict

    def _handlers(self) -> Mapping[str, Callable[[Line], None]]:
        return {
            "prefetch": self._prefetch_line,
            "operation": self._operation_line,
            "pin": self._pin_line,
            "belief": self._belief_line,
        }

    def _prefetch_line(self, line: Line) -> None:
        if line.event == "enqueue":
            self._enqueue(line)
            return
        attempt = self._find(line)
        if attempt is None:
            return
        if line.event in ("retract", "finish"):
            self._leave_batch(line, attempt)
            return
        if attempt.lost:
            self._follow_lost(line, attempt)
            return
        row = self._decide(line, attempt)
        if row is None or not self._operation_fits(line, attempt, row):
            self._lose(attempt)
            return
        attempt.note(line.number, line.pass_, line.event, row.dest)
        for effect in row.effects:
            self._apply(effect, attempt, line)
        attempt.state = row.dest
        attempt.running = row.dest == "scheduled"
        self.verdict.states[row.dest] += 1
        self.verdict.edges[row.source, row.event, row.dest] += 1
        if row.dest in self._prefetch.terminal:
            self._ended.append(attempt)
        self._compare(line, attempt)

    def _lose(self, attempt: Tracked) -> None:
        """Give up following an attempt whose state is no longer known, and its operations."""
        attempt.lost = True
        self._doubtful.add(attempt.op)

    def _follow_lost(self, line: Line, attempt: Tracked) -> None:
        """Keep only what later attempts depend on: the numbering of operations, and the attempt's end."""
        self._doubtful.add(line.op)
        self._last_op = max(self._last_op, line.op)
        if line.event in ("admit", "abort", "abandon"):
            attempt.state = "scheduled" if line.event == "admit" else "aborted"
            attempt.running = line.event == "admit"

    def _enqueue(self, line: Line) -> None:
        before = self._latest.get(line.rid)
        expected = 0 if before is None else before.attempt + 1
        again = bool(line.data.get("again"))
        attempt = Tracked(line.rid, line.attempt, self._prefetch.initial, line.pass_, again=again)
        if line.attempt != expected:
            self._break(
                line, "attempt", f"{attempt.name} follows attempt {expected - 1}, expected {expected}", before
            )
        elif before is not None and before.state not in self._prefetch.terminal and not before.lost:
            self._break(
                line, "attempt", f"{before.name} is still {before.state} when {attempt.name} begins", before
            )
        renewed = self._setting.constants.renews_budget(line.data.get("again", ""))
        if before is not None and again and not renewed:
            # of one that is followed no more, only the engine knows what it spent
            attempt.spent = line.seen.get("spent", before.spent) if before.lost else before.spent
        attempt.history.append(f"line {line.number}  pass {line.pass_}  enqueue: -> {attempt.state}")
        self._latest[line.rid] = attempt
        self.verdict.states[attempt.state] += 1
        self._compare(line, attempt)

    def _leave_batch(self, line: Line, attempt: Tracked) -> None:
        if not attempt.running and not attempt.lost:
            self._break(
                line, "legal", f"{attempt.name} is {attempt.state}, not running: `{line.event}`", attempt
            )
        attempt.running = False
        attempt.history.append(f"line {line.number}  pass {line.pass_}  {line.event}")
        if not attempt.lost:
            self._compare(line, attempt)

    def _find(self, line: Line) -> Tracked | None:
        attempt = self._latest.get(line.rid)
        if attempt is None:
            self._break(line, "attempt", f"{line.rid} was never queued: `{line.event}`")
            return None
        if attempt.attempt != line.attempt:
            message = f"`{line.event}` for {line.rid}#{line.attempt}, but {attempt.name} is the one alive"
            self._break(line, "one-in-flight", message, attempt)
            return None
        return attempt

    def _decide(self, line: Line, attempt: Tracked) -> Transition | None:
        rows = list(self._prefetch.rows(attempt.state, line.event))
        if not rows:
            legal = sorted({t.event for t in self._prefetch.transitions if t.source == attempt.state})
            message = (
                f"`{line.event}` is not legal in {attempt.state}; legal: {', '.join(legal) or 'nothing'}"
            )
            self._break(line, "legal", message, attempt)
            return None
        moment = Moment(self._setting, attempt, line.pass_, line.facts, line.why)
        asks = line.op > self._last_op
        self._previous_op, self._last_op = self._last_op, max(self._last_op, line.op)
        open_rows = [row for row in rows if failing(row, moment) is None]
        fitting = (
            [row for row in open_rows if ("ask" in row.effects) == asks] if len(open_rows) > 1 else open_rows
        )
        if asks and not any("ask" in row.effects for row in fitting):
            self._refused_question(line, attempt, rows, moment)
            return None
        if len(fitting) == 1:
            return fitting[0]
        if not fitting:
            blocked = [(row, failing(row, moment)) for row in rows]
            literal = next(f for _, f in blocked if f is not None)
            message = f"no row of `{line.event}` in {attempt.state} is enabled: {literal} is false"
            self._break(line, RULE_OF_GUARD.get(literal.guard, "guard"), message, attempt)
            return None
        unknown = sorted({x.guard for row in fitting for x in row.guard if truth(x, moment) is None})
        self._break(line, "facts", f"`{line.event}` must carry the facts {', '.join(unknown)}", attempt)
        return None

    def _refused_question(self, line: Line, attempt: Tracked, rows: list[Transition], moment: Moment) -> None:
        """A question went out although no row that asks is enabled: name the rule that forbids it."""
        for row in rows:
            literal = failing(row, moment)
            if "ask" in row.effects and literal is not None:
                message = f"question {line.op} went out by `{line.event}` although {literal} is false"
                self._break(line, RULE_OF_GUARD.get(literal.guard, "guard"), message, attempt)
                return
        self._break(
            line, "one-in-flight", f"question {line.op} went out by `{line.event}`, which asks none", attempt
        )

    def _operation_fits(self, line: Line, attempt: Tracked, row: Transition) -> bool:
        if "ask" in row.effects:
            if line.op != self._previous_op + 1:
                message = f"question {line.op} after question {self._previous_op}"
                self._break(line, "one-in-flight", message, attempt)
                return False
            if attempt.op:
                self._break(line, "one-in-flight", f"question {attempt.op} is still alive", attempt)
                return False
            return True
        if line.op and line.event in OP_EVENTS and line.op != attempt.op:
            whose = self._orphans.get(line.op)
            owner = f"the orphan of {whose.name}" if whose else "no live operation"
            self._break(line, "one-in-flight", f"operation {line.op} is {owner}, not {attempt.op}", attempt)
            return False
        if line.event == "hit" and line.tokens < self._threshold:
            self._break(
                line, "threshold", f"hit of {line.tokens} tokens, threshold {self._threshold}", attempt
            )
            return False
        return True

    def _apply(self, effect: str, attempt: Tracked, line: Line) -> None:
        constants = self._setting.constants
        match effect:
            case "ask":
                attempt.op = line.op
                attempt.asked, attempt.immediate, attempt.tail = True, False, False
                self.verdict.counts["questions"] += 1
                if line.event != "issue":
                    self.verdict.counts["retries"] += 1
            case "raise_marker" | "raise_immediate":
                attempt.marker = True
                attempt.missed_at = line.pass_
                attempt.immediate = effect == "raise_immediate" and constants.immediate_known_hit
                if attempt.attempt != self._latest[attempt.rid].attempt:
                    self._break(
                        line, "marker-owned", f"marker raised for {attempt.name}, which is gone", attempt
                    )
            case "lower_marker":
                attempt.marker = False
            case "start_wait":
                attempt.swept_at = line.pass_
            case "spend":
                attempt.spent += 1
            case "spend_unasked":
                attempt.spent += constants.spends_unasked
            case "take_pages":
                attempt.tail = line.tokens < int(line.data.get("wanted_tokens", line.tokens))
            case "stage_hold":
                attempt.op, attempt.hold = 0, True
            case "cut_operation":
                self._orphan(attempt)
                attempt.hold = attempt.hold or line.tokens > 0
            case "end_operation" | "free_pages":
                attempt.op = 0
            case "orphan_operation":
                self._orphan(attempt)
            case "consume_hold" | "release_hold":
                attempt.hold = False

    def _orphan(self, attempt: Tracked) -> None:
        if attempt.op:
            self._orphans[attempt.op] = attempt
            attempt.op = 0

    def _compare(self, line: Line, attempt: Tracked) -> None:
        """Hold what the writer saw in the engine against what the machines say."""
        over = attempt.state in self._prefetch.terminal
        expected: dict[str, tuple[object, str]] = {
            "entry": (attempt.state in IN_FLIGHT, "no-residue" if over else "one-in-flight"),
            "armed": (attempt.state in ARMED, "marker-owned" if over else "marker-once"),
            "spent": (attempt.spent, "attempts-bounded"),
            "parked": (attempt.state == "parked", "no-residue"),
        }
        if self._setting.mode == "buffer_only":
            expected["hold"] = (attempt.hold, "no-residue")
        for name, (value, rule) in expected.items():
            if name in line.seen and line.seen[name] != value:
                where = f"{attempt.name} in {attempt.state}"
                message = f"{where}: {name} should be {value}, the engine has {line.seen[name]}"
                self._break(
                    line,
                    rule,
                    message,
                    attempt,
                    known=name == "armed" and attempt.again and line.event == "enqueue",
                )
                self._lose(attempt)
        if attempt.marker and attempt.state != "missed":
            self._break(line, "marker-once", f"{attempt.name} in {attempt.state} with its marker up", attempt)
        if attempt.marker and not attempt.asked:
            self._break(
                line, "asked-armed", f"{attempt.name} is armed but has asked nothing", attempt, known=True
            )
        if self._setting.constants.arms is False and attempt.state in ARMED:
            self._break(line, "disabled-inert", f"{attempt.name} is armed although retries are off", attempt)
        self._compare_pins(line, attempt)

    def _operation_line(self, line: Line) -> None:
        if line.event == "end":
            if self._orphans.pop(line.op, None) is None and line.op not in self._doubtful:
                self._break(line, "one-in-flight", f"operation {line.op} ends as an orphan but is none")
            return
        victim = self._latest.get(line.rid)
        self._orphans.pop(line.op, None)
        message = f"the late answer of operation {line.op} was taken for the newer question of {line.rid}"
        self._break(line, "one-in-flight", message, victim, known=True)
        if victim is not None:
            self._lose(victim)

    def _pin_line(self, line: Line) -> None:
        attempt = self._latest.get(line.rid)
        if attempt is None or attempt.attempt != line.attempt:
            self._break(
                line,
                "pin-owned",
                f"`{line.event}` for {line.rid}#{line.attempt}, which is not alive",
                attempt,
            )
            return
        if line.event == "pin":
            self._pin_taken(line, attempt)
        elif attempt.pin == "pinned":
            if line.tokens != attempt.pin_tokens:
                message = f"{attempt.name} gives {line.tokens} tokens back, but pinned {attempt.pin_tokens}"
                self._break(line, "pin-owned", message, attempt)
            self._pinned -= attempt.pin_tokens
            attempt.pin, attempt.pin_tokens = "unpinned", 0
        else:
            self._break(line, "pin-owned", f"{attempt.name} releases a pin that it does not hold", attempt)
        attempt.history.append(
            f"line {line.number}  pass {line.pass_}  pin.{line.event} {line.why} {line.tokens} tokens"
        )
        self._compare_pins(line, attempt)

    def _pin_taken(self, line: Line, attempt: Tracked) -> None:
        if line.why not in ("locked", "held"):
            self.verdict.counts["pins refused"] += 1
            if attempt.pin == "pinned":
                self._break(
                    line, "pin-owned", f"{attempt.name} holds a pin, yet was answered {line.why}", attempt
                )
            return
        if attempt.state in self._prefetch.terminal:
            self._break(line, "pin-owned", f"{attempt.name} is {attempt.state} and pins", attempt)
        if line.why == "held":
            if attempt.pin != "pinned":
                self._break(
                    line, "pin-owned", f"{attempt.name} is said to hold a pin that it never took", attempt
                )
            return
        if attempt.pin == "pinned":
            self._break(line, "pin-owned", f"{attempt.name} pins twice", attempt)
            return
        self.verdict.counts["pins"] += 1
        attempt.pin, attempt.pin_tokens = "pinned", line.tokens
        self._pinned += line.tokens
        if self._cap is not None and self._pinned > int(self._cap):
            self._break(line, "pin-cap", f"{self._pinned} tokens pinned, cap {self._cap}", attempt)

    def _compare_pins(self, line: Line, attempt: Tracked) -> None:
        seen = line.seen.get("pinned_tokens")
        if seen is not None and seen != self._pinned:
            message = f"pins add up to {self._pinned} tokens, the engine counts {seen}"
            self._break(line, "pin-owned", message, attempt)
            self._pinned = int(seen)

    def _belief_line(self, line: Line) -> None:
        pool = str(line.data.get("pool", ""))
        pages = int(line.data.get("pages", 0))
        if line.event == "write":
            self._writes[pool] = self._writes.get(pool, 0) + pages
        elif line.event in ("stored", "write_failed"):
            left = self._writes.get(pool, 0) - pages
            if left < 0:
                self._break(
                    line, "belief-evidence", f"{pages} pages of {pool} acknowledged, {left + pages} in flight"
                )
            self._writes[pool] = max(0, left)
        elif line.event == "discard" and not 0 <= int(line.data.get("keep_pages", 0)) <= pages:
            self._break(
                line, "belief-evidence", f"keeps {line.data.get('keep_pages')} pages of a chain of {pages}"
            )

    def _settle(self, line: Line) -> None:
        """At a new pass, what ended in the last one must have let go of its pin."""
        for attempt in self._ended:
            if attempt.pin == "pinned":
                self._break(line, "pin-owned", f"{attempt.name} is {attempt.state} and still pins", attempt)
                self._pinned -= attempt.pin_tokens
                attempt.pin, attempt.pin_tokens = "unpinned", 0
        self._ended.clear()

    def _trailer(self, line: Line) -> None:
        self._settle(line)
        self.verdict.closed = True
        if not line.data.get("idle"):
            return
        for name, left in sorted(dict(line.data.get("residue", {})).items()):
            if left:
                self._break(line, "no-residue", f"idle at the end with {name} = {left}")
        for attempt in self._latest.values():
            if attempt.state not in self._prefetch.terminal and not attempt.lost:
                self._break(line, "progress", f"idle at the end with {attempt.name} {attempt.state}", attempt)

    def _break(
        self, line: Line, rule: str, message: str, attempt: Tracked | None = None, known: bool = False
    ) -> None:
        """Record a violation; `known` ones are upstream findings where the profile lists them."""
        self.verdict.violations.append(
            Violation(
                line=line.number,
                rule=rule,
                message=message,
                attempt=attempt.name if attempt else line.rid,
                history=tuple(attempt.history) if attempt else (),
                finding=known and rule in self._findings,
            )
        )


def _shown(row: Transition) -> str:
    return f"{row.event} [{' '.join(map(str, row.guard))}]" if row.guard else row.event


def _profile(spec: Spec, header: Line, path: str) -> tuple[Profile, Constants]:
    """The profile that the header names, with the constants that it overrides."""
    try:
        name = str(header.data["profile"])
        changed = set_constant(spec, name, **header.data.get("constants", {})).profiles[name]
    except (TypeError, ValueError) as error:
        raise LogError(
            Path(path), header.number, str(error), "name a profile and constants of the spec"
        ) from error
    return spec.profiles[name], changed.constants


def _states(names: Sequence[str]) -> str:
    return "/".join(names) if len(names) <= 4 else f"any of {len(names)} states"
