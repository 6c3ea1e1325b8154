"""The page's part on the rose-tree paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from page_parts import Cell, cell, paragraph, section, table, verdict

MODELS = ("BHC-DP", "BRT-DP", "BHC-γ", "BRT-γ", "BRT")
TITLES = {
    "log likelihood": ("Table 1.2: log likelihood", 0),
    "log10 partitions": ("Table 1.3: log10 of the number of partitions", 1),
    "log predictive": ("Table 1.4: log predictive probability of 10 % missing entries", 1),
}


def rows_of(found: dict[str, Any], score: str, digits: int) -> list[list[str]]:
    """Return one row a data set and model: the paper's value, both of ours and both verdicts."""
    rows = []
    fewer = score == "log10 partitions"
    rounding = 0.29 if fewer else 0.0  # standard deviation of what is lost by whole numbers
    for data, printed in found["paper"][score].items():
        for k, model in enumerate(MODELS):
            mean, error = printed[k]
            shown, words = [], []
            for way in ("default", "learned"):
                value = found["tables"][way][score].get(data, {}).get(model)
                shown.append(cell(*value, digits) if value else "not run")
                if value:
                    paper = Cell(mean, float(np.hypot(error, rounding)))
                    words.append(verdict(paper, Cell(*value), higher_is_better=not fewer))
            rows.append(
                [data if k == 0 else "", model, f"{mean} ± {error}", *shown, " / ".join(words)]
            )
    return rows


NOTES = {
    "log likelihood": (
        "**More likely trees.** The paper's text says that BRT finds a more likely tree than BHC "
        "on every set (its own table has BHC-γ ahead on newsgroups). Ours, BRT less BHC-γ on the "
        "same draws: {brt_default} with the defaults, {brt_learned} learned. The DP models are far "
        "below the others on every set, as in the paper: their p(D | T) carries the prior of the "
        "process. **BRT-γ is not where the paper has it**: there it is below BHC-γ on four sets, "
        "here above it on {gamma_above} of {sets} (BRT-γ less BHC-γ: {gamma_default}, defaults). "
        "Ours takes the best of join, absorb and collapse for every pair by a score that does not "
        "saturate where clusters do not belong together; whether the paper's search did is not "
        "known. *toy* is drawn anew; the paper's is handmade and has no spread. *newsgroups* has "
        "the 485 most frequent words of other articles. *Digits* are binarised at 32 of 0 … 255, "
        'as the paper says. The paper\'s values are learned ones: "default" learns nothing for '
        "these mixing priors. On the same draws learning gains {gains} for BHC-γ, and that is what "
        "the default lacks on the digits: with it {digits} of the 10 values of the digits are "
        'within two standard errors or better. "Learned" is above the paper where the optimiser '
        "went further."
    ),
    "log10 partitions": (
        "Fewer is simpler; the paper prints whole numbers. Its main claim is that BRT's own mixing "
        "needs about the square root of the partitions of the binary trees; {ratio}. It holds but "
        "on newsgroups. Its second, that BRT-DP and BRT-γ have as many partitions as BHC-DP and "
        "BHC-γ or slightly fewer, holds for BRT-γ ({gamma}), and not for BRT-DP ({process}): "
        "**BRT-DP is far simpler here than in the paper**, which does not say how ties are broken; "
        "ours go to the simpler tree. Learned hyperparameters favour more and smaller clusters, so "
        "that learned trees hold more partitions: what the defaults reproduce and the learned "
        "trees do not differs for this reason. On *newsgroups* the counts "
        "hang on the strength of the prior and hardly on the choice of words, as the readings "
        "below show."
    ),
    "log predictive": (
        "The paper finds all five models alike within the noise, and with the defaults so do we "
        "(the means of two models on a set are {alike} of its standard errors apart at most). It "
        "has BRT slightly ahead on toy and digits024, BRT-DP on spambase and BHC-γ on digits; here "
        "the highest are {firsts}, no further ahead. The levels of *toy* and *newsgroups* are "
        "those of other draws. *spambase* and the digits are below the paper's by some hundredths "
        "of a nat an entry, and the draw is no reason: a standard deviation from draw to draw of "
        "{spread} (BHC-γ on spambase) and the paper's error of 1.7 make its value a mean of some "
        "hundred draws. What was tried stands below."
    ),
}


