"""The commands of `./eyas`: each is a few lines that say what runs. Imports are inside, so that --list stays quick."""

from __future__ import annotations

from typing import Any

from invoke import Collection, Context, task

STAGE: dict[str, Any] = {"auto_shortflags": False}
MODEL_HELP = "folder (or hub name) of the target"
REMOTE_HELP = "run Python code that comes with the target; only for a target you trust"
STACK_HELP = "folder name under stacks/"
WHERE_HELP = {
    "runtime": "auto, docker or local (EYAS_RUNTIME); auto says what it chose and why",
    "gpus": "all, none, indices (0,1) or UUIDs of GPUs and MIG devices; all there are when not given",
}


def given(values: dict[str, Any]) -> dict[str, Any]:
    """A task's own flags: all of its arguments but invoke's context."""
    return {name: value for name, value in values.items() if name != "_"}


@task(
    **STAGE,
    help={
        "model_path": MODEL_HELP,
        "prepared_data": "tokenized.jsonl of prepare",
        "output_dir": "folder of the store",
        "batch_size": "samples in one engine step, at most",
        "max_seq_len": "tokens in one sample, at most",
        "tp_size": "tensor parallelism: devices that share the target",
        "gpu_memory_utilization": "share of each GPU's memory the engine may use",
        "layer_ids": "layers to capture, one value: '2 30 58 60'",
        "token_budget": "tokens in one engine step, at most",
        "dtype": "of target and states: auto, bfloat16, float16 or float32",
        "trust_remote_code": REMOTE_HELP,
        "over_long": "what to do with a sample over --max-seq-len: reject or cut",
        "engine": "speculators (on vLLM) or reference (transformers)",
        "storage": "how states lie on the disk: bf16 (as computed), bf16-zstd (compressed without loss) or fp8",
        "unit_deadline": "seconds a work unit may take before its engine counts as hung",
        "recheck": "before going on, compute the checksums of finished units again",
        "repair": "extract again what is damaged in a store, alone",
        "dry_run": "only say what would be done: plan, bytes, steps; with docker, print the docker run line",
        **WHERE_HELP,
    },
)
def extract(  # noqa: PLR0913, PLR0917 - the flags are the stage's own
    _: Context,
    model_path: str | None = None,
    prepared_data: str | None = None,
    output_dir: str | None = None,
    batch_size: str | None = None,
    max_seq_len: str | None = None,
    tp_size: str | None = None,
    gpu_memory_utilization: str | None = None,
    layer_ids: str | None = None,
    token_budget: str | None = None,
    dtype: str | None = None,
    trust_remote_code: bool = False,
    over_long: str | None = None,
    engine: str | None = None,
    storage: str | None = None,
    unit_deadline: str | None = None,
    recheck: bool = False,
    repair: bool = False,
    dry_run: bool = False,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """Take hidden states out of a target into a store."""
    flags = given(locals())
    from ops import stages

    stages.extract(flags)


@task(
    **STAGE,
    iterable=["input"],
    help={
        "input": "a file or folder, or hf:owner/name:split; ,weight= ,cap= ,format= behind it; may be given again",
        "format": "of all rows; seen row by row when not given",
        "seed": "of the rows that a weight takes",
        "workers": "processes; one a core when not given",
        "model_path": MODEL_HELP,
        "output_dir": "folder for tokenized.jsonl",
        "max_seq_len": "tokens in one sample, at most",
        "truncate": "of longer samples: right, left, reject, or split-turns",
        "train_on": "all: every answer is trained; last: a conversation's last",
        "min_trained_tokens": "leave out samples with fewer trained tokens",
        "special_tokens": "text that looks like special tokens: literal, reject, or encode",
        "day": "YYYY-MM-DD, told to chat templates that write today's date",
        "trust_remote_code": REMOTE_HELP,
        "show": "print the first N samples, what is trained on set apart",
        "show_ids": "with --show, the token ids too",
        "page": "write samples.html, a page of statistics and samples, to the output folder",
        **WHERE_HELP,
    },
)
def prepare(  # noqa: PLR0913, PLR0917 - the flags are the stage's own
    _: Context,
    input: list[str],
    format: str | None = None,
    seed: str | None = None,
    workers: str | None = None,
    model_path: str | None = None,
    output_dir: str | None = None,
    max_seq_len: str | None = None,
    truncate: str | None = None,
    train_on: str | None = None,
    min_trained_tokens: str | None = None,
    special_tokens: str | None = None,
    day: str | None = None,
    trust_remote_code: bool = False,
    show: str | None = None,
    show_ids: bool = False,
    page: bool = False,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """Turn conversations into samples with loss masks."""
    flags = given(locals())
    from ops import stages

    stages.prepare(flags)


@task(
    **STAGE,
    positional=["store"],
    help={
        "store": "folder of the store, or of a run: runs/demo",
        "reference": "recompute some samples with transformers and compare",
        "samples": "how many samples to recompute",
        "model_path": MODEL_HELP + ", where the store's own is elsewhere",
        **WHERE_HELP,
    },
)
def verify(  # noqa: PLR0913, PLR0917 - the flags are the stage's own
    _: Context,
    store: str,
    reference: bool = False,
    samples: str | None = None,
    model_path: str | None = None,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """Check a store, with --reference its states too."""
    flags = given(locals())
    from ops import stages

    stages.verify(flags.pop("store"), flags)


PROMPTS_HELP = "prompts or conversations, JSONL; may be given again"
DRAFT_TOKENS_HELP = "draft tokens in a round; 3 when not given"


@task(
    **STAGE,
    iterable=["input"],
    help={
        "input": PROMPTS_HELP,
        "model_path": MODEL_HELP,
        "output_dir": "folder for conversations.jsonl",
        "temperature": "0: always the likeliest token; higher: sampled",
        "top_p": "sample from the likeliest tokens that together have this probability",
        "top_k": "sample from this many of the likeliest tokens",
        "seed": "of what is sampled",
        "max_new_tokens": "tokens in one answer, at most",
        "unfinished": "answers that were cut off: reject or keep",
        "max_model_len": "tokens in one conversation, at most",
        "batch_size": "answers at work at once, at most",
        "tp_size": "tensor parallelism: devices that share the target",
        "dtype": "of the target: auto, bfloat16, float16 or float32",
        "gpu_memory_utilization": "share of each GPU's memory the engine may use",
        "trust_remote_code": REMOTE_HELP,
        "limit": "only the first so many conversations",
        **WHERE_HELP,
    },
)
def regenerate(  # noqa: PLR0913, PLR0917 - the flags are the stage's own
    _: Context,
    input: list[str],
    model_path: str | None = None,
    output_dir: str | None = None,
    temperature: str | None = None,
    top_p: str | None = None,
    top_k: str | None = None,
    seed: str | None = None,
    max_new_tokens: str | None = None,
    unfinished: str | None = None,
    max_model_len: str | None = None,
    batch_size: str | None = None,
    tp_size: str | None = None,
    dtype: str | None = None,
    gpu_memory_utilization: str | None = None,
    trust_remote_code: bool = False,
    limit: str | None = None,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """Have the target answer prompts itself."""
    flags = given(locals())
    from ops import drafts

    drafts.regenerate(flags)


@task(
    **STAGE,
    help={
        "store": "folder of the store to train from",
        "model_path": MODEL_HELP,
        "output_dir": "folder for vocabulary, checkpoints and report",
        "init_from": "checkpoint of a draft whose weights and vocabulary training begins with",
        "draft_config": "JSON file of LlamaConfig's fields that replace those derived from the target",
        "draft_layers": "decoder layers of the draft",
        "draft_vocab_size": "tokens that the draft can propose",
        "norm_before_fc": "normalise the auxiliary states before they are projected",
        "norm_output": "feed normalised states back from step to step",
        "start": "regression or random: weights of the projection of the auxiliary states",
        "train_lm_head": "train the output layer too, which begins with the target's rows",
        "validation_share": "share of the samples that is held out to choose the best checkpoint by",
        "seed": "of split, order and initial weights",
        "epochs": "how often every sample is trained on",
        "max_steps": "end after this many optimizer steps",
        "batch_tokens": "tokens in one step, at most, over all processes",
        "learning_rate": "at its highest",
        "weight_decay": "of AdamW",
        "optimizer": "adamw or muon",
        "schedule": "of the learning rate, after its warmup: cosine, linear or none",
        "warmup_share": "share of all steps in which the learning rate rises",
        "ttt_steps": "steps of training-time test: draft tokens in a row",
        "state_noise": "normal noise on the auxiliary states while training, relative to their root mean square",
        "ttt_warmup_share": "share of all steps in which only one token is proposed",
        "ttt_decay": "weight of each of these steps relative to the one before",
        "loss": "one of speculators' losses",
        "attention": "auto, flex, sdpa, flash or eager",
        "dtype": "what the draft computes in: auto, float32 or bfloat16",
        "nproc": "processes that train together, each with a GPU where there are any",
        "checkpoint_steps": "write a checkpoint after every so many steps",
        "checkpoint_minutes": "write a checkpoint after so many minutes",
        "keep": "checkpoints to keep besides the best and the untrained one",
        "log_every": "steps from one entry in the log to the next",
        "loggers": "tensorboard, trackio, or both with a comma",
        "dry_run": "only say what would be done; with docker, print the docker run line",
        **WHERE_HELP,
    },
)
def train(  # noqa: PLR0913, PLR0917 - the flags are the stage's own
    _: Context,
    store: str | None = None,
    model_path: str | None = None,
    output_dir: str | None = None,
    init_from: str | None = None,
    draft_config: str | None = None,
    draft_layers: str | None = None,
    draft_vocab_size: str | None = None,
    norm_before_fc: bool = False,
    norm_output: bool = False,
    start: str | None = None,
    train_lm_head: bool = False,
    validation_share: str | None = None,
    seed: str | None = None,
    epochs: str | None = None,
    max_steps: str | None = None,
    batch_tokens: str | None = None,
    learning_rate: str | None = None,
    weight_decay: str | None = None,
    optimizer: str | None = None,
    schedule: str | None = None,
    warmup_share: str | None = None,
    ttt_steps: str | None = None,
    state_noise: str | None = None,
    ttt_warmup_share: str | None = None,
    ttt_decay: str | None = None,
    loss: str | None = None,
    attention: str | None = None,
    dtype: str | None = None,
    nproc: str | None = None,
    checkpoint_steps: str | None = None,
    checkpoint_minutes: str | None = None,
    keep: str | None = None,
    log_every: str | None = None,
    loggers: str | None = None,
    dry_run: bool = False,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """Train an EAGLE-3 draft from a store."""
    flags = given(locals())
    from ops import drafts

    drafts.train(flags)


@task(
    **STAGE,
    help={
        "store": "folder of a store of held-out samples: the target's own greedy answers",
        "model_path": MODEL_HELP,
        "draft": "folder of the draft's checkpoint",
        "output_dir": "folder for estimate.json",
        "num_speculative_tokens": DRAFT_TOKENS_HELP,
        **WHERE_HELP,
    },
)
def estimate(  # noqa: PLR0913, PLR0917 - the flags are the stage's own
    _: Context,
    store: str | None = None,
    model_path: str | None = None,
    draft: str | None = None,
    output_dir: str | None = None,
    num_speculative_tokens: str | None = None,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """Compute a draft's acceptance length from held-out states."""
    flags = given(locals())
    from ops import drafts

    drafts.estimate(flags)


@task(
    **STAGE,
    iterable=["draft", "estimate"],
    help={
        "draft": "NAME=FOLDER of a draft's checkpoint or export; may be given again",
        "input": "held-out prompts, JSONL",
        "model_path": MODEL_HELP,
        "output_dir": "folder for evaluation.json and answers.jsonl",
        "num_speculative_tokens": DRAFT_TOKENS_HELP,
        "max_new_tokens": "tokens in one answer, at most",
        "limit": "only the first so many prompts",
        "batch_size": "answers at work at once, at most; 1 when not given",
        "dtype": "of target and draft: auto, bfloat16, float16 or float32",
        "tp_size": "tensor parallelism: devices that share the target",
        "estimate": "estimate.json of the estimate stage, to be compared; may be given again",
        "trust_remote_code": REMOTE_HELP,
        **WHERE_HELP,
    },
)
def evaluate(  # noqa: PLR0913, PLR0917 - the flags are the stage's own
    _: Context,
    draft: list[str],
    estimate: list[str],
    input: str | None = None,
    model_path: str | None = None,
    output_dir: str | None = None,
    num_speculative_tokens: str | None = None,
    max_new_tokens: str | None = None,
    limit: str | None = None,
    batch_size: str | None = None,
    dtype: str | None = None,
    tp_size: str | None = None,
    trust_remote_code: bool = False,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """Serve a target with and without drafts, and compare."""
    flags = given(locals())
    from ops import drafts

    drafts.evaluate(flags)


@task(
    **STAGE,
    help={
        "draft": "folder of the draft's checkpoint",
        "model_path": MODEL_HELP,
        "output_dir": "folder for speculators/ and eagle3/",
        "store": "store that it was trained from, for the model card",
        "train_report": "report.json of the train stage, for the model card",
        "evaluation": "evaluation.json of the evaluate stage, for the model card",
        "verifier_name": "the target's name at its hub, for config and model card; its folder's when not given",
        "dtype": "of the weights: bfloat16, float16 or float32",
        "format": "speculators, eagle3, or both",
        "overwrite": "replace another export that is there",
        **WHERE_HELP,
    },
)
def export(  # noqa: PLR0913, PLR0917 - the flags are the stage's own
    _: Context,
    draft: str | None = None,
    model_path: str | None = None,
    output_dir: str | None = None,
    store: str | None = None,
    train_report: str | None = None,
    evaluation: str | None = None,
    verifier_name: str | None = None,
    dtype: str | None = None,
    format: str | None = None,
    overwrite: bool = False,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """Write a draft in the forms that vLLM and SGLang load."""
    flags = given(locals())
    from ops import drafts

    drafts.export(flags)


@task(
    **STAGE,
    iterable=["force"],
    help={
        "config": "recipe, TOML; the demo's when not given (examples/recipes/ has more)",
        "run_dir": "folder for all that is made; runs/ and the recipe's name when not given",
        "until": "last step to run; --dry-run lists the steps",
        "from": "first step to run; what is before it must have been done, and is taken as it is",
        "force": "run this step even if nothing has changed; may be given again",
        "dry_run": "only print every stage's command, why it would run, and what the recipe will take",
        **WHERE_HELP,
    },
)
def pipeline(  # noqa: PLR0913, PLR0917 - flags
    _: Context,
    force: list[str],
    config: str | None = None,
    run_dir: str | None = None,
    until: str | None = None,
    from_: str | None = None,
    dry_run: bool = False,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """From prompts to a served draft: all stages, each only when something changed."""
    flags = given(locals())
    from ops.pipeline.command import pipeline as run

    run(flags | {"start": flags.pop("from_")})


@task(
    **STAGE,
    help={
        "model_path": MODEL_HELP + ", to be seen there",
        "prepared_data": "tokenized.jsonl, to be seen there",
        "output_dir": "folder that may be written",
        "gpus": WHERE_HELP["gpus"],
    },
)
def shell(
    _: Context,
    model_path: str | None = None,
    prepared_data: str | None = None,
    output_dir: str | None = None,
    gpus: str | None = None,
) -> None:
    """Open a shell in the image, with a stage's mounts."""
    flags = given(locals())
    from ops import stages

    stages.shell(flags)


@task(**STAGE, help={"follow": "go on until the container ends"})
def logs(_: Context, follow: bool = False) -> None:
    """Print what the newest container has printed."""
    from ops.container import commands

    commands.logs(follow=follow)


@task
def stop(_: Context) -> None:
    """Stop the running containers of this checkout."""
    from ops.container import commands

    commands.stop()


@task(
    **STAGE, iterable=["only"], help={"only": "path of tests to run; may be given again", "keyword": "as pytest's -k"}
)
def test(_: Context, only: list[str], keyword: str = "") -> None:
    """Run lint and all tests."""
    from ops import suite

    suite.test(only, keyword)


IMAGE_HELP = {
    "accelerator": "cuda or cpu; cuda where there is a GPU when not given",
    "base_image": "instead of stack.toml's: a mirror's name for it, or another image",
    "run_image": "the same for the image that the stages run in",
    "skip_source_builds": "leave out what is compiled from source (flash-attn)",
    "max_jobs": "compilers at work at once, 4 when not given; each takes some 5 GiB",
    "cuda_archs": "GPU architectures to compile for; 90;100;120 when not given",
    "only": "install these packages alone: a light image, for tests of the build",
    "no_cache": "build every layer again",
    "network": "host: the build's downloads go through the host's own network",
    "apt_snapshot": "moment of the operating system's packages, as 20261101T000000Z, instead of stack.toml's; or none",
    "ca": "certificates to trust in downloads; SSL_CERT_FILE's when not given",
    "uv_config": "a uv.toml that names a mirror of the package index",
    "stack": STACK_HELP + ", or all",
}


@task(**STAGE, help=IMAGE_HELP | {"check_reproducible": "build the commit twice with no cache and compare the digests"})
def build(  # noqa: PLR0913, PLR0917 - the flags are the build's own
    _: Context,
    accelerator: str = "",
    base_image: str = "",
    run_image: str = "",
    skip_source_builds: bool = False,
    max_jobs: str = "",
    cuda_archs: str = "",
    only: str = "",
    no_cache: bool = False,
    network: str = "",
    apt_snapshot: str = "",
    ca: str = "",
    uv_config: str = "",
    check_reproducible: bool = False,
    stack: str = "extract",
) -> None:
    """Build the image of a stack."""
    flags = given(locals())
    from ops.image import commands

    commands.run_build(flags)


@task(**STAGE, help=IMAGE_HELP)
def smoke(  # noqa: PLR0913, PLR0917 - the flags are those of build
    _: Context,
    accelerator: str = "",
    base_image: str = "",
    run_image: str = "",
    skip_source_builds: bool = False,
    max_jobs: str = "",
    cuda_archs: str = "",
    only: str = "",
    no_cache: bool = False,
    network: str = "",
    apt_snapshot: str = "",
    ca: str = "",
    uv_config: str = "",
    stack: str = "extract",
) -> None:
    """Check that an image is what it says, and starts."""
    flags = given(locals())
    from ops.image import commands

    commands.run_smoke(flags)


@task
def lint(_: Context) -> None:
    """Check style, types, imports and scripts."""
    from ops import suite

    suite.lint()


@task
def doctor(_: Context) -> None:
    """Say what this machine can do and what is missing."""
    from ops.doctor import report

    report()


@task(name="clean", help={"dry_run": "only say what would be removed"})
def clean(_: Context, dry_run: bool = False) -> None:
    """Remove environments of older locks and patches from the cache."""
    from ops import clean as cleaning

    cleaning.clean(dry_run=dry_run)


STORE_HELP = "folder of a complete store, or of a run: runs/demo"


@task(
    name="merge",
    **STAGE,
    positional=["out"],
    iterable=["part"],
    help={"out": "folder of the new store", "part": STORE_HELP + "; may be given again", **WHERE_HELP},
)
def store_merge(_: Context, out: str, part: list[str], runtime: str | None = None, gpus: str | None = None) -> None:
    """Make one store of several of the same target and settings."""
    flags = given(locals())
    from ops import stores

    stores.merge(flags.pop("out"), flags.pop("part"), flags)


@task(
    name="export",
    **STAGE,
    positional=["store"],
    help={
        "store": STORE_HELP,
        "to": "whose form: speculators-0.3.0 or speculators-0.9.0",
        "output_dir": "folder of the files; must not exist",
        **WHERE_HELP,
    },
)
def store_export(
    _: Context,
    store: str,
    to: str | None = None,
    output_dir: str | None = None,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """Write a store's samples as files that speculators reads."""
    flags = given(locals())
    from ops import stores

    stores.export(flags.pop("store"), flags)


@task(
    name="split",
    **STAGE,
    positional=["store"],
    help={
        "store": STORE_HELP,
        "parts": "parts of whole units with about as many rows each",
        "ids": "file with one id a line: a store with these samples and one without them",
        "output_dir": "folder for the new stores",
        **WHERE_HELP,
    },
)
def store_split(  # noqa: PLR0913, PLR0917 - the flags are the stage's own
    _: Context,
    store: str,
    parts: str | None = None,
    ids: str | None = None,
    output_dir: str | None = None,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """Cut a store into parts, or into some samples and the others."""
    flags = given(locals())
    from ops import stores

    stores.from_one("split", flags.pop("store"), flags)


@task(
    name="prune",
    **STAGE,
    positional=["store"],
    help={
        "store": STORE_HELP,
        "ids": "file with one id a line: samples to leave out",
        "shorter_than": "leave out samples of fewer tokens",
        "longer_than": "leave out samples of more tokens",
        "untrained": "leave out samples of which no token is trained on",
        "output_dir": "folder of the new store",
        **WHERE_HELP,
    },
)
def store_prune(  # noqa: PLR0913, PLR0917 - the flags are the stage's own
    _: Context,
    store: str,
    ids: str | None = None,
    shorter_than: str | None = None,
    longer_than: str | None = None,
    untrained: bool = False,
    output_dir: str | None = None,
    runtime: str | None = None,
    gpus: str | None = None,
) -> None:
    """Make a store without some samples of another."""
    flags = given(locals())
    from ops import stores

    stores.from_one("prune", flags.pop("store"), flags)


@task(
    name="stats",
    **STAGE,
    positional=["store"],
    help={"store": STORE_HELP, "json": "file for all figures", **WHERE_HELP},
)
def store_stats(
    _: Context, store: str, json: str | None = None, runtime: str | None = None, gpus: str | None = None
) -> None:
    """Say what is in a store, from its records alone."""
    flags = given(locals())
    from ops import stores

    stores.from_one("stats", flags.pop("store"), flags)


@task(name="lock", **STAGE, help={"stack": STACK_HELP})
def stack_lock(_: Context, stack: str = "extract") -> None:
    """Make all locks: the stack's and the tools'."""
    from ops.stack import commands

    commands.lock(stack)


@task(name="show", **STAGE, help={"stack": STACK_HELP})
def stack_show(_: Context, stack: str = "extract") -> None:
    """Print all that a stack pins, and its digests."""
    from ops.stack import commands

    commands.show(stack)


@task(name="verify", **STAGE, help={"stack": STACK_HELP})
def stack_verify(_: Context, stack: str = "extract") -> None:
    """Check that a stack's files and its environment agree."""
    from ops.stack import commands

    commands.verify(stack)


@task(
    name="pin-nightly",
    **STAGE,
    help={
        "commit": "vLLM commit, all 40 hex digits",
        "index": "base address of the nightly wheels; vLLM's own when not given",
        "sha256": "what the wheel must have, where it is known from elsewhere",
        "stack": STACK_HELP,
    },
)
def stack_pin_nightly(_: Context, commit: str, index: str = "", sha256: str = "", stack: str = "extract") -> None:
    """Pin the GPU side to a vLLM nightly by its commit."""
    from ops.stack import commands

    commands.pin(stack, commit, index, sha256)


@task(name="status", **STAGE, help={"stack": STACK_HELP})
def patch_status(_: Context, stack: str = "extract") -> None:
    """Say which patches there are and if they are in place."""
    from ops import patching

    patching.status(stack)


@task(name="verify", **STAGE, help={"stack": STACK_HELP})
def patch_verify(_: Context, stack: str = "extract") -> None:
    """Check that the installed package is patched to the byte."""
    from ops import patching

    patching.verify(stack)


@task(
    name="new",
    **STAGE,
    help={
        "edited": "folder that holds the edited copy of the patched package",
        "name": "what it fixes, in lower case with hyphens",
        "description": "what is wrong and why this is right; the first line is the summary",
        "test": "pytest node id of the test that fails without the patch",
        "author": "Name <address>",
        "stack": STACK_HELP,
    },
)
def patch_new(  # noqa: PLR0913, PLR0917 - the flags are the header's fields
    _: Context, edited: str, name: str, description: str, test: str, author: str, stack: str = "extract"
) -> None:
    """Make the next patch from an edited copy of the package."""
    from ops import patching

    patching.new(stack, edited, name=name, description=description, test=test, author=author)


@task(name="refresh", **STAGE, help={"stack": STACK_HELP})
def patch_refresh(_: Context, stack: str = "extract") -> None:
    """Make patches fit exactly again after editing by hand."""
    from ops import patching

    patching.refresh(stack)


@task(name="rebase", **STAGE, help={"to": "the package's new version", "stack": STACK_HELP})
def patch_rebase(_: Context, to: str, stack: str = "extract") -> None:
    """Carry the patches over to another upstream version."""
    from ops import patching

    patching.rebase(stack, to)


@task(name="extract", **STAGE)
def bench_extract(_: Context) -> None:
    """Measure extraction against the engine's bare prefill."""
    from ops import stages

    stages.bench("bench.extract")


@task(name="compare", **STAGE, positional=["one", "two"], help={"one": "a store", "two": "a store of the same samples"})
def bench_compare(_: Context, one: str, two: str) -> None:
    """Compare two stores of the same samples bit by bit."""
    from ops import stages

    stages.bench_alone("bench.compare", one, two)


@task(
    name="store",
    **STAGE,
    help={
        "folder": "where to write; the system's folder for temporary files when not given",
        "steps": "steps of the engine in one turn",
        "equivalent_gb": "how much each way writes in all",
    },
)
def bench_store(
    _: Context, folder: str | None = None, steps: str | None = None, equivalent_gb: str | None = None
) -> None:
    """Measure writing a store against the disk itself."""
    flags = given(locals())
    from ops import stages
    from ops.flags import to_flags

    stages.bench_alone("bench.store", *to_flags(flags))


@task(name="kill", **STAGE, help={"kills": "how many runs are killed"})
def bench_kill(_: Context, kills: str | None = None) -> None:
    """Kill runs at random moments and compare what comes of them."""
    flags = given(locals())
    from ops import stages
    from ops.flags import to_flags

    stages.bench("bench.kill", *to_flags(flags))


@task(name="kill-engine", **STAGE, help={"kills": "how many runs are killed"})
def bench_kill_engine(_: Context, kills: str | None = None) -> None:
    """Kill runs with vLLM at random moments and compare what comes of them."""
    flags = given(locals())
    from ops import stages
    from ops.flags import to_flags

    stages.bench("bench.kill_engine", *to_flags(flags))


@task(name="scale", **STAGE, iterable=["samples"], help={"samples": "how many; may be given again"})
def bench_scale(_: Context, samples: list[str]) -> None:
    """Measure plans and stores as samples grow."""
    from ops import stages
    from ops.flags import to_flags

    stages.bench_alone("bench.scale", *to_flags({"samples": samples}))


@task(
    name="prepare",
    **STAGE,
    iterable=["rows"],
    help={
        "rows": "of a run; may be given again; 10,000, 100,000 and 1,000,000 when not given",
        "workers": "processes, and the bare tokenizer's threads; 2",
        "folder": "where to write the data; runs/",
    },
)
def bench_prepare(_: Context, rows: list[str], workers: str | None = None, folder: str | None = None) -> None:
    """Measure preparation against the bare tokenizer."""
    flags = given(locals())
    from ops import stages
    from ops.flags import to_flags

    stages.bench_target("bench.prepare", *to_flags(flags))


@task(
    name="read",
    **STAGE,
    help={"store": "read this one's samples instead of made-up ones", "folder": "where to write the data, 4 GB; runs/"},
)
def bench_read(_: Context, store: str | None = None, folder: str | None = None) -> None:
    """Measure random reads of a store against torch.load."""
    flags = given(locals())
    from ops import stages
    from ops.flags import to_flags

    stages.bench_alone("bench.read", *to_flags(flags))


@task(
    name="train",
    **STAGE,
    help={
        "store": "train on this one's samples instead of made-up ones",
        "model_path": "the store's target; what its manifest names when not given",
        "folder": "where to write the data; runs/",
        "steps": "optimizer steps of a turn",
        "turns": "turns of each data path",
        "workers": "of speculators' loader; as many as it starts by default when not given",
    },
)
def bench_train(  # noqa: PLR0913, PLR0917 - the flags are the benchmark's own
    _: Context,
    store: str | None = None,
    model_path: str | None = None,
    folder: str | None = None,
    steps: str | None = None,
    turns: str | None = None,
    workers: str | None = None,
) -> None:
    """Measure training from a store against speculators' own data path."""
    flags = given(locals())
    from ops import stages
    from ops.flags import to_flags
    from ops.stack.stages import TRAIN

    stages.bench_alone("bench.train", *to_flags(flags), stack=TRAIN)


@task(name="train-kill", **STAGE, help={"kills": "how many runs are killed", "seed": "of the moments"})
def bench_train_kill(_: Context, kills: str | None = None, seed: str | None = None) -> None:
    """Kill training at random moments and compare what comes of it."""
    flags = given(locals())
    from ops import stages
    from ops.flags import to_flags
    from ops.stack.stages import TRAIN

    stages.bench_alone("bench.train_kill", *to_flags(flags), stack=TRAIN)


@task(
    name="wrong-drafts",
    **STAGE,
    help={
        "store": "states to train on",
        "off_store": "of the same data, one layer further on each",
        "held_out": "the store to estimate with",
        "model_path": MODEL_HELP,
        "output_dir": "folder for the drafts",
    },
)
def bench_wrong_drafts(_: Context, store: str, off_store: str, held_out: str, model_path: str, output_dir: str) -> None:
    """Train drafts with one mistake each and measure what it costs."""
    flags = given(locals())
    from ops import stages
    from ops.flags import to_flags
    from ops.stack.stages import TRAIN

    stages.bench_alone("bench.wrong_drafts", *to_flags(flags), stack=TRAIN)


def commands() -> Collection:
    """All commands, those about one thing in a group of their own."""
    stages = (regenerate, prepare, extract, verify, train, estimate, evaluate, export)
    top = Collection(*stages, pipeline, build, smoke, shell, logs, stop, test, lint, doctor, clean)
    top.add_collection(Collection("store", store_merge, store_split, store_prune, store_stats, store_export))
    top.add_collection(Collection("patch", patch_status, patch_verify, patch_new, patch_refresh, patch_rebase))
    measured = (bench_extract, bench_compare, bench_scale, bench_store, bench_read, bench_kill, bench_kill_engine)
    more = (bench_prepare, bench_train, bench_train_kill, bench_wrong_drafts)
    top.add_collection(Collection("bench", *measured, *more))
    top.add_collection(Collection("stack", stack_lock, stack_show, stack_verify, stack_pin_nightly))
    return top


if __name__ == "__main__":
    from ops.program import run

    run(commands())
