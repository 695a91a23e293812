"""SVG as text: numbers as short as they can be, attributes in order, everything escaped. Pure."""

from __future__ import annotations

from html import escape


def number(value: float, digits: int = 1) -> str:
    """A number without a fraction that says nothing."""
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def element(tag: str, *inner: str, **attributes: object) -> str:
    """One element. `kind` becomes its class, `data_a` becomes `data-a`; None leaves an attribute out."""
    said = "".join(
        f' {_NAMES.get(name, name.replace("_", "-"))}="{_value(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{said}>{''.join(inner)}</{tag}>" if inner else f"<{tag}{said}/>"


_NAMES = {"kind": "class", "view_box": "viewBox"}


def _value(value: object) -> str:
    return number(value) if isinstance(value, float) else escape(str(value))