# The further ways of the table after Table 1.4, as its columns are called.
AVERAGES = {
    "hyperparameters": "hyperparameters averaged",
    "probabilities": "probabilities averaged",
    "weighted": "weighted by evidence",
}
HINDSIGHT = {
    "hyperparameters of all": "(hyperparameters of all)",
    "tree of all": "(tree of all)",
}
WAYS = AVERAGES | HINDSIGHT


def reached(printed: tuple[float, float], value: tuple[float, float]) -> bool:
    """Return whether a value is within two standard errors of the paper's, or better."""
    return verdict(Cell(*printed), Cell(*value)) in ("within", "better")


def averages(found: dict[str, Any]) -> str:
    """Return what averages around the learned optimum predict, and what hindsight would."""
    paper = found["paper"]["log predictive"]
    ways = found["ways"]
    values = {
        data: {
            model: {"learned": found["tables"]["learned"]["log predictive"][data][model]}
            | {way: by_model[model][way] for way in WAYS}
            for model in MODELS
        }
        for data, by_model in ways.items()
    }
    rows = []
    for data, by_model in values.items():
        for k, model in enumerate(MODELS):
            printed = paper[data][k]
            cells = [
                f"{cell(*value, 1)}{'' if reached(printed, value) else ' ✗'}"
                for value in by_model[model].values()
            ]
            rows.append([data if k == 0 else "", model, cell(*printed, 1), *cells])
    default = found["tables"]["default"]["log predictive"]

    def inside(way: str, sets: Sequence[str]) -> int:
        return sum(
            reached(paper[d][k], default[d][m] if way == "default" else values[d][m][way])
            for d in sets
            for k, m in enumerate(MODELS)
        )

    def gains(way: str) -> str:
        name = f"{way} − learned"
        return ", ".join(f"{data} {cell(*by['BHC-γ'][name], 1)}" for data, by in ways.items())

    per_set = "; ".join(
        f"on {data} {inside('default', [data])}, {inside('learned', [data])}, "
        + ", ".join(str(inside(way, [data])) for way in AVERAGES)
        for data in ways
    )
    points = [by[m]["effective points"][0] for by in ways.values() for m in MODELS]
    bounds = " and ".join(cell(*ways["spambase"]["BHC-γ"][w], 0) for w in HINDSIGHT)
    digits = ("digits024", "digits")
    known = inside(next(iter(HINDSIGHT)), digits)
    method = (
        "**Averages around the optimum.** For this table the paper averaged the hyperparameters "
        "“over a small region around the optimum found”, and says no more. Here the region is the "
        "normal that the curvature at the optimum gives for the logarithms of each column's two "
        "prior counts; it was fixed before any value was seen, and what is missing does not enter. "
        "Over 200 points of it the counts themselves are averaged, or the probability of what is "
        "missing, each point alike or weighted by its evidence and prior over the density that it "
        f"was drawn from (then {min(points):.0f} to {max(points):.0f} points count effectively, "
        "fewest on the newsgroups with their hundreds of columns). The tree stays."
    )
    outcome = (
        "Against learning alone the averaged counts gain, for BHC-γ on the same draws, "
        f"{gains('hyperparameters')}; the weighted probabilities {gains('weighted')}. Of the five "
        "models so many are within two standard errors of the paper's or better (default, learned, "
        f"the three averages in the table's order): {per_set}. {averaged_verdict(inside)}"
    )
    hindsight = (
        "The last two columns are no predictions, for they have seen what is asked: the tree of "
        "the table with holes by the hyperparameters of the complete table, and the complete "
        f"table's own tree. With the hyperparameters of the complete table {known} of the 10 "
        "values of the digits are within two standard errors: that Table 1.4 took them from Table "
        "1.2 is a reading that fits the digits. It does not fit the newsgroups, which it "
        f"predicts better than the paper, and spambase no more than half: for BHC-γ there {bounds} "
        "with the tree too, the paper's −192 between them. **What the paper did on spambase is not "
        "known.**"
    )
    header = ["data", "model", "paper", "learned", *WAYS.values()]
    texts = "\n".join(map(paragraph, (method, outcome, hindsight)))
    return texts + "\n" + table(header, rows)


