"""The HTML page of the viewer: a template, a style, a script and the data, with nothing outside.

Text from the data enters the page twice: as escaped text in the title, and as JSON in a block
that no browser runs. The policy in the page's head lets only the viewer's own script run and
forbids the network.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib import resources
from string import Template
from typing import Any

# Inside a script element only these can end it or be taken for markup; JSON can spell them out.
_SPELLED_OUT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def as_json(value: Any) -> str:
    r"""Return JSON that may stand inside a script element.

    Examples
    --------
    >>> as_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate is no character, and UTF-8 cannot hold it.
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text.translate(_SPELLED_OUT)


def fill_page(data: Mapping[str, Any], *, title: str, version: str) -> str:
    """Return the page for a payload of `bhclust.viewer.payload.make_payload`."""
    folder = resources.files("bhclust.viewer")
    style = folder.joinpath("view.css").read_text("utf-8")
    script = folder.joinpath("bundle/viewer.js").read_text("utf-8")
    policy = {
        "default-src": "'none'",
        "script-src": _hash(script),
        "style-src": _hash(style),
        "img-src": "data: blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    heading = title.encode("utf-8", "replace").decode("utf-8")
    return Template(folder.joinpath("view.html").read_text("utf-8")).substitute(
        policy="; ".join(f"{name} {sources}" for name, sources in policy.items()),
        title=html.escape(heading),
        version=html.escape(version),
        style=style,
        data=as_json(data),
        script=script,
    )


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"
