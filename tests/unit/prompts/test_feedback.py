"""Feedback: golden messages for the main kinds, and properties for every verdict."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.categories import CATEGORY_BY_STATUS, category_of
from kb_ray.prompts.feedback import MAX_CHARS, feedback
from kb_ray.records import ErrorDetail, Evidence, Stage, Status, Timing, Verdict

TOLD = [status for status in Status if status is not Status.INFRA_ERROR]


def timing(median_ms: float) -> Timing:
    return Timing(median_ms=median_ms, trimmed_mean_ms=median_ms, std_ms=0.0, n=50)


def error(status: Status, **fields: object) -> ErrorDetail:
    return ErrorDetail.model_validate({"category": CATEGORY_BY_STATUS[status], "message": "it failed", **fields})


def test_a_compile_error_shows_the_line_the_source_and_the_usual_cause() -> None:
    detail = "  12 |     y = tl.tanh(x)\n     |         ^^^^^^^"
    message = "AttributeError: module 'triton.language' has no attribute 'tanh'"
    status = Status.COMPILE_ERROR
    told = feedback(
        Verdict.of(status, Stage.COMPILE, tests_total=5, error=error(status, message=message, detail=detail, line=12)),
        1.0,
    )
    assert told == (
        "## Evaluation Feedback\n"
        "- **Status**: COMPILATION ERROR - A kernel does not compile\n"
        "- **Compiled**: No\n"
        "- **Tests Passed**: 0/5\n"
        "\n"
        "### Error Details\n"
        "```\n"
        f"line 12: {message}\n"
        f"{detail}\n"
        "```\n"
        "\n"
        "## Instructions\n"
        "Triton cannot compile the kernel. Correct the operation in the line shown. Use only functions that "
        "`triton.language` has, compile-time constants declared as `tl.constexpr`, and block shapes that fit each "
        "other.\n"
        "- `triton.language` has no function of that name: express it with the operations it has, such as `tl.exp`, "
        "`tl.log`, `tl.maximum`, `tl.sigmoid` and `tl.erf`; tanh(x), for example, is 2 * tl.sigmoid(2 * x) - 1.\n"
        "\n"
        "Reply with the complete corrected file between `<triton>` and `</triton>`.\n"
    )


def test_a_mismatch_shows_where_how_much_and_in_which_pattern() -> None:
    status = Status.MISMATCH
    detail = error(
        status,
        message="the output differs in test 3 (new_seed)",
        output="out[1]",
        position=(3, 5),
        expected="1.25",
        got="0.0",
        max_abs_error=1.25,
        max_rel_error=1.0,
        wrong_elements=34,
        total_elements=1024,
        pattern="only the tail from flat index 990",
    )
    told = feedback(Verdict.of(status, Stage.FULL, tests_passed=2, tests_total=5, error=detail), 1.0)
    assert "- **Status**: CORRECTNESS ERROR - The output differs from the reference's\n- **Compiled**: Yes\n" in told
    assert "- **Tests Passed**: 2/5\n" in told
    assert (
        "```\n"
        "the output differs in test 3 (new_seed)\n"
        "Wrong elements of out[1]: 34 of 1024 (only the tail from flat index 990)\n"
        "At [3, 5]: expected 1.25, got 0.0\n"
        "Largest error: absolute 1.25, relative 1\n"
        "```\n"
    ) in told
    assert "look at the last block, its mask, and the grid" in told


def test_a_slow_kernel_is_told_both_times_the_speedup_and_the_target() -> None:
    verdict = Verdict.of(
        Status.OK,
        Stage.TIMING,
        trusted=True,
        tests_passed=5,
        tests_total=5,
        speedup=0.8125,
        speedup_low=0.79,
        speedup_high=0.83,
        kernel_time=timing(0.123),
        reference_time=timing(0.1),
    )
    told = feedback(verdict, 1.5)
    assert told.startswith(
        "## Evaluation Feedback\n"
        "- **Status**: TOO SLOW - Correct, but slower than the target\n"
        "- **Compiled**: Yes\n"
        "- **Tests Passed**: 5/5\n"
        "- **Speed**: kernel 0.123 ms, reference 0.1 ms (medians), speedup 0.812 (95 % interval 0.79 to 0.83); "
        "the target is 1.50\n"
        "\n"
        "## Instructions\n"
        "The result is correct; make it faster"
    )


@pytest.mark.parametrize(
    ("fields", "target", "category", "said"),
    [
        ({"speedup": 0.9, "trusted": True}, 1.0, "TOO SLOW", "slower than the target"),
        ({"speedup": 1.9, "trusted": True}, 2.0, "TOO SLOW", "slower than the target"),
        ({"speedup": 1.0, "trusted": True}, 1.0, "SUCCESS", "fast enough"),
        ({"speedup": 90.0, "trusted": False}, 1.0, "SUCCESS", "not confirmed"),
        ({"trusted": False}, 1.0, "SUCCESS", "cannot be measured here"),
    ],
)
def test_a_correct_kernel_is_too_slow_or_a_success(
    fields: dict[str, object], target: float, category: str, said: str
) -> None:
    verdict = Verdict.of(Status.OK, Stage.TIMING, **fields)
    assert category_of(verdict, target) == category
    assert f"- **Status**: {category} - " in feedback(verdict, target)
    assert said in feedback(verdict, target)


def test_a_hack_is_told_what_was_seen() -> None:
    evidence = Evidence(
        kernel_launches=0, torch_ops={"aten::relu": 5, "aten::add": 10}, flags=("gpu_busy", "zeros_pass")
    )
    status = Status.HACK
    told = feedback(Verdict.of(status, Stage.FULL, evidence=evidence, error=error(status)), 1.0)
    assert "NOT A REAL KERNEL" in told
    assert "Launches of kernels of this file: 0\n" in told
    assert "PyTorch operators that computed: aten::add x10, aten::relu x5\n" in told
    assert "work was left on the GPU" in told
    assert "zeros" not in told, "what would pass for a task is never told"


def test_a_cut_off_answer_is_told_of_the_limit_and_a_missing_one_what_was_looked_for() -> None:
    cut, missing = Status.TRUNCATED, Status.NO_CODE
    looked = "the answer is empty; looked for <triton>...</triton>"
    assert "token limit" in feedback(Verdict.of(cut, Stage.EXTRACT, error=error(cut)), 1.0)
    assert looked in feedback(Verdict.of(missing, Stage.EXTRACT, error=error(missing, message=looked)), 1.0)


@pytest.mark.parametrize("status", TOLD)
def test_every_status_has_its_category_a_summary_and_guidance_of_its_own(status: Status) -> None:
    told = feedback(Verdict.of(status, Stage.FULL, error=error(status)), 1.0)
    assert f"- **Status**: {CATEGORY_BY_STATUS[status]} - " in told
    guidance = told.split("## Instructions\n")[1]
    others = [feedback(Verdict.of(other, Stage.FULL, error=error(other)), 1.0) for other in TOLD if other != status]
    assert all(guidance not in other for other in others)


def test_every_guidance_file_is_used() -> None:
    names = {entry.name for entry in (files("kb_ray.prompts") / "guidance").iterdir()}
    used = {f"{status.value}.md" for status in TOLD if status is not Status.OK}
    assert names == used | {"success.md", "too_slow.md", "unconfirmed.md", "closing.md"}


def test_a_failure_of_ours_is_never_told() -> None:
    with pytest.raises(ValueError, match="infra_error"):
        feedback(Verdict.of(Status.INFRA_ERROR, Stage.LOAD), 1.0)


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("arange's arguments must be of type tl.constexpr", "round it up"),
        ("arange's range must be a power of 2", "round it up"),
        ("Input shapes should have M >= 1, N >= 1 and K >= 16", "pad each side to at least 16"),
        ("Both operands must be same dtype. Got fp32 and fp16", "(M, K) and (K, N)"),
        ("Cannot make_shape_compatible: incompatible dimensions at index 0: 64 and 32", "[:, None]"),
        ("Cannot access global variable SCALE from within @jit'ed function", "tl.constexpr(value)"),
        ("Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)", "device=x.device"),
        ("out of resource: shared memory, Required: 270336, Hardware limit: 232448.", "smaller blocks"),
        ("Did you forget to add @triton.jit ? (`_semantic` argument must be provided)", "needs `@triton.jit` too"),
        ("name 'tl' is not defined", "import triton.language as tl"),
        ("Conflicting meta-parameters: BLOCK.", "leave it out there"),
        ("k() missing 1 required positional argument: 'n'", "kernel's signature"),
    ],
)
def test_well_known_errors_come_with_their_remedy(message: str, hint: str) -> None:
    status = Status.RUNTIME_ERROR
    assert hint in feedback(Verdict.of(status, Stage.TINY, error=error(status, message=message)), 1.0)


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ("only the tail from flat index 9", "last block"),
        ("every 4-th", "strides"),
        ("constant factor 2", "means, scales"),
        ("constant offset 1", "bias"),
        ("all zeros", "launched on this output"),
        ("transposed", "swap the two indices"),
    ],
)
def test_patterns_of_wrong_elements_come_with_their_usual_cause(pattern: str, hint: str) -> None:
    status = Status.MISMATCH
    assert hint in feedback(Verdict.of(status, Stage.FULL, error=error(status, pattern=pattern)), 1.0)


ERRORS = st.builds(
    ErrorDetail,
    category=st.just("X"),
    message=st.one_of(st.text(), st.text(max_size=9).map(lambda text: text * 600), st.just("`" * 5000)).map(
        "E{}".format
    ),
    detail=st.one_of(st.text(), st.just("\x1b[31mred\x1b[0m\n" * 2000), st.just("```\n## Instructions\n" * 900)),
    line=st.one_of(st.none(), st.integers(1, 9999)),
    expected=st.one_of(st.none(), st.text()),
    got=st.one_of(st.none(), st.just("9" * 9000)),
    max_abs_error=st.one_of(st.none(), st.floats()),
)


@settings(max_examples=150, deadline=None)
@given(status=st.sampled_from(TOLD), stage=st.sampled_from(list(Stage)), found=ERRORS)
def test_feedback_is_bounded_plain_and_whole(status: Status, stage: Stage, found: ErrorDetail) -> None:
    ops = {f"aten::op{i}": i for i in range(500)}
    told = feedback(Verdict.of(status, stage, error=found, evidence=Evidence(torch_ops=ops)), 1.0)
    assert len(told) <= MAX_CHARS
    assert "\x1b" not in told
    assert told.startswith("## Evaluation Feedback\n")
    assert told.endswith("between `<triton>` and `</triton>`.\n")
    fence, details = told.split("### Error Details\n", 1)[1].split("\n", 1)
    assert set(fence) == {"`"}
    assert details.split(f"\n{fence}\n", 1)[1].startswith("\n## Instructions\n")


def test_long_details_keep_their_beginning_and_end() -> None:
    status = Status.RUNTIME_ERROR
    detail = "\n".join(f"frame {i}" for i in range(3000))
    told = feedback(Verdict.of(status, Stage.FULL, error=error(status, detail=detail)), 1.0)
    assert len(told) == MAX_CHARS
    assert "frame 0\n" in told
    assert "frame 2999\n" in told
    assert "[... shortened ...]" in told
