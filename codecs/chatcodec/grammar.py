"""Grammars as tables: the one module that knows Lark.

Rules of this module:

* a format's grammar is `grammars/<name>.lark`, a plain LALR grammar in Lark's language.  Its terminals are *markers*, each
  one plain string, and *runs*, free text, which are `%declare`d and named from one vocabulary (`RUNS`);
* a start rule is compiled on its first use: Lark builds the LALR table, and since chat formats nest nothing inside itself
  the set of its stacks is finite, so walking it gives a plain automaton (`Tables`);
* a grammar that is ambiguous, nests, names an unknown run or lets one run follow another is refused, with file and rule.

The tables say more than the grammar does.  In a *tolerant* grammar (a model's completion) each state also knows how to
recover: a marker that no rule allows here, but that a later place of the open rules does, takes the machine there, and the
step names the rules that were left incomplete (`Op.cut`: only the closer was missing; `Op.broken`: more was).  A *strict*
grammar (a rendered prompt) recovers nothing, and nothing in it is layout.

A marker inside free text may be no marker at all.  `Step.guard` says what has to be checked before it counts:

* FOLLOW  what comes behind it, blanks apart, must be a marker that may follow it, or the end of the text;
* END     only blanks and the end of the text may follow (a stop token inside something that is still open);
* QUOTE   it must not stand in quotes (the end of reasoning);
* ARGUMENT, TOOL  an opener counts only with the name of an argument that the call lacks, or of a known tool.

Declared by name: a marker whose terminal ends in `_IF_KNOWN` needs such a name, one whose terminal begins with `STOP` is a stop
token, and in a rule named `promoted` a call that reasoning runs into is tried, and undone if the text does not bear it out.
"""

from ast import literal_eval
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

from lark import lexer
from lark.common import ParserConf
from lark.exceptions import LarkError
from lark.grammar import NonTerminal
from lark.load_grammar import Grammar, load_grammar
from lark.parsers.lalr_analysis import LALR_Analyzer, Shift

from .errors import CodecError

#: Every kind of free text that a grammar may declare.
RUNS = frozenset(
    """REASONING CONTENT CALL_NAME ARG_NAME ARG_VALUE ARGS_JSON CALL_JSON AFTER_END TOOL_RESULT RESULT_NAME SYSTEM_TEXT
    USER_TEXT TOOL_JSON TOOLS_TEXT OPTION_TEXT UNKNOWN_TEXT CHANNEL_NAME""".split()
)
NAME_RUNS = frozenset(("CALL_NAME", "ARG_NAME"))
JSON_RUNS = frozenset(("ARGS_JSON", "CALL_JSON", "TOOL_JSON"))
#: Runs that a marker of an enclosing rule may end; in others only a stop token does, where nothing follows it.
RECOVERING_RUNS = frozenset(("CALL_NAME", "ARG_NAME", "ARG_VALUE")) | JSON_RUNS
#: Runs whose closers count only with the right thing behind them.
GUARDED_RUNS = frozenset(("ARG_VALUE", "USER_TEXT", "TOOL_RESULT"))
CALL_RULES = ("call", "json_call")
MAX_DEPTH = 24  #: of an LALR stack; a grammar that goes deeper nests
END_OF_TEXT = "$END"
QUOTES = "`\"'"  #: what a marker stands between that is only spoken of


class GrammarError(CodecError):
    """A grammar that cannot be used.  The message names its file and, where one is at fault, its rule."""


class Guard(Enum):
    """What has to be checked before a marker inside free text counts."""

    FOLLOW = "follow"
    END = "end"
    QUOTE = "quote"
    ARGUMENT = "argument"
    TOOL = "tool"


class Op(Enum):
    """What becomes of a rule when a step is taken."""

    END = "end"  #: it is complete
    CUT = "cut"  #: it ended, and only its closer is missing
    BROKEN = "broken"  #: it ended, or goes on, and more is missing
    EMPTY = "empty"  #: it stands here and is empty, so that what begins with it begins here


