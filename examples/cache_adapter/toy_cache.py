"""A small prefetching cache, written for itself: it knows nothing of the suite that tests it.

A request waits, asks storage for its pages, reads what storage has into host pages, and takes them along when it is
scheduled.  After a miss it asks again some passes later, a few times at most.  A ticket is one question and its read.
"""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Ticket:
    """One question to storage: whose it is, and the host pages of its read.  `job` None: nobody waits for it."""

    number: int
    job: "Job | None"
    pages: int = 0


@dataclass(eq=False)
class Job:
    """A request: `phase` is waiting, asking, reading, ready, running, done or cancelled."""

    name: str
    pages: int
    turn: int
    phase: str = "waiting"
    ticket: Ticket | None = None
    ready: int = 0
    retries: int = 0
    fresh_miss: bool = False
    ask_at: int | None = None


@dataclass
class ToyCache:
    """All counts are pages, `wait` is scheduling passes; `leaky` plants a fault: a cancelled job keeps its pages."""

    host: int
    wait: int
    max_retries: int
    leaky: bool = False
    now: int = 0
    online: bool = True
    jobs: dict[str, Job] = field(default_factory=dict)
    tickets: dict[int, Ticket] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    free: int = 0

    def __post_init__(self) -> None:
        self.free = self.host

    def submit(self, name: str, pages: int) -> bool:
        """A request comes; False if one of that name is still here."""
        before = self.jobs.get(name)
        if before is not None and before.phase not in ("done", "cancelled"):
            return False
        self.jobs[name] = job = Job(name, pages, before.turn + 1 if before else 0)
        self._ask(job)
        return True

    def answer(self, number: int, found: int) -> bool:
        """Storage says how many pages it has; False for a ticket that does not wait for that."""
        ticket = self.tickets.get(number)
        if ticket is None or ticket.pages:
            return False
        job, found = ticket.job, min(found, self.free)
        if job is None or found == 0:
            self._close(ticket)
            if job is not None:
                job.phase, job.ticket = "waiting", None
                job.fresh_miss = self.wait > 0
            return True
        ticket.pages = found
        self.free -= found
        job.phase = "reading"
        return True

    def read(self, number: int, good: int) -> bool:
        """The read ended with so many good pages; False for a ticket that reads nothing."""
        ticket = self.tickets.get(number)
        if ticket is None or not 0 <= good <= ticket.pages or not ticket.pages:
            return False
        if ticket.job is not None:
            ticket.job.phase, ticket.job.ticket = ("ready" if good else "waiting"), None
            ticket.job.ready = good
            ticket.pages -= good
        self._close(ticket)
        return True

    def schedule(self, name: str) -> bool:
        """Run the job, unless it waits for storage."""
        job = self.jobs[name]
        if job.phase not in ("waiting", "ready"):
            return False
        self._forget(job)
        job.phase = "running"
        return True

    def finish(self, name: str) -> bool:
        """A running job is done."""
        return self._leave(name, "running", "done")

    def preempt(self, name: str) -> bool:
        """A running job comes again."""
        job = self.jobs[name]
        return self._leave(name, "running", "done") and self.submit(name, job.pages)

    def cancel(self, name: str) -> bool:
        """A job that does not run yet goes.  What storage still does for it is waited for, by nobody."""
        job = self.jobs[name]
        if job.phase in ("running", "done", "cancelled"):
            return False
        if not self.leaky:
            self._forget(job)
        job.phase, job.fresh_miss, job.ask_at = "cancelled", False, None
        return True

    def step(self) -> None:
        """One scheduling pass: a miss starts to wait, and who has waited asks again."""
        self.now += 1
        for job in self.jobs.values():
            if job.fresh_miss:
                job.fresh_miss = False
                job.ask_at = self.now + self.wait if job.retries < self.max_retries else None
            elif job.ask_at is not None and self.now >= job.ask_at and self.online:
                job.retries += 1
                self._ask(job)

    def reset(self) -> None:
        """Jobs that do not run start over, without a question."""
        for job in self.jobs.values():
            if job.phase in ("waiting", "asking", "reading", "ready"):
                self._forget(job)
                job.phase = "waiting"

    def idle(self) -> bool:
        """Nothing waits, runs or reads."""
        return not self.tickets and all(job.phase in ("done", "cancelled") for job in self.jobs.values())

    def _ask(self, job: Job) -> None:
        job.ask_at = None
        if not self.online:
            return
        self.asked.append(job.name)
        job.ticket = Ticket(len(self.asked), job)
        self.tickets[job.ticket.number] = job.ticket
        job.phase = "asking"

    def _leave(self, name: str, phase: str, after: str) -> bool:
        job = self.jobs[name]
        if job.phase != phase:
            return False
        job.phase = after
        return True

    def _forget(self, job: Job) -> None:
        """Take from the job what it holds; its ticket goes on alone until storage is through with it."""
        self.free += job.ready
        job.ready, job.fresh_miss, job.ask_at = 0, False, None
        if job.ticket is not None:
            job.ticket.job = job.ticket = None

    def _close(self, ticket: Ticket) -> None:
        self.free += ticket.pages
        del self.tickets[ticket.number]
