#!/usr/bin/env python3
"""Finds files of a crate that need each other to be read, and fails if there are more than the one that is known.

    scripts/circles.py              all crates
    scripts/circles.py FOLDER...    the crates with these folders

A file needs another one if it names one of its items by a path: in `use`, or where it is used. What a file re-exports it
does not need, nor does a file need its own submodule for declaring it. A submodule may name what the modules above it hold:
they are read first. Code of tests does not count.

    a.rs ── use crate::b::B ──▸ b.rs ── use crate::c::C ──▸ c.rs ── use crate::a::A ──▸ a.rs     a circle of three
"""
import re
import sys
from pathlib import Path

# A row of the table names the module that reads and writes it, which needs the types of rows and values.
KNOWN = {"crates/tune": "settings/row"}
# Files of that one. It may only become smaller.
MOST = 23

STRING = re.compile(r'r(#+)".*?"\1|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', re.S)
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*([{;])")
USE = re.compile(r"(?m)^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);")
PATH = re.compile(r"\b(?:crate|self|super|[a-z_]\w*)(?:::\w+)+")
ITEM = r"\b(?:fn|struct|enum|union|trait|const|static|type|mod|macro_rules!)\s+{}\b"


def code_of(text):
    """Without comments, strings and the modules of tests."""
    text = re.sub(r"(?m)//.*$", "", STRING.sub('""', re.sub(r"(?m)^\s*//.*$", "", text)))
    kept, at = [], 0
    for found in TESTS.finditer(text):
        if found.start() < at:
            continue
        kept.append(text[at : found.start()])
        at, depth = found.end(), found[1] == "{"
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
    return "".join(kept) + text[at:]


def paths(tree, before=()):
    """The paths of a `use`, each with the name that it has in the file."""
    depth, begin = 0, 0
    for at, char in enumerate(tree + ","):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char != "," or depth:
            continue
        part = tree[begin:at].strip()
        begin = at + 1
        if "{" in part:
            lead, _, inner = part.partition("{")
            lead = tuple(name for name in lead.strip().split("::") if name)
            yield from paths(inner.rstrip().removesuffix("}"), before + lead)
        elif part:
            path, _, alias = part.partition(" as ")
            path = before + tuple(name.strip() for name in path.strip().split("::"))
            path = path[:-1] if path[-1] == "self" else path
            yield path, alias.strip() or path[-1]


class Crate:
    """Its modules by their paths, and what each names."""

    def __init__(self, src):
        self.code, self.uses = {}, {}
        for file in src.rglob("*.rs"):
            module = file.relative_to(src).with_suffix("").parts
            if "tests" in module or module[-1] == "testing":
                continue
            self.code[() if module in (("lib",), ("main",)) else module] = code_of(file.read_text())
        for module, code in self.code.items():
            self.uses[module] = [
                (path, name, bool(found[1])) for found in USE.finditer(code) for path, name in paths(found[2])
            ]

    def absolute(self, module, path):
        """A path as seen from the crate's root; None: of another crate, or of nothing that is known."""
        first, rest = path[0], path[1:]
        if first == "crate":
            return rest
        if first == "self":
            return module + rest
        if first == "super":
            return self.absolute(module[:-1], ("self", *rest) if rest[:1] != ("super",) else rest) if module else None
        if (*module, first) in self.code:
            return module + path
        for used, name, _ in self.uses[module]:
            if name == first and used != path and used[0] in ("crate", "self", "super"):
                above = self.absolute(module, used)
                return above and above + rest
        return None

    def home(self, path, seen=frozenset()):
        """The module that has the item of an absolute path, through re-exports."""
        length = len(path)
        while path[:length] not in self.code:
            length -= 1
        module, rest = path[:length], path[length:]
        if not rest or (module, rest[0]) in seen:
            return module
        for used, name, _ in self.uses[module]:
            above = self.absolute(module, used[:-1] if name == "*" else used)
            if name == rest[0]:
                return self.home(above + rest[1:], seen | {(module, rest[0])}) if above is not None else None
            if name == "*" and above in self.code and re.search(ITEM.format(rest[0]), self.code[above]):
                return above
        return module

    def needs(self, module):
        """The other modules that it names, each with the path."""
        named = [(path, name) for path, name, public in self.uses[module] if not public]
        named += [(tuple(found[0].split("::")), "") for found in PATH.finditer(USE.sub("", self.code[module]))]
        needed = {}
        for path, name in named:
            above = self.absolute(module, path[:-1] if name == "*" else path)
            home = self.home(above) if above is not None else None
            # What stands above a module is read before it.
            if home is not None and module[: len(home)] != home:
                needed.setdefault(home, "::".join(path))
        return needed


def circles(graph):
    """Groups of more than one node, each of which reaches all others (Tarjan)."""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in graph[node]:
            if other not in order:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == order[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in order:
            visit(node)
    return found


def main():
    sys.setrecursionlimit(10_000)
    folders = [Path(folder) for folder in sys.argv[1:]] or sorted(Path("crates").iterdir())
    known, wrong = 0, 0
    for folder in folders:
        crate = Crate(folder / "src")
        graph = {module: crate.needs(module) for module in sorted(crate.code)}
        for group in circles(graph):
            names = {module: "/".join(module) for module in group}
            if KNOWN.get(str(folder)) in names.values() and len(group) <= MOST:
                known = len(group)
                continue
            wrong += 1
            print(f"{folder}: {len(group)} files need each other; move what both need below them:", file=sys.stderr)
            for module in group:
                for other, path in sorted(graph[module].items()):
                    if other in names:
                        print(f"  {names[module]} -> {names[other]}  ({path})", file=sys.stderr)
    print(f"circles of files: {wrong + (known > 0)}, the largest of {known} files" if not wrong else f"circles of files: {wrong} more than the known one")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