Action = tuple[Op, str, str | None, int]
"""Op, rule, alias (a diagnostic code or a name that the assembler knows) and the depth at which the rule began."""


@dataclass(slots=True, eq=False)
class Step:
    """What a marker does in a state."""

    terminal: str
    literal: str
    target: int
    before: tuple[Action, ...]  #: what becomes of rules where the marker begins
    after: tuple[Action, ...]  #: and where it ends
    depth: int  #: of the stack where the marker's offset is kept
    recovery: bool = False
    guard: Guard | None = None
    tentative: bool = False  #: the marker begins something that is only tried
    follow: tuple[str, ...] = ()  #: for FOLLOW: the markers that may come next, with and without the usual newline
    end_follows: bool = False  #: for FOLLOW: so may the end of the text
    name_ends: tuple[str, ...] = ()  #: for ARGUMENT and TOOL: the markers that end the name


@dataclass(slots=True, eq=False)
class State:
    """A state of the automaton.

    Where text may start here, `enter` is the state inside that run and `steps` has the markers that may come instead.
    Inside a run, `run` is its name and `steps` has all markers that may end it.  Else `steps` has the markers that may
    come next.
    """

    run: str | None = None
    run_depth: int = 0
    enter: int | None = None
    enter_actions: tuple[Action, ...] = ()  #: the rules that end when the run begins
    steps: dict[str, Step] = field(default_factory=dict)
    end: tuple[Action, ...] = ()
    complete: bool = False  #: the text may end here
    cursor: dict[str, Step] = field(default_factory=dict)  #: the markers that may come instead of a run, but not end it


@dataclass(slots=True, eq=False)
class Tables:
    """A start rule of a grammar as an automaton.  State 0 is the first."""

    name: str
    start: str
    strict: bool
    states: list[State]
    depth: int  #: of the deepest stack
    markers: dict[str, str]  #: every marker of the grammar by its terminal


# ------------------------------------------------------------------------------------------------------------ the files


def directory() -> Path:
    """Where the grammars are: inside an installed package, or at the top of a checkout."""
    here = Path(__file__).resolve().parent
    packaged = here / "grammars"
    return packaged if packaged.is_dir() else here.parents[1] / "grammars"


@lru_cache
def _source(name: str) -> tuple[Any, str]:
    path = directory() / f"{name}.lark"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise GrammarError(f"{path}: cannot be read: {error.strerror}") from None
    # where interegular is installed, Lark checks its own terminals for collisions, at each start, for a tenth of a second
    checks, lexer.has_interegular = lexer.has_interegular, False
    try:
        return load_grammar(text, str(path), [str(directory())], True)[0], str(path)  # type: ignore[no-untyped-call]
    except LarkError as error:
        raise GrammarError(f"{path}: {error}") from None
    finally:
        lexer.has_interegular = checks


@lru_cache
def markers(name: str) -> dict[str, str]:
    """Every marker of a grammar, by terminal: the only place where a format's literals stand."""
    grammar, path = _source(name)
    return {terminal: _literal(tree, f"{path}: {terminal}") for terminal, (tree, _) in grammar.term_defs if tree is not None}


def _literal(tree: Any, where: str) -> str:
    """The plain string that a terminal's definition spells; Lark has put in what it refers to."""
    if getattr(tree, "type", None) == "STRING" and not tree.endswith("i"):
        return str(literal_eval(tree))
    children = getattr(tree, "children", ())
    if not children or (tree.data == "expansions" and len(children) > 1):
        raise GrammarError(f"{where}: a marker must be one plain string")
    return "".join(_literal(child, where) for child in children)


# ------------------------------------------------------------------------------------------------------- the automaton

Stack = tuple[Any, ...]  # of Lark's LR(0) item sets


