"""How far states may be from an independent computation, and why just so far.

Every figure was measured on the demo target (SmolLM2-135M, 9 samples of 1 to 1,024 tokens, one of random tokens) and
on a tiny random DeepSeek-V3-shaped mixture of experts (7 samples), vLLM 0.16 against transformers 4.57 on a CPU.

**float32** is compared with a bound: right states differ by 9e-7 (demo) and 3e-6 (experts), wrong ones by 1e-2 and
more.

**bfloat16 and float16** are compared with a measured *noise*: the error that transformers itself makes in that dtype
on the same samples, both against float32. The same 2% is noise in layer 29 and a fault in layer 1.
Figures are taken over rows, by their median, because single rows may be far off in right states: where a mixture of
experts is nearly tied, rounding decides who computes the row (errors of 0.5 to 1.0 in 1% of the rows, in vLLM and in
transformers alike but not in the same rows), and where large activations cancel, little is left but rounding.
"""

from __future__ import annotations

import math

FROBENIUS_FLOAT32 = 3e-5
"""a sample's relative error in one layer; worst seen 3e-6, and 9.4e-6 with other matrix kernels"""

ROW_FLOAT32 = 1e-3
"""a single row's; worst seen 4e-5, and 2.4e-4 with other matrix kernels where large activations cancel"""

LOGPROB_FLOAT32 = 1e-3
"""a log-probability's difference; worst seen 1.1e-4"""

NOISE_RATIO = 1.5
"""median row error over that of the noise, all samples' rows together; seen 0.98 to 1.12.

The demo target's median noise is 0.5% in layer 1 and 1.2% in layers 14, 26 and 29. A further error of 1%, independent
of the noise, makes the ratio 2.3 in layer 1 and 1.3 in the others: an error below the noise of every captured layer
does not show, and is what float32 stores are checked for."""

SAMPLE_RATIO = 3.0
"""the same for one sample, its noise taken to be at least the layer's; seen 0.16 to 1.55: one row that went to another
expert moves all that attend to it"""

SCALE = 4e-3
"""deviation from 1 of the median factor between states and reference; seen 1.1e-3. Rounding hardly scales a row, so a
factor of 1.01 shows although it is below the noise of its layer."""

OUTLIER = 6.0
"""a row is an outlier beyond so many times the layer's median noise"""

MATCH = 3.0
"""and matches a row of the reference within so many times that noise; nine right rows of ten are within
1.2 (demo) and 2.0 (experts) in the better half of the layers"""

OUTLIERS_RATIO, OUTLIERS_MORE = 2.0, 5
"""outliers may be so many times those of the noise, plus so many; seen 0 to 1.0 times"""

LOGPROB_RATIO = 1.5
"""median over rows of the largest log-probability difference, over that of the noise; seen 1.03 and 1.04"""


def few(rows: int) -> float:
    """What a bound on a ratio of medians gains where there are few rows: 4 / sqrt(rows), their spread being about 1."""
    return 4 / math.sqrt(max(rows, 1))


def scale_bound(noise: float, rows: int) -> float:
    """Bound for the median factor's deviation: `SCALE` and four standard errors, `noise` a row's relative error."""
    return SCALE + noise * few(rows)