def averaged_verdict(inside: Callable[[str, Sequence[str]], int]) -> str:
    """Return in words whether the averages reach the paper's level where learning does not."""
    sets = ("spambase", "digits024", "digits")
    best = {data: max(inside(way, [data]) for way in AVERAGES) for data in sets}
    short = [f"{data} ({count} of 5 models)" for data, count in best.items() if count < 5]
    if not short:
        return "**So averaging reaches the paper's level on all sets.**"
    return (
        f"**So averaging gains little and does not reach the paper's level on {', '.join(short)}.**"
    )


def fewer(found: dict[str, Any], rose: str, binary: str) -> str:
    """Return the numbers of partitions of a rose tree and its binary counterpart."""
    rows = found["tables"]["default"]["log10 partitions"]
    return ", ".join(f"{d} {r[rose][0]:.1f} to {r[binary][0]:.1f}" for d, r in rows.items())


def highest(found: dict[str, Any]) -> str:
    """Return the model of the highest prediction on each set, by default."""
    rows = found["tables"]["default"]["log predictive"].items()
    return ", ".join(f"{sorted(r, key=lambda m, r=r: -r[m][0])[0]} on {d}" for d, r in rows)


def apart(found: dict[str, Any]) -> float:
    """Return how far two models' predictions on a set are apart at most, in standard errors."""
    rows = found["tables"]["default"]["log predictive"].values()
    means = [[value[0] for value in row.values()] for row in rows]
    errors = [max(value[1] for value in row.values()) for row in rows]
    return max((max(m) - min(m)) / e for m, e in zip(means, errors, strict=True))


def differences(found: dict[str, Any], way: str, pair: str) -> str:
    """Return the paired differences of each data set."""
    parts = [f"{data} {cell(*row[pair], 1)}" for data, row in found["paired"][way].items()]
    return ", ".join(parts)


def ratios(found: dict[str, Any]) -> str:
    """Return how many digits BRT's count has for each digit of BHC-γ's."""
    rows = found["tables"]["default"]["log10 partitions"]
    parts = [f"{data} {row['BRT'][0] / row['BHC-γ'][0]:.2f}" for data, row in rows.items()]
    return "the ratio of the logarithms, BRT to BHC-γ, is " + ", ".join(parts)


def rose_tables(found: dict[str, Any]) -> str:
    defaults = found["tables"]["default"]["log predictive"]
    learned = found["tables"]["learned"]["log likelihood"]
    known = {
        "brt_default": differences(found, "default", "BRT − BHC-γ"),
        "brt_learned": differences(found, "learned", "BRT − BHC-γ"),
        "ratio": ratios(found),
        "gamma_default": differences(found, "default", "BRT-γ − BHC-γ"),
        "gamma_above": sum(r["BRT-γ − BHC-γ"][0] > 0 for r in found["paired"]["default"].values()),
        "sets": len(found["paired"]["default"]),
        "gains": ", ".join(f"{d} {cell(*r['BHC-γ'], 0)}" for d, r in found["gains"].items()),
        "digits": sum(
            reached(found["paper"]["log likelihood"][data][k], learned[data][model])
            for data in ("digits024", "digits")
            for k, model in enumerate(MODELS)
        ),
        "gamma": fewer(found, "BRT-γ", "BHC-γ"),
        "process": fewer(found, "BRT-DP", "BHC-DP"),
        "firsts": highest(found),
        "alike": f"{apart(found):.1f}",
        "spread": f"{defaults['spambase']['BHC-γ'][1] * found['draws']['default'] ** 0.5:.0f}",
    }
    pieces = []
    for score, (title, digits) in TITLES.items():
        header = ["data", "model", "paper", "default", "learned", "default / learned"]
        rows = rows_of(found, score, digits)
        note = paragraph(NOTES[score].format(**known))
        pieces.append(section(title, "rose_tables", table(header, rows), note))
    pieces.append(averages(found))
    draws = found["draws"]
    intro = paragraph(
        'Five models on five binary data sets of 120 rows (toy: 48). "Default" is the library as '
        "it "
        f'comes ({draws["default"]} draws); "learned" the paper\'s procedure: every '
        "hyperparameter by "
        f"gradient ascent in turn with greedy trees, two restarts ({draws['learned']} draws; the "
        "paper: ten restarts). The last column has a verdict on each."
    )
    return intro + "\n" + "\n".join(pieces)