def compile_tables(name: str, start: str, spelling: Callable[[str], str] | None = None) -> Tables:
    """The automaton of a start rule.  A start rule named `prompt` is strict, others are tolerant.

    `spelling` gives the markers as the text to come spells them, where that is not as the grammar does.
    Raises GrammarError, which names the file and the rule at fault.
    """
    grammar, path = _source(name)
    literals = markers(name)
    if spelling is not None:
        literals = {terminal: spelling(literal) for terminal, literal in literals.items()}
    try:
        _, rules, _ = _only(grammar, start).compile([start], "*")
        analyzer = LALR_Analyzer(ParserConf(rules, {}, [start]), debug=True, strict=True)
        analyzer.compute_lalr()  # type: ignore[no-untyped-call]
    except LarkError as error:
        raise GrammarError(f"{path}: rule {start}: {error}") from None
    used = {symbol.name for rule in rules for symbol in rule.expansion if symbol.is_term}
    for terminal in sorted(used - literals.keys() - RUNS):
        raise GrammarError(f"{path}: {terminal} is declared without a string and is no run; the runs are {', '.join(sorted(RUNS))}")
    return _Unroller(path, name, start, analyzer, literals).unroll()


def _only(grammar: Any, start: str) -> Any:
    """The part of a grammar that a start rule needs, with terminals as names: Lark takes its time for each rule."""
    trees = {name: tree for name, _, tree, _ in grammar.rule_defs}
    needed, pending = {start}, [start]
    while pending:
        tree = trees.get(pending.pop())
        used = {value.name for value in tree.scan_values(lambda value: isinstance(value, NonTerminal))} if tree is not None else set()
        pending += used - needed
        needed |= used
    rules = [rule for rule in grammar.rule_defs if rule[0] in needed]
    names: list[Any] = [(name, (None, priority)) for name, (_, priority) in grammar.term_defs]
    return Grammar(rules, names, grammar.ignore)


