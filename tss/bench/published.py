"""The numbers printed in "Sub-network Discovery and Soft-masking for Continual Learning of Mixed Tasks" (EMNLP 2023).

They come from another backbone (BART-large), so they are context beside ours, never a comparison on equal terms.
Lists over families are in the order of FAMILIES; None is a number that was not printed (or only by mistake).
"""

from __future__ import annotations

FAMILIES = ("asc", "ner", "sum", "ccd", "drg")
MAIN_METRIC = {"asc": "macro_f1", "ner": "entity_f1", "sum": "rouge1", "ccd": "macro_f1", "drg": "bleu"}
# (family, metric) of the secondary table
SECONDARY_METRICS = (("asc", "accuracy"), ("sum", "rouge2"), ("sum", "rougeL"), ("ccd", "accuracy"))
SETTINGS = ("heterogeneous", "homogeneous")
Numbers = tuple[float | None, ...]

# our name of a method -> the paper's
SYSTEMS = {
    "mtl": "MTL",
    "mtl-adapter": "MTL (Adapter)",
    "one": "ONE",
    "one-adapter": "ONE (Adapter)",
    "one-prompt": "ONE (Prompt)",
    "ncl": "NCL",
    "ewc": "EWC",
    "hat": "HAT",
    "das": "DAS",
    "supsup": "SupSup",
    "lamol": "LAMOL",
    "cat": "CAT",
    "ctr": "CTR",
    "cuber": "CUBER",
    "l2p": "L2P",
    "tss": "TSS",
    "tss-no-sd": "w/o SD",
    "tss-no-sm": "w/o SM",
    "tss-naive": "w/o SM; Naive",
}
# The same however the tasks are ordered or mixed.
_ALONE = {
    "MTL": (92.28, 63.33, 39.39, 90.57, 25.29),
    "ONE": (85.55, 59.33, 39.07, 91.07, 24.14),
    "ONE (Adapter)": (83.95, 56.69, 38.90, 90.78, 23.42),
    "ONE (Prompt)": (76.46, 45.90, 30.67, 86.23, 12.67),
}
_SUPSUP = (85.83, 58.93, 38.23, 90.66, 24.71)

