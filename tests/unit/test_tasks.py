"""The tasks accept all right answers and no wrong one; the split holds; no text is lost."""

from itertools import islice

import pytest

from benchmarks.tasks import TASKS, examples, is_held_out
from benchmarks.tiny_tokenizer import SPECIALS, build_tokenizer, render_prompt

GRID = "Solve the Sudoku:\n1000\n0000\n0000\n0001"

RIGHT = [
    ("sudoku", GRID, "1234\n3412\n4123\n2341"),
    ("sudoku", GRID, "1324\n4213\n3142\n2431"),
    ("countdown", "Use 7, 8, 9 to make 79.", "9*8+7=79"),
    ("countdown", "Use 7, 8, 9 to make 79.", "7+8*9=79"),
    ("countdown", "Use 2, 3, 4 to make 20.", "(2+3)*4=20"),
    ("addition", "What is 54+25?", "54+25=79"),
    ("phrases", "Name a poker hand for Ada.", "two pair"),
    ("phrases", "Name a poker hand for Ada.", "full house"),
    ("phrases", "Give a capital and a proverb for Theo.", "Lima, Peru; time flies"),
    (
        "word_problems",
        "Ada has 4 boxes with 6 books in each. How many books does Ada have now?",
        "4*6=24. Ada has 24 books.",
    ),
]

WRONG = [
    ("sudoku", GRID, "1234\n3412\n4123\n2314"),  # two fours in a column
    ("sudoku", GRID, "1234\n3412\n2143\n4321\n1234"),
    ("sudoku", GRID, "2143\n4321\n1234\n3412"),  # a valid grid of another puzzle
    ("sudoku", GRID, "1234 3412 4123 2341"),
    ("countdown", "Use 7, 8, 9 to make 79.", "9*8+7=80"),
    ("countdown", "Use 7, 8, 9 to make 79.", "79=79"),
    ("countdown", "Use 7, 8, 9 to make 79.", "9*8+7+7-7=79"),
    ("countdown", "Use 2, 3, 4 to make 20.", "2+3*4=20"),
    ("countdown", "Use 2, 3, 4 to make 81.", "3**4*2=81"),
    ("countdown", "Use 2, 3, 4 to make 20.", "(2+3*4=20"),
    ("addition", "What is 54+25?", "54+25=78"),
    ("addition", "What is 54+25?", "79"),
    ("phrases", "Name a poker hand for Ada.", "full card"),
    ("phrases", "Name a poker hand for Ada.", "Rome, Italy"),
    ("phrases", "Name a poker hand for Ada.", "two pair; full house"),
    ("phrases", "Give a capital and a proverb for Theo.", "Lima, Peru"),
    ("phrases", "Give a capital and a proverb for Theo.", "Lima, France; time flies"),
    (
        "word_problems",
        "Ada has 4 boxes with 6 books in each. How many books does Ada have now?",
        "4*6=24. Ada has 26 books.",
    ),
]


@pytest.mark.parametrize(("task", "prompt", "answer"), RIGHT)
def test_a_right_answer_is_accepted(task, prompt, answer):
    assert TASKS[task].check(prompt, answer)


@pytest.mark.parametrize(("task", "prompt", "answer"), WRONG)
def test_a_wrong_answer_is_refused(task, prompt, answer):
    assert not TASKS[task].check(prompt, answer)


@pytest.mark.parametrize("name", TASKS)
def test_generated_answers_pass_their_own_check(name):
    for prompt, answer in islice(examples(TASKS[name], 1, held_out=False), 300):
        assert TASKS[name].check(prompt, answer)


@pytest.mark.parametrize("name", TASKS)
def test_the_split_is_disjoint_and_repeatable(name):
    seen = {e.prompt for e in islice(examples(TASKS[name], 1, held_out=False), 1000)}
    held_out = [e for e in islice(examples(TASKS[name], 2, held_out=True), 50)]
    assert seen.isdisjoint(e.prompt for e in held_out)
    assert all(is_held_out(e.prompt) for e in held_out)
    assert held_out == list(islice(examples(TASKS[name], 2, held_out=True), 50))


@pytest.fixture(scope="module")
def tokenizer():
    texts = [
        text
        for task in TASKS.values()
        for e in islice(examples(task, 0, held_out=False), 200)
        for text in e
    ]
    return build_tokenizer(texts, vocab_size=700, max_length=512)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "two  spaces\tand\r\n\r\nlines \n x ",
        "12+34=46, ½ ٣ 七",
        "naïve café — “quoted” ‰",
        "日本語 العربية हिन्दी",
        "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 zero\x00byte \ufffd \u0301",
        "don't stop , now !",
    ],
)
def test_any_text_survives_the_tokenizer(tokenizer, text):
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_digits_are_tokens_of_their_own(tokenizer):
    assert tokenizer.tokenize("12345") == list("12345")


def test_specials_come_last_and_are_single_ids(tokenizer):
    first = len(tokenizer) - len(SPECIALS)
    assert tokenizer.convert_tokens_to_ids(SPECIALS) == list(range(first, len(tokenizer)))
    assert tokenizer(SPECIALS[0] + "a").input_ids == [first, *tokenizer("a").input_ids]


def test_no_special_is_added_unasked(tokenizer):
    assert max(tokenizer("Use 1, 2, 3 to make 6.").input_ids) < len(tokenizer) - len(SPECIALS)


def test_the_chat_template_has_the_form_of_llada(tokenizer):
    turns = [
        {"role": "user", "content": "  Hello \n"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Bye."},
    ]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    assert text == (
        "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\nHi.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nBye.<|eot_id|>"
    )
    assert tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) == (
        text + "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_training_renders_prompts_as_the_chat_template_does(tokenizer):
    turn = [{"role": "user", "content": "What is 10+20?"}]
    rendered = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    assert render_prompt("What is 10+20?") == rendered