def rose_figure_1_1(found: dict[str, Any]) -> str:
    keys = ("internal nodes", "depth", "log10 partitions", "log likelihood", "purity")
    rows = [
        [name, *(cell(*part[key], 3 if key == "purity" else 1) for key in keys)]
        for name, part in found["table"].items()
    ]
    return section(
        "Figure 1.1: the toy",
        "rose_figure_1_1",
        paragraph(
            f"{found['draws']} draws of 48 rows in three groups without structure inside (the "
            "paper's caption says 15 a group, its text 48 rows). BHC-γ makes a cascade of each "
            "group, "
            "BRT one node: as in the paper."
        ),
        table(["tree", *keys], rows),
        "![Toy](results/papers/rose_figure_1_1.png)\n",
    )


def rose_figure_1_6(found: dict[str, Any]) -> str:
    keys = ("lowest", "highest", "from the default", "ten restarts", "distinct optima")
    rows = [
        [name, *(f"{part[k]:.1f}" if isinstance(part[k], float) else str(part[k]) for k in keys)]
        for name, part in found["maps"].items()
    ]
    return section(
        "Figure 1.6: sensitivity to the start",
        "rose_figure_1_6",
        paragraph(
            "Two numbers of the beta prior start on a grid over almost three decades, and "
            "everything is "
            "learned from there, with a tenth of the entries missing. As the paper says, the end "
            "depends on the start; restarts from drawn hyperparameters find an end as good as the "
            "best of the grid or nearly so."
        ),
        table(["data", *keys], rows),
        "![Map of optima](results/papers/rose_figure_1_6.png)\n",
    )


def rose_figure_1_7(found: dict[str, Any]) -> str:
    rows = []
    for settings, sizes in found["bits"].items():
        for n, row in sizes.items():
            rows.append(
                [
                    settings,
                    n,
                    *(cell(*row[m]) for m in ("BRT", "BHC-γ", "BHC-DP")),
                    f"{100 * row['optimal']['BRT']:.0f} %",
                ]
            )
    at_8 = {s: 100 * sizes["8"]["optimal"]["BRT"] for s, sizes in found["bits"].items()}
    main = next(iter(found["bits"].values()))["8"]
    return section(
        "Figure 1.7: greedy against all rose trees",
        "rose_figure_1_7",
        paragraph(
            f"Bits a row above the best of all rose trees, {found['sets']} data sets a size. BRT "
            "is "
            "far nearer to the optimum than both binary trees from three rows on, and BHC-DP is "
            "the "
            "furthest, as in the paper. The paper's greedy BRT finds the optimum in "
            f"{100 * found['paper']['optimal at 8']:.0f} % of its data sets of 8 rows; ours in "
            + ", ".join(f"{v:.0f} % ({s})" for s, v in at_8.items())
            + ". The paper gives neither γ nor the prior that it drew from. With the default γ the "
            f"trees of 8 rows are {main['BRT'][0]:.4f} bits a row from the optimum on average. "
            "In the paper BHC-DP is above the best rose tree at two rows; with α = 1 and γ = 0.5 "
            "both are the same model there."
        ),
        table(["drawn with", "rows", "BRT", "BHC-γ", "BHC-DP", "BRT optimal"], rows),
        "![Bits above the best rose tree](results/papers/rose_figure_1_7.png)\n",
    )


