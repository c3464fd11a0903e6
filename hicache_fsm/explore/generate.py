"""A system as C: what `engine.c` needs to know of it, on vectors of states.

Values that several actions use are computed once a block; everything else inside the action that uses it,
and only if its guard holds in some lane.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from math import prod

from hicache_fsm.model.expr import FALSE, TRUE, Expr, variable, walk
from hicache_fsm.model.layout import Layout
from hicache_fsm.model.system import Action, Row, System

LEAVES = ("var", "const")


class Source:
    """The C text of a system, and what its numbers stand for.

    `rows` gives each counter's action and row, `checks` and `judged` the invariant of each state and step check,
    `updates` each checked update's action and variable, `stride` the bytes of a state.
    """

    def __init__(self, system: System) -> None:
        layout = system.layout
        self.stride = sum(_bytes(layout))
        self.checks = [check.invariant for check in system.states]
        self.judged = [check.invariant for check in system.steps]
        self.rows: list[Row] = []
        self.updates: list[tuple[str, str]] = []
        self._layout = layout
        actions = [_Parts(system, action) for action in system.actions]
        self._shared = _shared(actions)
        functions = [self._action(number, parts) for number, parts in enumerate(actions)]
        self.text = "\n".join(
            [
                *self._sizes(system),
                '#include "engine.h"',
                *self._tables(),
                self._unpack(),
                self._hoisted(),
                *functions,
                _all_actions(len(functions)),
                self._judge(system),
                self._aims(system),
                '#include "engine.c"',
                "",
            ]
        )

    def _sizes(self, system: System) -> Iterator[str]:
        sizes = {
            "WORDS": self._layout.words,
            "STRIDE": self.stride,
            "VARIABLES": len(self._layout.variables),
            "SHARED": len(self._shared),
            "ACTIONS": len(system.actions),
            "ROWS": len(self.rows),
            "CHECKS": len(self.checks),
            "JUDGED": len(self.judged),
            "GOALS": len(system.goals),
        }
        yield from (f"#define {name} {value}" for name, value in sizes.items())
        width = next(bits for bits in (8, 16, 32, 64) if len(system.goals) < bits)
        yield from ("#include <stdint.h>", f"typedef uint{width}_t goals;")

    def _tables(self) -> Iterator[str]:
        sizes = _bytes(self._layout)
        offsets = [sum(sizes[:place]) for place in range(len(sizes))]
        masks = [(1 << 8 * size) - 1 for size in sizes]
        yield f"static const uint32_t OFFSET[WORDS] = {{{', '.join(map(str, offsets))}}};"
        yield f"static const uint64_t MASK[WORDS] = {{{', '.join(f'{mask:#x}u' for mask in masks)}}};"

    def _unpack(self) -> str:
        lines = ["static void unpack(block *b) {", "    for (int i = 0; i < LANES; i++) {"]
        last = {word: place for place, (word, _) in enumerate(self._layout.places)}
        lines += [f"        uint64_t w{word} = b->at[i].word[{word}];" for word in range(self._layout.words)]
        for place, (each, (word, _)) in enumerate(
            zip(self._layout.variables, self._layout.places, strict=True)
        ):
            digit = f"w{word}" if last[word] == place else f"w{word} % {each.size}u"
            low = f" + {each.low}" if each.low else ""
            lines.append(f"        ((int8_t *)&b->x[{place}])[i] = (int8_t)({digit}{low});")
            if last[word] != place:
                lines.append(f"        w{word} /= {each.size}u;")
        return "\n".join([*lines, "    }", "}"])

    def _hoisted(self) -> str:
        names = {node: f"b->h[{place}]" for node, place in self._shared.items()}
        lines = [f"    {names[node]} = {self._formula(node, names)};" for node in self._shared]
        return "\n".join(["static void shared(block *b) {", *lines, "}"])

    def _action(self, number: int, parts: "_Parts") -> str:
        names = {node: f"b->h[{place}]" for node, place in self._shared.items()}
        lines = [f"static void action_{number}(block *b) {{"]
        lines += self._locals([parts.guard], names)
        lines.append(f"    lanes on = {self._name(parts.guard, names)} & b->live;")
        lines += ["    uint32_t left = bits(on);", "    if (!left) return;"]
        for place, value in parts.updates.items():
            lines += self._locals([value], names)
            lines.append(f"    lanes d{place} = {self._name(value, names)} - b->x[{place}];")
            lines += self._range_check(parts.name, place, value, names)
        lines += self._observations(number, parts, names)
        lines += [
            "    for (; left; left &= left - 1) {",
            "        uint32_t i = (uint32_t)__builtin_ctz(left);",
        ]
        lines += ["        step *s = &b->steps[b->count++];", "        s->after = b->at[i];"]
        for place in parts.updates:
            word, weight = self._layout.places[place]
            change = f"(uint64_t)(int64_t)((int8_t *)&d{place})[i] * {weight}u"
            lines.append(f"        s->after.word[{word}] += {change};")
        lines += ["        s->lane = i;", f"        s->action = {number};", "    }", "}"]
        return "\n".join(lines)

    def _range_check(self, action: str, place: int, value: Expr, names: Mapping[Expr, str]) -> Iterator[str]:
        each = self._layout.variables[place]
        low, high = _span(value, self._layout)
        if each.low <= low and high <= each.high:
            return
        name = self._name(value, names)
        yield f"    uint32_t off{place} = bits(on & (({name} < {each.low}) | ({name} > {each.high})));"
        update = len(self.updates)
        yield f"    if (off{place}) stray(b, {update}, (uint32_t)__builtin_ctz(off{place}), {name});"
        self.updates.append((action, each.name))

    def _observations(self, number: int, parts: "_Parts", names: dict[Expr, str]) -> Iterator[str]:
        yield "    if (b->observing) {"
        # Local names of the block: nothing after it may use them.
        inner = dict(names)
        for row, condition in parts.rows:
            taken = f"b->taken[{len(self.rows)}]"
            self.rows.append(row)
            yield from self._locals([condition], inner)
            whole = condition in (TRUE, parts.guard)
            mask = "left" if whole else f"bits(on & {self._name(condition, inner)})"
            yield f"    {taken} += (uint32_t)__builtin_popcount({mask});"
        for check, holds in parts.checks:
            yield from self._locals([holds], inner)
            yield f"    uint32_t broken{check} = bits(on & ~{self._name(holds, inner)});"
            yield f"    if (broken{check}) note(b, &b->moves[{check}], broken{check}, {number});"
        yield "    }"

    def _judge(self, system: System) -> str:
        lines = ["static void judge(block *b) {"]
        names = {node: f"b->h[{place}]" for node, place in self._shared.items()}
        for check, each in enumerate(system.states):
            lines += self._locals([each.holds], names)
            lines.append(f"    uint32_t broken{check} = bits(b->live & ~{self._name(each.holds, names)});")
            lines.append(f"    if (broken{check}) note(b, &b->states[{check}], broken{check}, 0);")
        return "\n".join([*lines, "    (void)b;", "}"])

    def _aims(self, system: System) -> str:
        """For each lane the goals that it has to reach, and those that it is at."""
        lines = ["static void aims(block *b, goals *start, goals *reached) {"]
        lines.append("    for (int i = 0; i < LANES; i++) start[i] = 0;")
        lines.append("    for (int i = 0; reached && i < LANES; i++) reached[i] = 0;")
        names = {node: f"b->h[{place}]" for node, place in self._shared.items()}
        for number, each in enumerate(system.goals):
            lines += self._locals([each.start, each.goal], names)
            for target, condition in (("start", each.start), ("reached", each.goal)):
                mask = f"{target} ? bits({self._name(condition, names)}) : 0"
                lines.append(f"    for (uint32_t m = {mask}; m; m &= m - 1)")
                lines.append(f"        {target}[__builtin_ctz(m)] |= (goals)((goals)1 << {number});")
        return "\n".join([*lines, "    (void)b;", "}"])

    def _locals(self, roots: Iterable[Expr], names: dict[Expr, str]) -> Iterator[str]:
        """Declares what `roots` need and `names` lacks yet."""
        for node in walk(roots):
            if node.op not in LEAVES and node not in names:
                formula = self._formula(node, names)
                names[node] = f"v{len(names)}"
                yield f"    lanes {names[node]} = {formula};"

    def _name(self, node: Expr, names: Mapping[Expr, str]) -> str:
        if node.op == "var":
            return f"b->x[{self._layout.index[str(node.value)]}]"
        if node.op == "const":
            value = {TRUE: -1, FALSE: 0}.get(node, int(node.value))
            return f"((lanes){{0}} + (int8_t){value})" if value else "(lanes){0}"
        return names[node]

    def _formula(self, node: Expr, names: Mapping[Expr, str]) -> str:
        args = [self._name(arg, names) for arg in node.args]
        match node.op:
            case "not":
                return f"~{args[0]}"
            case "where":
                return f"pick({', '.join(args)})"
            case "min" | "max":
                sign = "<" if node.op == "min" else ">"
                return f"pick({args[0]} {sign} {args[1]}, {args[0]}, {args[1]})"
        signs = {"eq": "==", "le": "<=", "and": "&", "or": "|", "add": "+", "sub": "-"}
        return f"{args[0]} {signs[node.op]} {args[1]}"


class _Parts:
    """The expressions of one action: guard, new values by the variables' places, rows, step checks by number."""

    def __init__(self, system: System, action: Action) -> None:
        layout = system.layout
        self.name = action.name
        self.guard = action.guard
        self.updates = {layout.index[name]: value for name, value in action.updates.items()}
        post = {each.name: action.updates.get(each.name, variable(each.name)) for each in layout.variables}
        checks = [(number, check.holds(action, post)) for number, check in enumerate(system.steps)]
        self.checks = [(number, holds) for number, holds in checks if holds != TRUE]
        self.rows = action.rows

    @property
    def roots(self) -> Iterator[Expr]:
        conditions = (each for _, each in chain(self.checks, self.rows))
        return chain([self.guard], self.updates.values(), conditions)


