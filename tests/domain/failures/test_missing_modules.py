"""Advice on what fails before any batch: code that the driver has not, packages of Spark."""

import pytest

from queries.domain.failures.categories import Category
from queries.domain.failures.diagnosis import Classified, classify
from queries.domain.failures.error_text import missing_module
from queries.domain.failures.rules import MODULE_ADDED_LATER, SPARK_PACKAGES

AGAIN = "the same batch is read again"


def of(type_name: str, text: str, error_class: str = "", *, in_batch: bool = False) -> Classified:
    return classify(
        error_class=error_class,
        type_name=type_name,
        root_cause=text,
        message=text,
        in_batch=in_batch,
    )


@pytest.mark.parametrize(
    ("type_name", "text", "error_class"),
    [
        ("KeyError", "'price'", "HEADGATE_USER_CODE"),
        ("org.apache.spark.SparkArithmeticException", "[DIVIDE_BY_ZERO] Division by zero.", ""),
        ("org.apache.spark.SparkRuntimeException", "[NOT_NULL_ASSERT_VIOLATION] null", ""),
    ],
)
def test_only_a_failure_in_a_batch_says_that_the_batch_is_read_again(
    type_name: str, text: str, error_class: str
) -> None:
    assert AGAIN in of(type_name, text, error_class, in_batch=True).way_out
    before = of(type_name, text, error_class)
    assert AGAIN not in before.way_out
    assert before.way_out.endswith(".")
    assert before.category == of(type_name, text, error_class, in_batch=True).category


def test_a_module_added_after_the_start_needs_a_restart_of_the_application() -> None:
    found = of(MODULE_ADDED_LATER, "No module named 'prices'", "HEADGATE_USER_CODE")
    assert "Restart the application" in found.way_out
    assert found.category is Category.USER_CODE


@pytest.mark.parametrize("module", SPARK_PACKAGES)
def test_a_package_that_spark_needs_is_named_as_it_is_installed(module: str) -> None:
    text = f"No module named '{module}'"
    found = of("ModuleNotFoundError", text, "HEADGATE_USER_CODE")
    assert found.category is Category.CONFIGURATION
    assert f"pip install {SPARK_PACKAGES[module]}" in found.way_out


@pytest.mark.parametrize(
    "text",
    [
        "[PACKAGE_NOT_INSTALLED] Pandas >= 2.2.0 must be installed; however, it was not found.",
        "[UNSUPPORTED_PACKAGE_VERSION] PyArrow >= 18.0.0 must be installed; however, your "
        "version is 11.0.0.",
    ],
)
def test_pysparks_own_word_of_a_missing_package_is_understood(text: str) -> None:
    found = of("pyspark.errors.exceptions.base.PySparkImportError", text, "HEADGATE_USER_CODE")
    assert found.category is Category.CONFIGURATION
    assert "package that the root cause names" in found.way_out


@pytest.mark.parametrize("module", ["prices", "prices.pandas", "google.cloud"])
def test_any_other_missing_module_is_the_users_code_and_packages_is_the_way_out(
    module: str,
) -> None:
    found = of("ModuleNotFoundError", f"No module named '{module}'", "HEADGATE_USER_CODE")
    assert found.category is Category.USER_CODE
    assert module in found.meaning
    assert "the application's packages field" in found.way_out
    assert "fix" not in found.way_out


@pytest.mark.parametrize(
    ("type_name", "text"),
    [
        ("ModuleNotFoundError", "No module named 'grpc'"),
        (
            "pyspark.errors.exceptions.base.PySparkImportError",
            "[PACKAGE_NOT_INSTALLED] grpcio >= 1.76.0 must be installed; however, it was not "
            "found.",
        ),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError",
            "[SESSION_ALREADY_EXIST] Cannot start a remote Spark session because there is a "
            "regular Spark session already running.",
        ),
    ],
)
def test_spark_connect_is_named_as_not_supported(type_name: str, text: str) -> None:
    found = of(type_name, text, "HEADGATE_USER_CODE")
    assert found.category is Category.CONFIGURATION
    assert "Spark Connect" in found.meaning
    assert "does not support" in found.meaning
    assert "SparkSession.builder.getOrCreate()" in found.way_out
    assert "pip install" not in found.way_out


def test_the_missing_module_is_read_from_an_import_error_only() -> None:
    assert missing_module("ModuleNotFoundError", "No module named 'a.b'") == "a.b"
    assert missing_module("ModuleNotFoundError", "something else") == ""
    assert missing_module("KeyError", "No module named 'a.b'") == ""
