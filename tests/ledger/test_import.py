import subprocess
import sys

import pytest

import qtide.ledger


def test_the_package_is_light_to_import() -> None:
    script = "import sys, qtide.ledger; print({'matplotlib', 'rich', 'numpy'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert result.stdout == b"set()\n"


@pytest.mark.parametrize("name", qtide.ledger.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(qtide.ledger, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        qtide.ledger.nothing  # noqa: B018
