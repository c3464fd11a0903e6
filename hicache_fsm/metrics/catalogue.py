"""Every metric: its name, labels and meaning.  docs/metrics.md is this table."""

from dataclasses import dataclass
from typing import Final, Literal

PREFIX: Final = "sglang:hicache_fsm_"
"""SGLang's own prefix, and a word of this project, so that no name of any SGLang version is taken."""

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One family.  `labels` come after those that the whole process has; `sources` says who fills it."""

    name: str
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    sources: tuple[Literal["lifecycle", "plugin"], ...] = ("lifecycle", "plugin")

    @property
    def full_name(self) -> str:
        """The name as a scrape shows it."""
        return PREFIX + self.name


QUESTIONS: Final = (0, 1, 2, 3, 4, 6, 8, 12, 16)
PASSES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SECONDS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)

CATALOGUE: Final = (
    Metric(
        "states",
        "gauge",
        "Attempts in each waiting state of the prefetch machine, which sum to what is queued, and (lifecycle) "
        "operations in each state of theirs.",
        ("machine", "state"),
    ),
    Metric(
        "running_requests",
        "gauge",
        "Attempts that were admitted and have neither finished nor been retracted.",
    ),
    Metric(
        "transitions_total",
        "counter",
        "Events that machines took, by machine and event, as the event log has them.",
        ("machine", "event"),
    ),
    Metric(
        "refused_events_total",
        "counter",
        "Events that a machine did not allow in the state it was in.",
        ("machine", "event"),
    ),
    Metric("misses_total", "counter", "Miss markers raised, by reason.", ("reason",)),
    Metric("retries_issued_total", "counter", "Questions asked again after a miss or a lost match."),
    Metric("retries_served_total", "counter", "Questions asked again that found the span stored."),
    Metric("retries_exhausted_total", "counter", "Attempts whose budget of re-issues was found spent."),
    Metric(
        "questions_per_request",
        "histogram",
        "Questions that a request asked storage in one stay in the queue, counted when it leaves.",
        buckets=QUESTIONS,
    ),
    Metric(
        "miss_to_hit_passes",
        "histogram",
        "Scheduling passes between an attempt's first unanswered miss and the hit that ended it.",
        buckets=PASSES,
    ),
    Metric(
        "pins_total",
        "counter",
        "Answers to pins: locked, held (already), cap_skip (can never fit), cap_busy (may fit later), anchor_lost, "
        "no_anchor, unservable.",
        ("outcome",),
    ),
    Metric("pins_held", "gauge", "Pins held now, one per holder.", sources=("lifecycle",)),
    Metric("pinned_tokens", "gauge", "Tokens that all holders pin, which count against the cap."),
    Metric("pin_cap_tokens", "gauge", "The cap on pinned tokens; 0 where nothing may be pinned."),
    Metric("occupied_tokens", "gauge", "Host tokens that operations and holds own."),
    Metric(
        "beliefs_lowered_total",
        "counter",
        "Pages that were believed stored and no longer are, by the event that lowered them; from the plugin, "
        "pages of discards beyond those kept, and of clears, detaches and resets.",
        ("event",),
    ),
    Metric(
        "invariant_violations_total",
        "counter",
        "Violations found, by the invariant's id in spec/invariants.toml.",
        ("invariant",),
    ),
    Metric(
        "repairs_total", "counter", "Things taken back from ended attempts (enforce), by kind.", ("kind",)
    ),
    Metric(
        "engine_holdings",
        "gauge",
        "What the engine's own structures hold, as it counts itself: markers, entries, parked, holds.",
        ("kind",),
        sources=("plugin",),
    ),
    Metric(
        "audits_total",
        "counter",
        "Full audits against the engine's structures, by why they ran and whether they were clean.",
        ("why", "clean"),
        sources=("plugin",),
    ),
    Metric("audit_seconds", "histogram", "What a full audit took.", buckets=SECONDS, sources=("plugin",)),
)
