"""The page's part on Table 1 of the BHC paper, and on what explains its differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from page_parts import Cell, cell, paragraph, section, table, verdict

LINKAGES = ("single", "complete", "average")


def bhc_table_1(found: dict[str, Any]) -> str:
    rows: list[Sequence[str]] = []
    methods = ("single", "complete", "average", "BHC", "BHC, paper")
    counts: dict[str, int] = {}
    for name, part in found["table"].items():
        for k, method in enumerate(methods):
            ours = part["cells"][method]
            printed = found["paper"][name][min(k, 3)]
            spread = ours["error_of_draws"] * np.sqrt(part["draws"])
            mine = Cell(ours["mean"], ours["error_of_draws"])
            word = verdict(Cell(*printed), mine, spread=spread)
            if method != "BHC, paper":
                counts[word] = counts.get(word, 0) + 1
            title = {"BHC": "**BHC, default**", "BHC, paper": "BHC, the paper's way"}
            rows.append(
                [
                    name if k == 0 else "",
                    title.get(method, method),
                    cell(*printed),
                    cell(*mine),
                    f"{mine.mean - printed[0]:+.3f}",
                    f"{spread:.3f}",
                    word,
                ]
            )
    off = counts.get("other draw", 0) + counts.get("differs", 0)
    header = ["data", "method", "paper", "ours", "difference", "s.d. of draws", "verdict"]
    wins = ", ".join(
        f"{name} {part['wins']} of {part['draws']}" for name, part in found["table"].items()
    )
    first = [name for name, part in found["table"].items() if part["best"] == "BHC"]
    others = [name for name in found["table"] if name not in first]
    return section(
        "Table 1: purity",
        "bhc_table_1",
        paragraph(
            "Dendrogram purity (each leaf weighs the same), ten draws of each data set, five "
            "folds "
            f"each: a fifth of the rows is left out in turn. **The default has the highest mean "
            f"purity on {len(first)} of 6 data sets** ({', '.join(first)}; not on "
            f"{', '.join(others) or 'none'}); the paper's BHC on 5 (not on Glass). Draws in which "
            f"the default is above all three linkages: {wins}."
        ),
        table(header, rows),
        paragraph(
            f"Of the 24 values of the paper, {counts.get('within', 0)} are within two standard "
            f"errors, {counts.get('better', 0)} better; **{off} are not**, of which "
            f"{counts.get('other draw', 0)} are within the spread of draws and "
            f"{counts.get('differs', 0)} differ more than that. {ratio_note(found)}"
        ),
        paragraph(order_notes(found)),
    )


def ratio_note(found: dict[str, Any]) -> str:
    """Return why a standard error over the folds of one draw is too small for another draw."""
    ratios = [
        part["cells"][method]["error_of_draws"]
        * np.sqrt(part["draws"])
        / part["cells"][method]["error_of_folds"]
        for name, part in found["table"].items()
        if name != "Glass"  # all its rows are in every draw
        for method in (*LINKAGES, "BHC")
    ]
    return (
        "The paper's standard errors are over five folds of one draw; any two folds share three "
        "quarters of their rows, so they say nothing of what other e-mails, images or articles "
        "would have scored. On our draws the standard deviation from draw to draw is "
        f"{min(ratios):.1f} to {max(ratios):.1f} times the standard error over folds (median "
        f"{np.median(ratios):.1f}), Glass aside, whose rows are always the same."
    )


def order_notes(found: dict[str, Any]) -> str:
    """Return how the linkages and Glass compare with the paper."""
    glass = {m: part["mean"] for m, part in found["table"]["Glass"]["cells"].items()}
    ahead = max((*LINKAGES, "BHC"), key=lambda m: glass[m])
    first = ahead if ahead == "BHC" else f"{ahead} linkage"
    below = [
        sum(found["table"][n]["cells"][m]["mean"] < found["paper"][n][k][0] for n in found["table"])
        for k, m in enumerate(LINKAGES)
    ]
    return (
        f"On Glass {first} has the highest mean of those compared (in the paper average linkage; "
        "it notes that the Gaussian may be a poor model there). Single, complete and average "
        f"linkage are below the paper's on {below[0]}, {below[1]} and {below[2]} of 6 sets. What a "
        "fold is was settled by the linkages alone: of leaving a fold out, using all rows, and one "
        "fold only, the first is on average the nearest to the paper's 18 values. *Synthetic* is "
        "drawn: the standard deviation of its four centres, 2, is the one of five values that "
        "brings the three linkages nearest to the paper's; BHC was not looked at (`--calibrate` "
        "prints both)."
    )


def readings(found: dict[str, Any]) -> str:
    """Return the values of Table 1 under other readings, and what they show."""
    rows: list[Sequence[str]] = []
    last = ""
    for part in found["readings"]:
        cells = [
            f"{c['mean']:.3f} ± {c['error_of_draws']:.3f}{'' if ok else ' ✗'}"
            for c, ok in zip(part["cells"].values(), part["within"], strict=True)
        ]
        if part["data"] != last:
            printed = [cell(*value) for value in found["paper"][part["data"]]]
            rows.append([part["data"], "*the paper*", *printed, ""])
            last = part["data"]
        rows.append(["", part["reading"], *cells, f"{sum(part['within'])} of 4"])
    header = ["data", "reading", *LINKAGES, "BHC, the paper's way", "within"]
    return section(
        "Table 1 under other readings",
        "bhc_table_1_readings",
        paragraph(
            "What the paper leaves open, changed one at a time: ✗ marks a value that is more than "
            "two standard errors away. These readings were looked at with the paper's values in "
            "hand, so a match is a possible reason and no proof; none of them is used above."
        ),
        table(header, rows),
        *(paragraph(note) for note in (reading_notes(found), synthetic_note(found))),
    )


def reading_notes(found: dict[str, Any]) -> str:
    """Return, for each data set, the readings under which most values come out."""
    notes = []
    for name in dict.fromkeys(part["data"] for part in found["readings"]):
        parts = [part for part in found["readings"] if part["data"] == name]
        as_is = sum(parts[0]["within"])
        best = max(sum(part["within"]) for part in parts)
        texts = " or ".join(f"“{p['reading']}”" for p in parts[1:] if sum(p["within"]) == best)
        if best > as_is:
            what = f"{best} of 4 values are within with {texts}, against {as_is}"
        else:
            what = f"no reading has more than {as_is} of 4 values within"
        notes.append(f"*{name}*: {what}. {WHY.get(name, '')}".strip())
    return " ".join(notes)


# What is known beside the numbers of the table.
WHY = {
    "Newsgroups": "The paper's articles, stop list and line search for the prior are not given; "
    "its values for BHC and average linkage are those of another draw, as far as can be seen.",
    "Spambase": "Those trees have 40 or 32 e-mails instead of 160. The coalescent paper has "
    "average linkage at 0.616 with 100 e-mails of each class, where ours is, and not at the 0.668 "
    "of this table. How ties are broken changes the means by 0.02 at most.",
    "3Digits": "The paper says 20 images of each digit, which are 60 rows; the rose-tree paper "
    "and the file of the three digits have 120, which the table above uses.",
    "10Digits": "A little more ink raises all four values towards the paper's: its grey levels "
    "may be scaled otherwise. No one threshold brings out both sets of digits to all values.",
    "Glass": "Classes are of unequal size only here, so only here the two averages differ. The "
    "paper's footnote describes the one over leaves.",
}


def synthetic_note(found: dict[str, Any]) -> str:
    """Return what BHC has on synthetic sets that are to linkage what the paper's was."""
    part = found["synthetic"]
    mean, error = found["paper"]["Synthetic"][3]
    ours = part["BHC, paper"]
    return (
        f"*Synthetic*: the paper does not give its four Gaussians. Of {part['drawn']} sets drawn "
        "from wide families (centres more or less far apart, equal or unequal sizes and "
        f"covariances), {part['kept']} have all three linkages within two standard errors of the "
        f"paper's. On these BHC, the paper's way, has {ours['mean']:.3f} with a standard deviation "
        f"of {ours['sd']:.3f} from set to set ({ours['lowest']:.3f} to {ours['highest']:.3f}); "
        f"{100 * ours[SHARE]:.0f} % of them reach the paper's {mean} less two standard errors "
        f"({mean - 2 * error:.3f}), and {100 * part['BHC'][SHARE]:.0f} % with the defaults. The "
        "paper's set is an easier one for BHC than most of those, and not an unlikely one."
    )


SHARE = "as pure as the paper's"