def rose_figure_1_8(found: dict[str, Any]) -> str:
    rows = []
    for part, by_model in found["table"].items():
        for name, row in by_model.items():
            rows.append(
                [
                    part,
                    name,
                    f"{row['log likelihood']:.1f}",
                    f"{row['log10 partitions']:.1f}",
                    str(row["internal nodes"]),
                    f"{row['purity']:.3f}",
                    ", ".join(row["lion"]["cluster"]),
                ]
            )
    header = ["features", "model", "log likelihood", "log10 partitions", "internal nodes",
              "purity", "cluster of the lion"]  # fmt: skip
    everything = found["table"]["all features"]
    apart = found["table"]["without the three features"]["BRT"]["lion"]["cluster"]
    together = "do not join the other animals" if len(apart) <= 2 else "join other animals"
    return section(
        "Figure 1.8: objects and features",
        "rose_figure_1_8",
        paragraph(
            "60 objects × 100 features of the same norms; the paper does not list its own. BRT is "
            "simpler than BHC-γ and more probable, as in the paper. It says the same of BRT "
            f"against the other three: {simpler_note(everything)}. Lions and tigers have a cluster "
            "of their own, as in the paper; without the three features that it names they "
            f"{together} here (there they did): other features of this extract still set them "
            "apart. Purity is against animals, food, vehicles, tools."
        ),
        table(header, rows),
        "![Objects](results/papers/rose_figure_1_8.png)\n",
    )


def simpler_note(by_model: dict[str, Any]) -> str:
    """Return for which models BRT's tree is the more probable one, and the simpler one."""
    brt = by_model["BRT"]
    others = [m for m in MODELS if m not in ("BRT", "BHC-γ")]
    parts = []
    for key, sign, what in (
        ("log likelihood", 1, "more probable"),
        ("log10 partitions", -1, "simpler"),
    ):
        true = [m for m in others if sign * (brt[key] - by_model[m][key]) > 0]
        false = [m for m in others if m not in true]
        text = f"it is {what} than {', '.join(true) or 'none of them'}"
        parts.append(text + (f", **not than {', '.join(false)}**" if false else ""))
    return ", and ".join(parts)


def rose_figure_1_9(found: dict[str, Any]) -> str:
    rows = []
    for run in found["runs"]:
        bhc, brt = run["BHC-γ"], run["BRT"]
        rows.append(
            [
                str(run["seed"]),
                f"{run['single GP']['log_marginal_likelihood']:.0f}",
                f"{bhc['log_marginal_likelihood']:.0f} ({bhc['clusters_of_two_or_more']} clusters)",
                f"{brt['log_marginal_likelihood']:.0f} ({brt['clusters_of_two_or_more']} clusters)",
                ", ".join(map(str, brt["sizes_of_the_most_probable_partition"][:4])),
            ]
        )
    header = ["seed", "single GP", "BHC-γ", "BRT", "largest clusters of BRT's partition"]
    return section(
        "Figure 1.9: Gaussian-process experts",
        "rose_figure_1_9",
        paragraph(
            "Log likelihoods on 150 points of two interlaced waves. The paper, on points that "
            "are not "
            "published: −1037 for one Gaussian process, −801 for BHC-γ (149 clusters), 59 for "
            "BRT (3 "
            "clusters). The order holds on every seed and BRT's trees are of a few clusters where "
            "BHC-γ has 149; the levels are other points'. Kernel and γ were set by hand, as the "
            "[result's page](results/rose_figure_1_9.md) says."
        ),
        table(header, rows),
        "![Two waves](results/rose_figure_1_9.png)\n",
    )


