"""Conversations whose first messages' text is the begin of the whole text, rendered once for all their lengths.

A template is a fold when it goes through the messages once, in order, and what it writes for one depends on this one
and earlier ones alone; then what asks for an answer must be the same behind any of them. Which templates are is read
off the template's syntax, and never guessed from examples. All others are rendered once for each length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, Template, nodes

Render = Callable[[Any], str]
"""from a compiled template to its text of some messages"""
_BEGIN, _END = "\U0010ffff", "\U0010fffe"
"""noncharacters of Unicode: the one is written in front of each message, the other behind the last"""
_BACKWARD = frozenset({"first", "index", "index0", "previtem", "depth", "depth0"})
"""what of a loop's state no later item has a part in"""
_ELSEWHERE = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block)
_PROTECTED = frozenset({"messages", "add_generation_prompt", "loop", "self"})
"""names that nothing before or in the loop may use as it likes"""
_OF_A_ROW = frozenset({"tools", "loop", "self"})
_CONSTANT = (
    *(nodes.Output, nodes.TemplateData, nodes.Const, nodes.If, nodes.CondExpr, nodes.Add, nodes.Concat),
    *(nodes.And, nodes.Or, nodes.Not, nodes.Compare, nodes.Operand, nodes.Test),
)
"""of these and names that do not change, what follows the last message may consist"""


class Fold:
    """The texts of the first messages of a conversation, each with what asks for an answer behind it."""

    def __init__(self, pieces: list[str], closing: str, asking: str) -> None:
        """Take them.

        Args:
            pieces: what stands before the first message, and each message's text.
            closing: what follows the last one when no answer is asked for.
            asking: what follows it when one is.
        """
        self._before = [""]
        for piece in pieces:
            self._before.append(self._before[-1] + piece)
        self._closing, self._asking = closing, asking

    def text(self, count: int) -> str:
        """The text of so many messages, at least one."""
        return self._before[count + 1] + self._closing

    def prompts(self, count: int) -> list[str]:
        """The one text that asks for an answer to so many messages."""
        return [self._before[count + 1] + self._asking]


class Folding:
    """A template that is a fold."""

    def __init__(self, marked: Template, asking: str) -> None:
        self._marked = marked
        self._asking = asking

    def __call__(self, render: Render, count: int) -> Fold | None:
        """A conversation's texts; None where its own text is in the way of the marks.

        Args:
            render: from a template to its text of these messages, with no answer asked for.
            count: how many messages there are.
        """
        parts = _split(render(self._marked), count)
        return Fold(*parts, self._asking) if parts else None


def folding(template: Template, source: str, render: Render) -> Folding | None:
    """See whether a template is a fold.

    Args:
        template: compiled.
        source: its text.
        render: from a template to its text of one message, with an answer asked for.
    """
    tree = template.environment.parse(source)
    if not _is_fold(tree):
        return None
    marked = _marked(template, tree)
    parts = _split(render(marked), 1)
    return Folding(marked, parts[1]) if parts else None


def _split(text: str, count: int) -> tuple[list[str], str] | None:
    pieces = text.split(_BEGIN)
    *last, closing = pieces[-1].split(_END)
    if len(pieces) != count + 1 or len(last) != 1 or _END in "".join(pieces[:-1]):
        return None
    return [*pieces[:-1], *last], closing


def _marked(template: Template, tree: nodes.Template) -> Template:
    """The same template, with marks before messages and behind the last."""
    environment: Environment = template.environment
    at, loop = next((at, node) for at, node in enumerate(tree.body) if isinstance(node, nodes.For))
    loop.body.insert(0, _mark(_BEGIN, loop.lineno))
    tree.body.insert(at + 1, _mark(_END, loop.lineno))
    tree.set_environment(environment)
    made = Template.from_code(environment, environment.compile(tree), {}, None)
    made.globals = template.globals
    return made


def _mark(text: str, line: int) -> nodes.Output:
    return nodes.Output([nodes.TemplateData(text)]).set_lineno(line)


def _is_fold(tree: nodes.Template) -> bool:
    loops = [(at, node) for at, node in enumerate(tree.body) if isinstance(node, nodes.For)]
    stored = {name.name for name in tree.find_all(nodes.Name) if name.ctx != "load"}
    if len(loops) != 1 or any(tree.find_all(_ELSEWHERE)):
        return False
    [(at, loop)] = loops
    before, after = tree.body[:at], tree.body[at + 1 :]
    names = {"messages"} | {alias for node in before if (alias := _alias(node))}
    before = [node for node in before if _alias(node) not in names]
    if loop.recursive or loop.test or loop.else_ or not _is_name(loop.iter, names):
        return False
    return (
        # No loop of its own is around what stands before, so none that looks ahead.
        all(_looks_back(node, names, inner=True) for node in before)
        and all(_looks_back(node, names, inner=False) for node in loop.body)
        and all(_is_the_same_behind_all(node, names | stored) for node in after)
    )


def _alias(node: nodes.Node) -> str | None:
    """The name that a node gives to the messages."""
    if isinstance(node, nodes.Assign) and isinstance(node.target, nodes.Name) and _is_name(node.node, {"messages"}):
        return node.target.name
    return None


def _is_name(node: nodes.Node, names: set[str]) -> bool:
    return isinstance(node, nodes.Name) and node.name in names


def _looks_back(node: nodes.Node, names: set[str], *, inner: bool) -> bool:
    """Whether nothing in it sees later messages, their number, or whether an answer is asked for.

    Args:
        node: any.
        names: the messages' names.
        inner: it is in a loop of its own within the one through the messages, whose state may be used in any way.
    """
    if isinstance(node, nodes.Getitem) and _is_name(node.node, names):
        return isinstance(node.arg, nodes.Const) and node.arg.value == 0
    if isinstance(node, nodes.Getattr) and _is_name(node.node, {"loop"}):
        return inner or node.attr in _BACKWARD
    if isinstance(node, nodes.Name):
        return node.name not in names | _PROTECTED or (inner and node.name == "loop")
    if isinstance(node, nodes.Break):
        return inner
    if isinstance(node, nodes.For):
        within = [part for part in node.iter_child_nodes() if part is not node.iter]
        return _looks_back(node.iter, names, inner=inner) and all(_looks_back(one, names, inner=True) for one in within)
    return all(_looks_back(child, names, inner=inner) for child in node.iter_child_nodes())


def _is_the_same_behind_all(node: nodes.Node, changing: set[str]) -> bool:
    """Whether it writes the same behind any number of any messages."""
    if isinstance(node, nodes.Name):
        return node.name not in changing | _OF_A_ROW
    return isinstance(node, _CONSTANT) and all(
        _is_the_same_behind_all(child, changing) for child in node.iter_child_nodes()
    )