class _Unroller:
    """Walks all stacks that an LALR table can have, and names them as states."""

    def __init__(self, path: str, name: str, start: str, analyzer: Any, literals: dict[str, str]) -> None:
        self.path, self.name, self.start = path, name, start
        self.strict = start == "prompt"
        self.literals = literals
        self.known = literals.keys() | RUNS
        sets = {itemset.closure: itemset for itemset in analyzer.lr0_itemsets}
        # what each terminal does on top of an item set: the rule to reduce, or the item set to shift to
        self.reduces: dict[Any, dict[str, Any]] = {}
        self.shifts: dict[Any, dict[str, Any]] = {}
        # where each symbol leads, by name, since Lark's symbols are slow to compare
        self.targets = {top: {symbol.name: target for symbol, target in top.transitions.items()} for top in sets.values()}
        for closure, actions in analyzer.parse_table.states.items():
            top = sets[closure]
            self.reduces[top] = {name: rule for name, (action, rule) in actions.items() if action is not Shift}
            self.shifts[top] = {name: sets[target] for name, (action, target) in actions.items() if action is Shift and name in self.known}
        self.root: Stack = (analyzer.lr0_start_states[start],)
        self.accepting = analyzer.parse_table.end_states[start]
        self.by_origin: dict[Any, list[Any]] = {}
        for origin, rules in analyzer.lr0_rules_by_origin.items():
            self.by_origin[origin] = list(rules)
        self.nullable = {symbol.name for symbol in analyzer.NULLABLE}
        self.tried = self._first("promoted")
        self.openers = frozenset().union(*map(self._first, CALL_RULES))
        self.open_rules: dict[Any, list[tuple[Any, str, int]]] = {}
        self.with_run: dict[str, bool] = {}
        self.terminals: dict[Stack, list[str]] = {}  # by what was asked for before
        self.numbers: dict[Stack, int] = {}
        self.states: list[State] = []
        self.queue: deque[Stack] = deque()

    def unroll(self) -> Tables:
        self._number(self.root)
        while self.queue:
            stack = self.queue.popleft()
            self._build(stack, self.states[self.numbers[stack]])
        for state in self.states:
            self._finish(state)
        depth = max(len(stack) for stack in self.numbers) + 1
        return Tables(self.name, self.start, self.strict, self.states, depth, self.literals)

    # -- moving in the LALR table

    def _number(self, stack: Stack) -> int:
        if stack not in self.numbers:
            if len(stack) > MAX_DEPTH:
                raise GrammarError(f"{self.path}: rule {self._rule_of(stack)}: nests inside itself, or is more than {MAX_DEPTH} rules deep")
            self.numbers[stack] = len(self.states)
            self.states.append(State())
            self.queue.append(stack)
        return self.numbers[stack]

    def _rule_of(self, stack: Stack) -> str:
        return min((str(item.rule.origin.name) for item in stack[-1].kernel), default=self.start)

    def _goto(self, stack: Stack, symbol: Any) -> Stack:
        return (*stack, self.targets[stack[-1]][symbol.name])

    def _reduce(self, stack: Stack, rule: Any) -> tuple[Stack, Action]:
        below = stack[: len(stack) - len(rule.expansion)]
        op = Op.END if rule.expansion else Op.EMPTY
        return self._goto(below, rule.origin), (op, str(rule.origin.name), rule.alias, len(below))

    def _shift(self, stack: Stack, terminal: str) -> tuple[Stack, list[Action]] | None:
        """The stack after a terminal, and the rules that ended before it; None if it is not allowed."""
        actions: list[Action] = []
        while True:
            top = stack[-1]
            if terminal == END_OF_TEXT and top.closure == self.accepting:
                return stack, actions
            target = self.shifts[top].get(terminal)
            if target is not None:
                return (*stack, target), actions
            rule = self.reduces[top].get(terminal)
            if rule is None:
                return None
            stack, done = self._reduce(stack, rule)
            actions.append(done)

    def _settle(self, stack: Stack) -> tuple[Stack, list[Action]]:
        """Reduce as long as whatever may come begins with the same reduction, so that rules end as early as they can."""
        actions: list[Action] = []
        while True:
            rules = self.reduces[stack[-1]].values()
            if self.shifts[stack[-1]] or len(set(map(id, rules))) != 1:
                return stack, actions
            stack, done = self._reduce(stack, next(iter(rules)))
            actions.append(done)

    def _terminals(self, stack: Stack) -> list[str]:
        """The terminals that may come next, in the order of their names."""
        found = self.terminals.get(stack)
        if found is None:
            top = stack[-1]
            reducible = [name for name in self.reduces[top] if name in self.known and self._shift(stack, name)]
            found = self.terminals[stack] = sorted([*self.shifts[top], *reducible])
        return found

    # -- one state

    def _build(self, stack: Stack, state: State) -> None:
        inside = next((item.rule.expansion[item.index - 1].name for item in stack[-1].kernel if item.index), None)
        state.run = inside if inside in RUNS else None
        terminals = self._terminals(stack)
        runs = [name for name in terminals if name in RUNS]
        if len(runs) > 1 or (runs and state.run):
            both = " and ".join(runs if len(runs) > 1 else [str(state.run), *runs])
            raise GrammarError(f"{self.path}: rule {self._rule_of(stack)}: {both} may stand at the same place")
        if runs:
            after, done = self._shift(stack, runs[0]) or (stack, [])
            state.enter, state.enter_actions = self._number(after), tuple(done)
            state.run_depth = len(after) - 1
        for terminal in terminals:
            if terminal not in RUNS:
                self._add(state, terminal, stack, (), recovery=False)
        ending = self._shift(stack, END_OF_TEXT)
        state.complete = ending is not None
        if ending:
            state.end = tuple(ending[1])
        if not self.strict:
            for later, cuts in self._recoveries(stack):
                if not state.end and not state.complete and (ending := self._shift(later, END_OF_TEXT)):
                    state.end = (*cuts, *ending[1])
                if state.run is None or state.run in RECOVERING_RUNS:
                    allowed = self._terminals(later)
                else:
                    allowed = [name for name in self._terminals(later) if name.startswith("STOP")]
                for terminal in allowed:
                    if terminal not in RUNS and self.literals[terminal] not in state.steps and not terminal.endswith("_IF_KNOWN"):
                        self._add(state, terminal, later, cuts, recovery=True)

    def _add(self, state: State, terminal: str, stack: Stack, before: tuple[Action, ...], *, recovery: bool) -> None:
        literal = self.literals[terminal]
        known = state.steps.get(literal)
        if known is not None:
            if not recovery and not known.recovery:
                raise GrammarError(f"{self.path}: rule {self._rule_of(stack)}: {known.terminal} and {terminal} are both {literal!r}")
            return
        shifted = self._shift(stack, terminal)
        assert shifted is not None  # the caller asked `_terminals`
        depth = len(shifted[0]) - 1
        target, done = self._settle(shifted[0])
        state.steps[literal] = Step(
            terminal, literal, self._number(target), (*before, *shifted[1]), tuple(done), depth, recovery=recovery
        )  # fmt: skip

    def _recoveries(self, stack: Stack) -> Iterator[tuple[Stack, tuple[Action, ...]]]:
        """Later places of the open rules, nearest first, each with the rules that are incomplete if the text goes on there."""
        queue: deque[tuple[Stack, tuple[Action, ...]]] = deque([(stack, ())])
        seen = {stack}
        while queue:
            here, cuts = queue.popleft()
            if here is not stack:
                yield here, cuts
            for rule, name, index in self._open_rules(here[-1]):
                rest, base = rule.expansion[index:], len(here) - index
                skipped, missing = here, False
                for symbol in rest[:-1]:
                    skipped, missing = self._goto(skipped, symbol), missing or symbol.name not in self.nullable
                    self._reach(skipped, (*cuts, (Op.BROKEN, name, None, base)) if missing else cuts, seen, queue)
                ended: tuple[Action, ...] = ((Op.END, name, rule.alias, base),)
                if rest:
                    ended = ((Op.END, name, None, base),)
                    clean = not missing and not name.startswith("_") and not self._has_run(rest[-1])
                    ended = ((Op.CUT, name, None, base),) if clean else ((Op.BROKEN, name, None, base), *ended)
                self._reach(self._goto(here[:base], rule.origin), (*cuts, *ended), seen, queue)

    def _open_rules(self, top: Any) -> list[tuple[Any, str, int]]:
        """The rules that are open on top of an item set, with their names and how far each has come; the nearest to its end first."""
        found = self.open_rules.get(top)
        if found is None:
            items = [item for item in top.kernel if item.index and not item.rule.origin.name.startswith("$")]
            items.sort(key=lambda item: (len(item.rule.expansion) - item.index, str(item)))
            found = self.open_rules[top] = [(item.rule, str(item.rule.origin.name), item.index) for item in items]
        return found

    def _reach(self, stack: Stack, cuts: tuple[Action, ...], seen: set[Stack], queue: deque[tuple[Stack, tuple[Action, ...]]]) -> None:
        if stack not in seen:
            seen.add(stack)
            queue.append((stack, cuts))

    def _has_run(self, symbol: Any) -> bool:
        """Whether any text may stand in a symbol."""
        if symbol.name not in self.with_run:
            reached = {symbol.name: symbol}
            pending = [symbol]
            while pending:
                for rule in self.by_origin.get(pending.pop(), ()):
                    new = {part.name: part for part in rule.expansion if part.name not in reached}
                    reached |= new
                    pending += new.values()
            self.with_run[symbol.name] = not RUNS.isdisjoint(reached)
        return self.with_run[symbol.name]

    def _first(self, name: str) -> frozenset[str]:
        """The markers that a rule of this name may begin with, leading runs left out."""
        found: set[str] = set()
        seen: set[Any] = set()

        def walk(symbols: Iterable[Any]) -> None:
            for symbol in symbols:
                if symbol.is_term and symbol.name not in RUNS:
                    found.add(symbol.name)
                elif not symbol.is_term and symbol not in seen:
                    seen.add(symbol)
                    for rule in self.by_origin.get(symbol, ()):
                        walk(rule.expansion)
                if symbol.name not in self.nullable and symbol.name not in RUNS:
                    return

        for origin, rules in self.by_origin.items():
            if origin.name == name:
                for rule in rules:
                    walk(rule.expansion)
        return frozenset(found)

    # -- guards and all that follows from the steps, once all states are there

    def _finish(self, state: State) -> None:
        inner = self.states[state.enter] if state.enter is not None else None
        run = state.run or (inner.run if inner else None)
        for literal, step in list(state.steps.items()):
            if step.recovery and run == "ARG_VALUE" and step.terminal in self.openers:
                del state.steps[literal]  # a value may quote a whole call
                continue
            if run is None:
                continue
            step.tentative = run == "REASONING" and step.terminal in self.tried
            self._guard(step, run)
        if inner is not None:
            if not state.end and not state.complete:
                state.end = inner.end  # as if the run were there and empty
            state.cursor = {literal: step for literal, step in state.steps.items() if literal not in inner.steps and not step.recovery}

    def _guard(self, step: Step, run: str) -> None:
        entered = self._entered(step)
        if step.terminal.startswith("STOP") and step.recovery:
            step.guard = Guard.END
        elif step.terminal.endswith("_IF_KNOWN") or (step.recovery and run == "ARG_VALUE" and entered == "ARG_NAME"):
            enter = self.states[step.target].enter
            step.guard = Guard.TOOL if entered == "CALL_NAME" or run == "CALL_NAME" else Guard.ARGUMENT
            if entered in ("CALL_NAME", "ARG_NAME") and enter is not None:
                step.name_ends = tuple(literal for literal, end in self.states[enter].steps.items() if not end.recovery)
        elif run == "REASONING" and not step.tentative and any(rule == "reasoning" for _, rule, _, _ in (*step.before, *step.after)):
            step.guard = Guard.QUOTE
        elif self.strict or run in GUARDED_RUNS or (run in ("CONTENT", "REASONING") and step.terminal in self.openers):
            self._follow(step, run)

    def _entered(self, step: Step) -> str | None:
        enter = self.states[step.target].enter
        return self.states[enter].run if enter is not None else None

    def _follow(self, step: Step, run: str) -> None:
        target, entered = self.states[step.target], self._entered(step)
        definite = entered is None or entered in JSON_RUNS
        if not definite and not (step.recovery and run in GUARDED_RUNS and entered not in ("CALL_NAME", "ARG_NAME")):
            return  # any text may follow
        lenient = run in GUARDED_RUNS
        literals = {literal for literal, after in target.steps.items() if lenient or not after.recovery}
        if entered in JSON_RUNS:
            literals.add("{")
        if literals or target.complete:
            step.guard = Guard.FOLLOW
            step.end_follows = target.complete or (lenient and not self.strict)
            step.follow = tuple(sorted(literals | (set() if self.strict else {"\n" + literal for literal in literals})))


def describe(tables: Tables) -> str:
    """The automaton as text, state by state: what may come, what it ends, and where it leads."""
    lines = []
    for number, state in enumerate(tables.states):
        if state.run:
            head = f"in {state.run}"
        elif state.enter is not None:
            head = f"before {tables.states[state.enter].run} ({state.enter})"
        else:
            head = "between"
        lines.append(f"{number}: {head}{', may end' if state.complete else ''}")
        for literal, step in sorted(state.steps.items()):
            flags = [flag for flag, on in (("recovery", step.recovery), ("tried", step.tentative)) if on]
            flags += [step.guard.value] if step.guard else []
            told = [action for action in step.before + step.after if action[0] in (Op.CUT, Op.BROKEN) or not action[1].startswith("_")]
            notes = [f"{op.value} {alias or rule}" for op, rule, alias, _ in told]
            lines.append(f"    {literal!r} -> {step.target} {' '.join(flags)}: {', '.join(notes)}".rstrip(": "))
    return "\n".join(lines) + "\n"
