"""The error for a client library that is not installed: the same sentence on every store."""

from __future__ import annotations

from interlock.errors import StoreUnfit


def missing(product: str, library: str, extra: str, *packages: str) -> StoreUnfit:
    """The error for a store whose client library is missing. It names the packages that the extra of
    interlock stands for.

    The packages are on every package index. interlock itself may come from a clone, and then pip finds no
    `interlock[redis]`.
    """
    wanted = " ".join(f"'{package}'" for package in _required(extra) or packages)
    return StoreUnfit(
        f"a store on {product} needs the client library {library}; install it: pip install {wanted}"
    )


def _required(extra: str) -> list[str]:
    """The packages of an extra, with the versions that are known to work; [] where interlock was not
    installed by pip.
    """
    from importlib import metadata

    try:
        listed = metadata.requires("interlock") or []
    except metadata.PackageNotFoundError:
        return []
    ends = (f"extra == '{extra}'", f'extra == "{extra}"')
    return [line.partition(";")[0].strip() for line in listed if line.endswith(ends)]
