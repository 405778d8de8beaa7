"""The documentation test itself finds what it is there to find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import missing, read_blocks
from tests.docs.reader import Reader

PAGE = """# A page

```sh
GREETING=hello
cat > name.txt <<< world
echo $GREETING
```
```
he…o
```

1. In a list:

   ```python
   name = open("name.txt").read().strip()
   ```

<!-- not run: it never ends -->
```sh
sleep infinity
```

```python
print(name, 12.7)
```

```text
world …
```
"""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.end()


def written(folder: Path, text: str = PAGE) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


def complaints(reader: Reader, text: str) -> list[str]:
    blocks = read_blocks(written(reader.folder, text))
    return [wrong for block in blocks if block.is_run if (wrong := reader.follow(block))]


def test_blocks_are_read_with_remarks_and_output(tmp_path: Path) -> None:
    blocks = read_blocks(written(tmp_path))
    assert [block.line for block in blocks] == [3, 14, 19, 23]
    assert [block.is_run for block in blocks] == [True, True, False, True]
    assert blocks[0].shown and blocks[0].shown.text == "he…o\n"
    assert blocks[1].text == 'name = open("name.txt").read().strip()\n'
    assert blocks[3].shown and blocks[3].shown.line == 27


def test_shell_and_python_share_a_folder_and_keep_their_state(reader: Reader) -> None:
    assert complaints(reader, PAGE) == []


def test_other_output_is_found_with_its_place(reader: Reader) -> None:
    (wrong,) = complaints(reader, PAGE.replace("he…o", "good…bye"))
    assert wrong.startswith("page.md:8 shows what page.md:3 does not print there:\ngood…bye\n")
    assert wrong.endswith("It printed:\nhello\n")


def test_a_command_that_fails_is_found_wherever_it_stands(reader: Reader) -> None:
    (wrong,) = complaints(reader, "```sh\nls nowhere\necho well\n```\n")
    assert wrong.startswith("page.md:1 failed with code 2") and "nowhere" in wrong


def test_python_that_raises_is_found(reader: Reader) -> None:
    (wrong,) = complaints(reader, "```python\nimport nothing_of_that_name\n```\n")
    assert wrong.startswith("page.md:1 failed") and "ModuleNotFoundError" in wrong


def test_shown_lines_may_be_some_of_the_output_but_in_its_order() -> None:
    printed = "one\n  two   2.5 s\nthree\n"
    assert missing("one\nthree", printed) is None
    assert missing("two … s", printed) is None
    assert missing("three\none", printed) == "one"
    assert missing("two 2.4 s", printed) == "two 2.4 s"
