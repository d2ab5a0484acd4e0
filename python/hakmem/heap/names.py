"""Short names of C++ and Rust functions: enough for a reader to recognize the function, without what the compiler adds.

Arguments of templates and generics become <...>. Parameters, result types, hashes and suffixes of clones are
removed. A name that cannot be parsed stays unchanged."""

from __future__ import annotations

import re

FOLDED = "<...>"
# Longer names stay unchanged.
LENGTH_MOST = 1 << 14
RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
CRATE_HASH = re.compile(r"\[[0-9a-f]{8,16}\]")
# Suffixes that compilers add to the name of a part or a copy of a function.
CLONE = re.compile(r"( \[clone [^\]]*\]|\.(cold|part|constprop|isra|lto_priv|llvm|localalias)(\.\d+)*)+$")
OPERATOR = re.compile(r'operator(?:\(\)|\[\]|""\s*\w+|->\*?|<=>|<<=?|>>=?|[<>]=?|(?: new| delete)(?:\[\])?'
                      r"|[-+*/%^&|~!=,]{1,2})(?![\w$])")
CONVERSION = re.compile(r"operator (?=[\w:(])")
BEHIND = re.compile(r"\s*(const|volatile|noexcept|&&?)")
CLOSING = {"(": ")", "<": ">", "[": "]", "{": "}"}
STANDARD = (("std::__cxx11::", "std::"), ("std::__1::", "std::"), ("std::__ndk1::", "std::"))


class Senseless(ValueError):
    """A name whose brackets do not match."""


def is_mangled(linker_name: str) -> bool:
    """Returns whether a linker's name is a mangled C++ or Rust name."""
    return linker_name.startswith(("_Z", "_R", "__Z", "___Z"))


def shortened(name: str) -> str:
    """Returns the short form of a name that c++filt has printed."""
    if len(name) > LENGTH_MOST:
        return name
    text = RUST_HASH.sub("", CLONE.sub("", name))
    text = CRATE_HASH.sub("", text)
    for long, short in STANDARD:
        text = text.replace(long, short)
    try:
        return folded(text) or name
    except (Senseless, RecursionError):
        return name


def folded(text: str) -> str:
    """Returns the name without parameters, result type and template arguments, but with its Rust type."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        sign = text[at]
        operator = OPERATOR.match(text, at) if begins_word(text, at) else None
        if operator:
            parts.append(operator[0])
            at = operator.end()
        elif begins_word(text, at) and CONVERSION.match(text, at):
            end = conversion_end(text, at)
            parts.append(text[at:end])
            at = end
        elif sign == "<":
            end = closing(text, at)
            parts.append(of_angles(text[at + 1:end], "".join(parts[-1:])))
            at = end + 1
        elif sign == "(":
            end = closing(text, at)
            if text[at:end + 1] == "(anonymous namespace)":
                parts.append(text[at:end + 1])
            at = end + 1
            while behind := BEHIND.match(text, at):
                at = behind.end()
        elif sign == "{":
            end = closing(text, at)
            parts.append(re.sub(r"\(.*\)", "", text[at:end + 1]))
            at = end + 1
        elif text.startswith(" <", at) and parts and parts[-1].startswith("operator"):
            at += 1
        elif sign == " ":
            parts, at = [], at + 1  # the text so far was the result type, or "non-virtual thunk to"
        elif sign in ">)}":
            raise Senseless
        else:
            parts.append(sign)
            at += 1
    return "".join(parts)


def begins_word(text: str, at: int) -> bool:
    """Returns whether the word "operator" may begin here."""
    return text.startswith("operator", at) and (at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_$"))


def conversion_end(text: str, at: int) -> int:
    """Returns the place behind a conversion operator's type, where its parameters begin."""
    end = at + len("operator ")
    while end < len(text) and text[end] != "(":
        end = closing(text, end) + 1 if text[end] == "<" else end + 1
    return end


def of_angles(inner: str, before: str) -> str:
    """Returns what is shown of the text between < and >. A Rust name may begin with a type in angle brackets."""
    if before in ("", ":") and (" as " in inner or inner.startswith("impl ") or before == ""):
        one, word, other = inner.partition(" as ")
        if word:
            return f"<{folded_type(one)} as {folded_type(other)}>"
        return f"<{folded_type(inner)}>"
    return FOLDED


def folded_type(text: str) -> str:
    """Returns a type with its arguments folded. Unlike a name, a type may contain spaces."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "<":
            parts.append(FOLDED)
            at = closing(text, at)
        else:
            parts.append(text[at])
        at += 1
    return "".join(parts)


def closing(text: str, at: int) -> int:
    """Returns the place of the bracket that closes the one at `at`."""
    waiting: list[str] = []
    place = at
    while place < len(text):
        sign = text[place]
        operator = OPERATOR.match(text, place) if begins_word(text, place) else None
        if operator:
            place = operator.end()
            continue
        if sign in CLOSING:
            waiting.append(CLOSING[sign])
        elif waiting and sign == waiting[-1]:
            waiting.pop()
            if not waiting:
                return place
        elif sign == ">" and text[place - 1] in "-=":
            pass  # an arrow
        elif sign == ">" and ")" in waiting or sign == "<":
            pass  # a comparison in an expression
        elif sign in ")>]}":
            raise Senseless
        place += 1
    raise Senseless