def readings(found: dict[str, Any]) -> str:
    """Return what priors, thresholds, words and thousands of other e-mails do to the tables."""
    names = list(next(iter(found["priors"].values())))
    k = MODELS.index("BHC-γ")
    rows = [
        [data, cell(*found["paper"]["log predictive"][data][k], 1)]
        + [cell(*row[name], 1) for name in names]
        for data, row in found["priors"].items()
    ]
    best = max(value[0] for value in found["priors"]["spambase"].values())
    steps = []
    for data, by_threshold in found["thresholds"].items():
        printed = found["paper"]["log likelihood"][data]
        steps.append(
            [f"{data}, BHC-γ", cell(*printed[k], 0)]
            + [cell(*row["BHC-γ"], 0) for row in by_threshold.values()]
        )
        steps.append(
            [f"{data}, BRT", cell(*printed[MODELS.index("BRT")], 0)]
            + [cell(*row["BRT"], 0) for row in by_threshold.values()]
        )
    thresholds = list(next(iter(found["thresholds"].values())))
    bound = (
        f" Classifiers that have seen 3,000 other e-mails and every other entry of the row reach "
        f"{cell(*found['bound'], 0)}: the paper's −190 for the e-mails is between that and the "
        f"best prior here ({best:.0f}), so it is possible, but no prior tried here reaches it."
        if found["bound"]
        else ""
    )
    return section(
        "Tables 1.2 to 1.4: what the values depend on",
        "rose_tables_readings",
        paragraph(
            "These readings were looked at with the paper's values in hand; none is used above. "
            "Log predictive probability of BHC-γ by the prior of its clusters." + bound
        ),
        table(["data", "paper", *names], rows),
        paragraph(
            "Log likelihood with the default prior by the threshold of the digits (the paper: 32, "
            "and a learned prior, as in the column “learned” above):"
        ),
        table(["data, model", "paper", *thresholds], steps),
        *partition_readings(found),
    )


def partition_readings(found: dict[str, Any]) -> list[str]:
    """Return what the words and the strength of their prior do to the newsgroups' trees."""
    rows, models = [], ("BHC-γ", "BRT")
    paper = {s: found["paper"][s]["newsgroups"] for s in ("log likelihood", "log10 partitions")}
    printed = [
        cell(*paper[s][MODELS.index(m)], digits)
        for s, digits in (("log10 partitions", 1), ("log likelihood", 0))
        for m in models
    ]
    rows.append(["*the paper*", *printed])
    for name, by_model in found["partitions"].items():
        rows.append(
            [name]
            + [cell(*by_model[m]["log10 partitions"], 1) for m in models]
            + [cell(*by_model[m]["log likelihood"], 0) for m in models]
        )
    words = {n: r for n, r in found["partitions"].items() if not n.startswith("prior")}
    priors = {n: r for n, r in found["partitions"].items() if n.startswith("prior")}

    def lowest(part: dict[str, Any], model: str) -> str:
        counts = [row[model]["log10 partitions"][0] for row in part.values()]
        return f"{max(counts):.1f} to {min(counts):.1f}"

    target = paper["log10 partitions"]
    near = min(
        priors,
        key=lambda n: sum(
            abs(priors[n][m]["log10 partitions"][0] - target[MODELS.index(m)][0]) for m in models
        ),
    )
    likely = max(priors, key=lambda n: priors[n]["BRT"]["log likelihood"][0])
    text = (
        "log10 of the number of partitions on the newsgroups, and log likelihood, by the words "
        "that are kept (default prior), and by the strength of the default prior, which counts as "
        "much as so many rows (485 most frequent words; the default is 2 rows). The choice of "
        f"words moves BHC-γ from {lowest(words, 'BHC-γ')} and BRT from {lowest(words, 'BRT')}, the "
        f"strength from {lowest(priors, 'BHC-γ')} and {lowest(priors, 'BRT')}: the paper's 14 and "
        f"7 are nearest with a {near}. The likelihood is highest with a {likely}: the evidence of "
        "one shared strength asks for a stronger prior than the default, in the direction of the "
        "paper's counts; learning every number by itself finds a higher one with more partitions."
    )
    columns = [f"{what}, {m}" for what in ("partitions", "log likelihood") for m in models]
    return [paragraph(text), table(["reading", *columns], rows)]


ELSEWHERE = ("rose_figure_1_9",)
PARTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "rose_figure_1_1": rose_figure_1_1,
    "rose_tables": rose_tables,
    "rose_tables_readings": readings,
    "rose_figure_1_6": rose_figure_1_6,
    "rose_figure_1_7": rose_figure_1_7,
    "rose_figure_1_8": rose_figure_1_8,
    "rose_figure_1_9": rose_figure_1_9,
}
