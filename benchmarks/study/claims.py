"""The paper's claims, its figures, and what decides each of them here."""

from typing import Any

from benchmarks.study.judgement import Comparison

C2R, PLAIN, ORT, MATRYOSHKA = "batchtopk_c2r", "batchtopk", "ort", "matryoshka_batchtopk"


def at_lambda(value: float) -> tuple[str, dict[str, Any]]:
    """C2R at a lambda: its architecture and options."""
    return C2R, {} if value == 5 else {"c2r_coefficient": value}


CLAIMS = [
    Comparison(
        "C2R preserves BatchTopK's reconstruction",
        "KL score 0.9629 for 0.9598",
        "explained_variance",
        (C2R, {}),
        (PLAIN, {}),
        0,
    ),
    Comparison(
        "C2R lowers BatchTopK's composition",
        "0.099 for 0.332",
        "composition",
        (C2R, {}),
        (PLAIN, {}),
        -1,
    ),
    Comparison(
        "C2R lowers BatchTopK's absorption",
        "0.059 for 0.199",
        "absorption",
        (C2R, {}),
        (PLAIN, {}),
        -1,
    ),
    Comparison(
        "C2R splits less than BatchTopK",
        "1.077 for 1.115",
        "split",
        (C2R, {}),
        (PLAIN, {}),
        -1,
    ),
    Comparison(
        "C2R absorbs less than OrtSAE",
        "0.066 for 0.082 (five seeds)",
        "absorption",
        (C2R, {}),
        (ORT, {}),
        -1,
    ),
    Comparison(
        "C2R's composition is below OrtSAE's",
        "0.099 for 0.104 (five seeds)",
        "composition",
        (C2R, {}),
        (ORT, {}),
        -1,
    ),
    Comparison(
        "C2R kills fewer latents than OrtSAE",
        "0.90 % for 4.61 %",
        "dead_latents",
        (C2R, {}),
        (ORT, {}),
        -1,
    ),
    Comparison(
        "Matryoshka absorbs less than C2R",
        "0.036 for 0.066",
        "absorption",
        (MATRYOSHKA, {}),
        (C2R, {}),
        -1,
    ),
    Comparison(
        "Matryoshka reconstructs worse than C2R",
        "KL score 0.9597 for 0.9628",
        "explained_variance",
        (MATRYOSHKA, {}),
        (C2R, {}),
        -1,
    ),
    Comparison(
        "Without nearest neighbours (NoNNR) reconstruction degrades",
        "KL score 0.9439 for 0.9629",
        "explained_variance",
        (C2R, {"c2r_pairs": "all"}),
        (C2R, {}),
        -1,
    ),
    Comparison(
        "NoNNR inflates composition",
        "0.566 for 0.099",
        "composition",
        (C2R, {"c2r_pairs": "all"}),
        (C2R, {}),
        1,
    ),
    Comparison(
        "NoNNR absorbs less",
        "0.026 for 0.059",
        "absorption",
        (C2R, {"c2r_pairs": "all"}),
        (C2R, {}),
        -1,
    ),
    Comparison(
        "Without the gate (NoRCG) reconstruction degrades",
        "KL score 0.8439 for 0.9629",
        "explained_variance",
        (C2R, {"c2r_gate": "none"}),
        (C2R, {}),
        -1,
    ),
    Comparison(
        "NoRCG inflates composition",
        "0.433 for 0.099",
        "composition",
        (C2R, {"c2r_gate": "none"}),
        (C2R, {}),
        1,
    ),
    *(
        Comparison(
            f"Composition falls from lambda {low:g} to {high:g}",
            figures,
            "composition",
            at_lambda(high),
            at_lambda(low),
            -1,
        )
        for low, high, figures in (
            (0.1, 0.5, "0.294 to 0.214"),
            (0.5, 1.0, "0.214 to 0.168"),
            (1.0, 5.0, "0.168 to 0.099"),
            (5.0, 10.0, "0.099 to 0.078"),
        )
    ),
    Comparison(
        "Reconstruction is stable up to lambda 5",
        "KL score 0.9629 at 0.1, 0.9629 at 5",
        "explained_variance",
        at_lambda(5),
        at_lambda(0.1),
        0,
    ),
    Comparison(
        "Reconstruction begins to degrade at lambda 10",
        "KL score 0.9521 for 0.9629",
        "explained_variance",
        at_lambda(10),
        at_lambda(5),
        -1,
    ),
    *(
        Comparison(
            f"C2R lowers {name}'s {metric}", figures, metric, (with_c2r, {}), (backbone, {}), -1
        )
        for name, backbone, with_c2r, metric, figures in (
            ("TopK", "topk", "topk_c2r", "composition", "0.100 for 0.331"),
            ("TopK", "topk", "topk_c2r", "absorption", "0.075 for 0.268"),
            ("OrtSAE", "ort", "ort_c2r", "composition", "0.066 for 0.105"),
            ("OrtSAE", "ort", "ort_c2r", "absorption", "0.052 for 0.061"),
            ("AbsTopK", "abstopk", "abstopk_c2r", "composition", "0.081 for 0.236"),
            ("AbsTopK", "abstopk", "abstopk_c2r", "absorption", "0.085 for 0.141"),
        )
    ),
    Comparison(
        "A penalty at every fifth step serves as well as at each",
        "preserves performance (its section 6.2)",
        "explained_variance",
        (C2R, {}),
        (C2R, {"c2r_interval": 1}),
        0,
    ),
    Comparison(
        "Neighbours among an eighth of the latents serve as well as among all",
        "preserves performance (its section 6.2)",
        "explained_variance",
        (C2R, {}),
        (C2R, {"c2r_chunk_size": None}),
        0,
    ),
    Comparison(
        "Eq. (13) holds for most absorption pairs (BatchTopK): their share, against one half",
        "88.1 %",
        "condition_satisfied",
        (PLAIN, {}),
        None,
        1,
        0.5,
    ),
    Comparison(
        "The primary feature's energy dominates the residual's (BatchTopK): median A/B, "
        "against 1",
        "81.56",
        "median_A_over_B",
        (PLAIN, {}),
        None,
        1,
        1.0,
    ),
    Comparison(
        "Rare features are not absorbed more than frequent ones (BatchTopK): "
        "correlation of absorption with frequency",
        "Pearson r = +0.301, p = 0.135",
        "pearson",
        (PLAIN, {}),
        None,
        0,
    ),
    Comparison(
        "C2R does not shift absorption to rare features: that correlation, less BatchTopK's",
        "consistency pressure remains effective across the frequency spectrum",
        "pearson",
        (C2R, {}),
        (PLAIN, {}),
        0,
    ),
]
UNTESTED = [
    ("Automatic interpretability is preserved", "0.924 for 0.921", "needs a language model"),
    ("Disentanglement (RAVEL) is preserved", "its bar chart", "needs Gemma-2-2B"),
    ("SCR and TPP improve", "0.105 for 0.035; 0.023 for 0.005", "needs Gemma-2-2B"),
    (
        "It holds for Qwen3-8B and Llama-3-8B, for layer 20, 1B tokens and The Pile",
        "its tables for each",
        "needs these models",
    ),
]
