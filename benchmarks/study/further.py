"""What is asked of the study beyond the paper's claims."""

from benchmarks.study.claims import C2R, ORT, PLAIN, at_lambda
from benchmarks.study.judgement import Comparison

AHEAD = (
    ("C2R finds more features than OrtSAE (MCC)", "mcc", 1),
    ("C2R finds more features than OrtSAE (F1)", "f1", 1),
    ("C2R reconstructs better than OrtSAE", "explained_variance", 1),
)
ABSORBS_LESS = ("C2R absorbs less than OrtSAE", "absorption", -1)
AT = {
    "At 5 and 0.25": (None, AHEAD),
    "At the same composition": ("composition", (*AHEAD, ABSORBS_LESS)),
    "At the same explained variance": ("explained_variance", (*AHEAD[:2], ABSORBS_LESS)),
}
FURTHER = [
    *(
        Comparison(f"{where}, {claim}", "", metric, (C2R, {}), (ORT, {}), sign, equal=equal)
        for where, (equal, claims) in AT.items()
        for claim, metric, sign in claims
    ),
    *(
        Comparison(
            f"With lambda {value}, C2R lowers BatchTopK's absorption",
            "",
            "absorption",
            at_lambda(value),
            (PLAIN, {}),
            -1,
        )
        for value in (20, 50)
    ),
]