# Main metrics by family.
MAIN: dict[str, dict[str, Numbers]] = {
    "heterogeneous": {
        **_ALONE,
        "MTL (Adapter)": (92.17, 60.61, 38.84, 91.09, 24.50),
        "NCL": (88.05, 34.56, 22.86, 81.86, 8.68),
        "EWC": (88.73, 28.75, 18.65, 83.24, 7.99),
        "HAT": (87.45, 50.16, 35.21, 89.85, 20.98),
        "DAS": (90.62, 43.38, 25.45, 82.66, 15.21),
        "SupSup": _SUPSUP,
        "CAT": (45.79, 35.24, 17.44, 36.62, 10.21),
        "CTR": (89.37, 50.16, 33.98, 89.96, 17.63),
        "CUBER": (90.58, 46.67, 30.94, 81.54, 15.68),
        "L2P": (78.10, 39.03, 28.34, 72.35, 4.55),
        "TSS": (90.61, 62.13, 38.29, 90.70, 24.56),
        "w/o SD": (86.54, 37.03, 28.04, 78.29, 14.85),
        "w/o SM": _SUPSUP,
        "w/o SM; Naive": (88.89, 34.79, 36.11, 89.99, 24.19),
    },
    "homogeneous": {
        **_ALONE,
        "NCL": (89.25, 49.19, 32.68, 85.08, 22.31),
        "EWC": (88.36, 51.76, 32.64, 87.27, 18.30),
        "HAT": (89.33, 52.31, 37.11, 90.21, 21.47),
        "DAS": (90.94, 42.12, 31.31, 87.97, 22.25),
        "SupSup": _SUPSUP,
        "LAMOL": (84.62, None, 10.88, 54.44, 19.96),
        "CAT": (84.31, 50.73, 37.24, 90.82, 21.72),
        "CTR": (88.86, 51.85, 37.34, 90.54, 21.39),
        "CUBER": (91.25, 47.19, 30.44, 89.19, 21.66),
        "L2P": (74.81, 44.22, 26.65, 85.35, 8.52),
        "TSS": (91.28, 63.96, 38.39, 90.89, 24.75),
        "w/o SD": (91.06, 40.47, 30.42, 88.34, 22.77),
        "w/o SM": _SUPSUP,
        "w/o SM; Naive": (90.38, 62.42, 38.08, 90.63, 24.59),
    },
}
# Mean of the five families and average forgetting rate, as printed.
AVERAGES: dict[str, dict[str, Numbers]] = {
    "heterogeneous": {
        "MTL": (62.17, None),
        "MTL (Adapter)": (61.44, None),
        "ONE": (59.83, None),
        "ONE (Adapter)": (58.75, None),
        "ONE (Prompt)": (50.39, None),
        "NCL": (47.20, 13.94),
        "EWC": (45.47, 13.43),
        "HAT": (56.73, 0.97),
        "DAS": (51.47, 10.49),
        "SupSup": (59.67, 0.0),
        "CAT": (29.06, 30.27),
        "CTR": (56.22, 0.95),
        "CUBER": (53.08, 7.27),
        "L2P": (44.47, 6.44),
        "TSS": (61.26, 0.0),
        "w/o SD": (48.95, 9.02),
        "w/o SM": (59.67, 0.0),
        "w/o SM; Naive": (54.80, 0.0),
    },
    "homogeneous": {
        "MTL": (62.17, None),
        "ONE": (59.83, None),
        "ONE (Adapter)": (58.75, None),
        "ONE (Prompt)": (50.39, None),
        "NCL": (55.70, 6.42),
        "EWC": (55.66, 5.53),
        "HAT": (58.08, 0.49),
        "DAS": (54.92, 9.26),
        "SupSup": (59.67, 0.0),
        "CAT": (56.96, 1.37),
        "CTR": (58.00, 0.65),
        "CUBER": (55.95, 5.82),
        "L2P": (47.91, 2.58),
        "TSS": (61.85, 0.0),
        "w/o SD": (54.61, 9.61),
        "w/o SM": (59.67, 0.0),
        "w/o SM; Naive": (61.22, 0.0),
    },
}
_SECONDARY_ALONE = {
    "MTL": (94.82, 10.33, 35.05, 90.55),
    "MTL (Adapter)": (94.65, 11.38, 34.81, 91.14),
    "ONE": (91.50, 10.71, 35.25, 91.09),
    "ONE (Adapter)": (90.90, 11.54, 35.23, 90.81),
    "ONE (Prompt)": (85.54, 7.23, 27.53, 86.28),
    "SupSup": (92.41, 11.44, 34.88, 90.68),
    "w/o SM": (92.41, 11.44, 34.88, 90.68),
}
# In the order of SECONDARY_METRICS.
SECONDARY: dict[str, dict[str, Numbers]] = {
    "heterogeneous": {
        **_SECONDARY_ALONE,
        "NCL": (92.60, 4.67, 20.61, 82.70),
        "EWC": (92.86, 21.22, 16.36, 83.92),
        "HAT": (92.77, 9.96, 31.83, 90.03),
        "DAS": (93.73, 5.88, 23.08, 84.39),
        "CAT": (50.08, 2.43, 15.50, 39.01),
        "CTR": (93.28, 9.97, 30.80, 89.98),
        "CUBER": (93.72, 7.30, 27.92, 81.41),
        "L2P": (87.97, 5.93, 25.44, 76.99),
        "TSS": (94.47, 11.77, 35.26, 90.70),
        "w/o SD": (71.55, 6.39, 25.57, 61.91),
        "w/o SM; Naive": (93.36, 10.27, 33.15, 89.99),
    },
    "homogeneous": {
        **_SECONDARY_ALONE,
        "NCL": (93.04, 6.84, 29.19, 85.10),
        "EWC": (92.60, 7.12, 29.00, 87.37),
        "HAT": (93.28, 10.40, 33.53, 90.23),
        "DAS": (94.20, 7.61, 28.79, 88.12),
        "LAMOL": (90.17, 1.39, 6.87, 67.04),
        "CAT": (88.98, 10.53, 33.77, 90.90),
        "CTR": (92.94, 10.73, 33.69, 90.58),
        "CUBER": (94.33, 6.75, 27.51, 89.27),
        "L2P": (84.64, 4.82, 23.90, 85.54),
        "TSS": (94.06, 11.60, 35.22, 90.92),
        "w/o SD": (94.24, 7.30, 27.83, 88.40),
        "w/o SM; Naive": (94.25, 11.52, 35.05, 90.74),
    },
}
_NOTHING_FORGOTTEN = dict.fromkeys(("TSS", "SupSup", "w/o SM", "w/o SM; Naive"), (0.0, 0.0, 0.0, 0.0, 0.0))
# Forgetting rate by family, on main metrics.
FORGETTING: dict[str, dict[str, Numbers]] = {
    "heterogeneous": {
        **_NOTHING_FORGOTTEN,
        "NCL": (1.89, 26.89, 15.79, 8.65, 16.47),
        "EWC": (-0.16, 29.29, 19.50, 3.06, 15.46),
        "HAT": (-0.98, 1.54, 2.21, 0.62, 1.44),
        "DAS": (-0.44, 21.66, 13.48, 8.02, 9.73),
        "CAT": (39.99, 18.30, 25.23, 53.85, 13.96),
        "CTR": (-0.15, 0.72, 2.31, 0.47, 1.42),
        "CUBER": (-1.84, 12.98, 11.54, 1.56, 12.09),
        "L2P": (2.53, 4.04, 5.84, 12.66, 7.16),
        "w/o SD": (-0.48, 20.90, 8.88, 8.38, 7.41),
    },
    "homogeneous": {
        **_NOTHING_FORGOTTEN,
        "NCL": (-0.44, 15.49, 8.37, 5.67, 3.01),
        "EWC": (7.81, 7.53, 2.58, 8.94, 0.78),
        "HAT": (-0.88, 0.79, 1.10, -0.07, 1.48),
        "DAS": (-0.81, 31.88, 7.87, 3.73, 3.61),
        "LAMOL": (-1.88, None, 3.90, 32.26, 2.29),
        "CAT": (2.05, 0.81, 1.85, -0.13, 2.26),
        "CTR": (-0.38, 0.58, 1.43, -0.27, 1.91),
        "L2P": (0.30, 0.96, 7.27, 0.94, 3.42),
        "w/o SD": (-1.71, 34.14, 10.18, 2.83, 2.62),
    },
}
# Population deviation over the five orders, main metrics, in points (the paper prints fractions of 1).
DEVIATIONS: dict[str, dict[str, Numbers]] = {
    "heterogeneous": {
        "NCL": (1.33, 13.97, 10.79, 1.50, 5.27),
        "EWC": (1.14, 12.78, 10.47, 1.71, 9.14),
        "HAT": (3.95, 0.78, 0.41, 0.20, 1.19),
        "DAS": (1.26, 3.48, 11.16, 2.41, 6.38),
        "CAT": (17.32, 0.34, 5.49, 11.76, 3.33),
        "CTR": (4.47, 7.12, 2.78, 14.92, 7.04),
        "CUBER": (1.75, 5.89, 6.82, 3.94, 6.31),
        "L2P": (1.73, 2.25, 3.28, 7.59, 2.87),
        "TSS": (0.58, 5.03, 0.25, 0.47, 0.58),
        "w/o SD": (8.66, 13.28, 5.36, 9.42, 5.41),
        "w/o SM; Naive": (0.96, 3.07, 1.06, 0.28, 0.49),
    },
    "homogeneous": {
        "NCL": (0.40, 7.67, 0.60, 2.33, 0.60),
        "EWC": (0.93, 7.07, 1.32, 2.27, 2.17),
        "HAT": (1.30, 0.63, 1.30, 0.28, 0.94),
        "DAS": (0.75, 6.47, 0.91, 1.78, 0.94),
        "LAMOL": (0.85, None, 1.25, 3.17, 0.68),
        "CAT": (0.96, 1.06, 1.04, 0.19, 0.51),
        "CTR": (0.80, 0.49, 1.16, 0.09, 1.27),
        "CUBER": (0.72, 5.43, 1.57, 0.69, 0.90),
        "L2P": (6.50, 0.22, 2.15, 1.81, 2.16),
        "TSS": (0.31, 0.32, 0.21, 0.24, 0.35),
        "w/o SD": (1.07, 6.95, 0.88, 2.74, 0.39),
        "w/o SM; Naive": (1.02, 0.67, 0.24, 0.19, 0.19),
    },
}
# TSS in each of the five orders: the families, then their mean.
TSS_ORDERS: dict[str, tuple[Numbers, ...]] = {
    "heterogeneous": (
        (90.61, 62.13, 38.29, 90.70, 24.56, 61.26),
        (90.07, 62.00, 38.56, 90.21, 24.25, 61.02),
        (89.34, 48.83, 37.80, 91.35, 25.92, 58.65),
        (89.59, 58.53, 38.39, 90.24, 25.25, 60.40),
        (88.95, 61.25, 38.31, 90.07, 25.07, 60.73),
    ),
    "homogeneous": (
        (91.57, 63.96, 38.46, 91.02, 24.89, 61.98),
        (91.65, 63.19, 38.53, 90.84, 24.07, 61.66),
        (90.96, 63.26, 38.58, 91.28, 24.81, 61.78),
        (91.48, 63.01, 38.14, 90.65, 25.02, 61.66),
        (90.94, 63.37, 38.06, 90.65, 24.97, 61.60),
    ),
}
# Parameters in millions, and minutes of training (heterogeneous; the caption says: for each task).
COSTS: dict[str, Numbers] = {
    **dict.fromkeys(("NCL", "EWC", "DAS", "CUBER", "TSS"), (896.9, 600.0)),
    "HAT": (958.0, 600.0),
    "LAMOL": (124.4, 550.0),
    "CAT": (896.9, 24000.0),
    "CTR": (1536.0, 48000.0),
    "L2P": (899.0, 650.0),
}
# MB that the paper reckons for one task: gates, an adapter, a whole LM.
STORAGE = {"gates": 3.1, "adapter": 25.2, "whole LM": 3600.0}
NOTES = (
    "Published numbers are of BART-large; systems are compared on one backbone only, the published column is context.",
    "Published heterogeneous TSS is called a mean of five orders but is order 0, the best one. The mean of the "
    "five orders is 89.71 / 58.55 / 38.27 / 90.51 / 25.01, on average 60.41: 0.74 above SupSup, not 1.59, and on "
    "NER below it.",
    "Published homogeneous TSS: CCD and DRG are means, NER 63.96 is order 0 (mean 63.36), ASC 91.28 and SUM 38.39 "
    "match neither (means 91.32, 38.35; mean of averages 61.74).",
    "Printed deviations of TSS are population deviations of the five orders; ours are computed alike.",
    "CUBER's homogeneous forgetting by family repeats CTR's row and is left out; its average is printed as 5.82. "
    "Heterogeneous it is 7.27 in one table and 7.52 in another; 7.27 fits its row.",
    "MTL (Adapter), homogeneous, repeats MTL's row and is left out.",
    "EWC, heterogeneous ROUGE-2 of 21.22 exceeds its ROUGE-1 of 18.65, which cannot be. CTR's heterogeneous CCD "
    "deviation of 14.92 cannot go with a mean of 89.96.",
    "w/o SD, heterogeneous accuracies (71.55, 61.91) lie far below its macro-F1 (86.54, 78.29): some runs seem to "
    "be recorded as 0.",
    "TSS is printed as best throughout, but heterogeneous DAS has 90.62 on ASC and SupSup 24.71 on DRG; "
    "homogeneous ASC accuracy is higher for DAS, CUBER, Naive and w/o SD. HAT and CTR share heterogeneous NER "
    "50.16.",
    "Naive, heterogeneous NER: 34.79 against 62.42 homogeneous, with nothing forgotten; implausible unless "
    "training stalled.",
    "The table of data sets lists AGNews with 2 classes and Yelp with 4: swapped. The text says 14 baselines, the "
    "table has 15 rows, and calls the heterogeneous part both left and right.",
    "896.9 M parameters are twice (BART-large plus 40 heads), a frozen copy included; 25.2 MB against 3.1 MB of "
    "storage is 8 times, not 7.",
)
