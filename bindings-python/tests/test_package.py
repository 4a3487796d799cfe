"""The package as it is installed: what pip and PyPI show of it, and its licences."""

from importlib.metadata import distribution, entry_points

PACKAGE = distribution("polyrank")


def test_the_package_says_what_it_is_and_where_it_comes_from() -> None:
    metadata = PACKAGE.metadata
    assert metadata["License-Expression"] == "MIT OR Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert "# polyrank for Python" in metadata.get_payload()
    urls = dict(url.split(", ", 1) for url in metadata.get_all("Project-URL"))
    assert set(urls) >= {"Homepage", "Repository", "Issues", "Changelog"}
    classifiers = metadata.get_all("Classifier")
    assert "Operating System :: POSIX :: Linux" in classifiers
    assert "Typing :: Typed" in classifiers


def test_both_licence_texts_are_in_the_package() -> None:
    assert set(PACKAGE.metadata.get_all("License-File")) == {"LICENSE-APACHE", "LICENSE-MIT"}
    files = PACKAGE.files
    assert files is not None
    texts = {file.name: file.read_text() for file in files if file.name.startswith("LICENSE")}
    assert texts["LICENSE-MIT"].startswith("MIT License")
    assert "Apache License" in texts["LICENSE-APACHE"]


def test_the_package_brings_the_command() -> None:
    (command,) = entry_points(group="console_scripts", name="polyrank")
    assert command.value == "polyrank._command:main"