def _shared(actions: Iterable[_Parts]) -> dict[Expr, int]:
    """The values that more than one action uses, numbered in an order in which they can be computed."""
    everywhere = [list(walk(parts.roots)) for parts in actions]
    uses = Counter(node for nodes in everywhere for node in nodes)
    shared = [node for node in dict.fromkeys(chain(*everywhere)) if uses[node] > 1 and node.op not in LEAVES]
    return {node: place for place, node in enumerate(shared)}


def _all_actions(count: int) -> str:
    lines = [f"    if (!useful || useful[{n}]) action_{n}(b);" for n in range(count)]
    return "\n".join(["static void steps(block *b, const uint8_t *useful) {", *lines, "}"])


def _bytes(layout: Layout) -> list[int]:
    """How many bytes hold each word of a state."""
    sizes: list[list[int]] = [[] for _ in range(layout.words)]
    for each, (word, _) in zip(layout.variables, layout.places, strict=True):
        sizes[word].append(each.size)
    return [max(1, ((prod(word) - 1).bit_length() + 7) // 8) for word in sizes]


def _span(root: Expr, layout: Layout) -> tuple[int, int]:
    """Bounds of a number's values, whatever the state."""
    spans: dict[Expr, tuple[int, int]] = {}
    for node in walk([root]):
        args = [spans[arg] for arg in node.args] if node.op not in LEAVES else []
        match node.op:
            case "var":
                each = layout.variables[layout.index[str(node.value)]]
                spans[node] = (each.low, each.high)
            case "const":
                spans[node] = (int(node.value), int(node.value))
            case "add":
                spans[node] = (args[0][0] + args[1][0], args[0][1] + args[1][1])
            case "sub":
                spans[node] = (args[0][0] - args[1][1], args[0][1] - args[1][0])
            case "where":
                spans[node] = (min(args[1][0], args[2][0]), max(args[1][1], args[2][1]))
            case "min":
                spans[node] = (min(args[0][0], args[1][0]), min(args[0][1], args[1][1]))
            case "max":
                spans[node] = (max(args[0][0], args[1][0]), max(args[0][1], args[1][1]))
            case _:
                spans[node] = (0, 1)
    return spans[root]
